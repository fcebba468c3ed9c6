"""What the viewer replays: truth and forecasts as bytes, 21 a step and run, so that ten hours are about 5 MB.

A step's truth is one byte: bit 0 nobody, bit 1 self, bit 2 other (a class with at least half of the step; the largest
one where none has that), none of them where it is unknown, and bit 3 where a forecast was made at the step's end.
A forecast is twenty bytes, self and other at each of the ten horizons, 255 for 1. Nobody is what remains.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from swift_plugin.evaluation.counting import known_rows, labels, positives
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import Timeline, timelines

ANCHOR_BIT = 8


def pack_replay(forecasts: list[Predictions]) -> list[dict[str, Any]]:
    """Each session with its `name`, its `first` step, `truth` from there on, and `runs`, one forecast a run.

    Args:
        forecasts: of the same anchors in the same order.
    """
    sessions = []
    for line in timelines(forecasts[0]):
        rows = line.anchor[line.anchors]
        first = int(line.anchors[0])
        sessions.append(
            {
                "name": line.name,
                "first": first,
                "truth": _encode(_truth(line)[first:]),
                "runs": [_encode(np.rint(forecast.probabilities[rows, :, 1:] * 255)) for forecast in forecasts],
            }
        )
    return sessions


def _truth(line: Timeline) -> np.ndarray:
    active = positives(line.targets)
    largest = np.eye(3, dtype=bool)[labels(line.targets)]
    bits = np.where(active.any(axis=1, keepdims=True), active, largest) & known_rows(line.targets)[:, None]
    return bits @ np.array([1, 2, 4]) + ANCHOR_BIT * (line.anchor >= 0)


def _encode(values: np.ndarray) -> str:
    return base64.b64encode(values.astype(np.uint8).tobytes()).decode()
