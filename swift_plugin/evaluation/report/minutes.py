"""The minutes of the sessions that were forecast worst and best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swift_plugin.evaluation.metrics import mean, sums_by_unit
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import timelines
from swift_plugin.evaluation.uncertainty import BLOCK_STEPS
from swift_plugin.stream.spec import NUM_HORIZONS, STEP_SECONDS

ENOUGH_ROWS = BLOCK_STEPS * NUM_HORIZONS // 2  # half a minute of anchors with known truth


@dataclass(frozen=True, kw_only=True)
class Minute:
    """A minute of a session, 300 steps.

    Attributes:
        start: seconds of the session.
        log_loss: of each forecast, over all horizons.
        right: share of the forecasts of the first file whose most likely class came.
        active: bool [n, 3], who speaks in each of its steps, n <= 300; none in unknown steps.
    """

    session: str
    start: float
    log_loss: list[float]
    right: float
    active: np.ndarray


def rank_minutes(forecasts: list[Predictions]) -> list[Minute]:
    """Minutes by the log loss of the first forecast, the worst first.

    Minutes with less than half of their truth are left out, unless there are no others.

    Args:
        forecasts: of the same anchors.
    """
    first = forecasts[0]
    places, unit = np.unique(
        np.column_stack([first.session.astype(np.int64), first.target_index // BLOCK_STEPS]),
        axis=0,
        return_inverse=True,
    )
    sums = [
        sums_by_unit(forecast.probabilities, forecast.targets, unit.reshape(-1), num_units=len(places))
        for forecast in forecasts
    ]
    rows = sums[0].known.sum(axis=1)
    losses = np.stack([mean(entry.log_loss.sum(axis=1), rows) for entry in sums])  # [forecasts, minutes]
    confusion = sums[0].confusion.sum(axis=1)  # [minutes, 3, 3]
    right = mean(np.trace(confusion, axis1=1, axis2=2), rows)
    chosen = np.flatnonzero(rows >= ENOUGH_ROWS)
    if not chosen.size:
        chosen = np.flatnonzero(rows)
    active = {line.name: line.active for line in timelines(first)}
    minutes = []
    for number in chosen[np.argsort(-losses[0, chosen], kind="stable")]:
        session, minute = first.session_names[places[number, 0]], int(places[number, 1])
        minutes.append(
            Minute(
                session=session,
                start=minute * BLOCK_STEPS * STEP_SECONDS,
                log_loss=losses[:, number].tolist(),
                right=float(right[number]),
                active=active[session][minute * BLOCK_STEPS : (minute + 1) * BLOCK_STEPS],
            )
        )
    return minutes
