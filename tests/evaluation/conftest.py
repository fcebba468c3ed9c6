"""Hand-made conversations for the tests of this folder."""

from __future__ import annotations

import numpy as np
import pytest

from swift_plugin.evaluation.predictions import Predictions

_STEPS = {
    "-": (1, 0, 0),  # nobody
    "s": (0, 1, 0),  # self
    "o": (0, 0, 1),  # other
    "b": (0, 1, 1),  # both
    "?": (np.nan, np.nan, np.nan),
}


def _targets_of(steps: str) -> np.ndarray:
    """float32 [T, 3] of one letter a step: - nobody, s self, o other, b both, ? unknown."""
    return np.array([_STEPS[step] for step in steps], np.float32).reshape(-1, 3)


def _predictions_of(*sessions: str, p_self: list[list[float]] | None = None) -> Predictions:
    """An anchor at every step, the last ones with unknown futures.

    Args:
        p_self: for each session and step the probability of self at all horizons; the rest goes to nobody. Without it
            all rows are thirds.
    """
    probabilities, targets = [], []
    for number, steps in enumerate(sessions):
        padded = np.concatenate([_targets_of(steps), np.full((10, 3), np.nan, np.float32)])
        targets.append(np.stack([padded[i + 1 : i + 11] for i in range(len(steps))]))
        rows = np.full((len(steps), 10, 3), 1 / 3)
        if p_self is not None:
            score = np.array(p_self[number])[:, None]
            rows = np.stack(np.broadcast_arrays(1 - score, score, 0 * score), axis=-1).repeat(10, axis=1)
        probabilities.append(rows)
    lengths = [len(steps) for steps in sessions]
    return Predictions(
        probabilities=np.concatenate(probabilities),
        target_index=np.concatenate([np.arange(length) for length in lengths]),
        session=np.repeat(np.arange(len(sessions)), lengths).astype(np.int32),
        session_names=[f"session {k}" for k in range(len(sessions))],
        targets=np.concatenate(targets),
    )


@pytest.fixture(scope="session")
def targets_of():
    return _targets_of


@pytest.fixture(scope="session")
def predictions_of():
    return _predictions_of
