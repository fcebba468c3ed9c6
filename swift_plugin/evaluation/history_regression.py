"""The strongest baseline: a logistic regression on the label history of the last 10 s."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.linear_model import LogisticRegression

from swift_plugin.evaluation.baselines import HISTORY_STEPS, Baseline, history_labels
from swift_plugin.evaluation.counting import known_rows, labels
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS

MAX_ROWS = 60_000  # of the fit, drawn at random; 3.3 h of anchors for 104 weights a class
CHUNK_ROWS = 50_000  # of a prediction; 20 MB of features


class HistoryRegression(Baseline):
    """One multinomial regression a horizon.

    The features of an anchor at step i: whether self and whether other spoke in each of the steps i-49..i (100
    numbers), and for each class log(1 + steps since it was last there), at most 50 steps (3 numbers).
    """

    name = "logistic regression"

    def __init__(self, sessions: Sequence[np.ndarray], *, seed: int = 0) -> None:
        known = [known_rows(targets) for targets in sessions]
        places = np.concatenate(  # [P, 2]: session, step
            [np.column_stack([np.full(rows.sum(), k), np.flatnonzero(rows)]) for k, rows in enumerate(known)]
        )
        if len(places) > MAX_ROWS:
            places = np.random.default_rng(seed).permutation(places)[:MAX_ROWS]
        features, future = [], []
        for number, targets in enumerate(sessions):
            steps = places[places[:, 0] == number, 1]
            features.append(history_features(targets, steps))
            future.append(_future_labels(targets, steps))
        features, future = np.concatenate(features), np.concatenate(future)
        self._models = [_fit(features, future[:, horizon]) for horizon in range(NUM_HORIZONS)]

    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        probabilities = np.zeros((len(target_index), NUM_HORIZONS, NUM_CLASSES))
        for start in range(0, len(target_index), CHUNK_ROWS):
            rows = slice(start, start + CHUNK_ROWS)
            features = history_features(targets, target_index[rows])
            for horizon, (classes, model) in enumerate(self._models):
                predicted = 1.0 if model is None else model.predict_proba(features)
                probabilities[rows, horizon, classes] = predicted
        return probabilities


def history_features(targets: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """float32 [n, 103] of targets [T, 3] at steps [n]."""
    before = np.full(HISTORY_STEPS - 1, 0)  # nobody before the session
    classes = np.concatenate([before, history_labels(targets)])
    windows = np.lib.stride_tricks.sliding_window_view(classes, HISTORY_STEPS)[steps][:, ::-1]  # newest first
    there = windows[..., None] == np.arange(NUM_CLASSES)  # [n, 50, 3]
    since = np.where(there.any(axis=1), there.argmax(axis=1), HISTORY_STEPS)  # [n, 3]
    speaking = there[..., 1:].reshape(len(steps), -1)
    return np.concatenate([speaking, np.log1p(since)], axis=1, dtype=np.float32)


def _future_labels(targets: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """int [n, 10]: the classes of the ten steps after each step, -1 where unknown."""
    classes = np.concatenate([np.where(known_rows(targets), labels(targets), -1), np.full(NUM_HORIZONS, -1)])
    return classes[steps[:, None] + 1 + np.arange(NUM_HORIZONS)]


def _fit(features: np.ndarray, future: np.ndarray) -> tuple[np.ndarray, LogisticRegression | None]:
    """The classes that occur, and a model of them; `None` where only one does, which is then certain."""
    known = future >= 0
    classes = np.unique(future[known])
    if len(classes) < 2:
        return (classes if len(classes) else np.array([0])), None
    model = LogisticRegression(max_iter=1000)
    return classes, model.fit(features[known], future[known])
