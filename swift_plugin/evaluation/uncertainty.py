"""95 % intervals by bootstrap: draw whole sessions, or whole stretches of time, again and again.

Anchors that lie 0.2 s apart are nearly copies of each other, so the unit that is drawn has to be much longer than a
turn (Künsch 1989 for blocks of a time series; Efron & Tibshirani 1993, chapter 13 for the percentile interval).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np

from swift_plugin.evaluation.counting import known_rows, positives
from swift_plugin.evaluation.metrics import (
    balanced_accuracy,
    expected_calibration_error,
    mean,
    name_values,
    sums_by_unit,
)
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.ranking import Ranking
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS, STEPS_PER_BLOCK

LEVEL = 0.95
BLOCK_STEPS = 30 * STEPS_PER_BLOCK  # one minute
NUM_CELLS = NUM_HORIZONS * NUM_CLASSES
MIN_SESSIONS = 6  # five sessions have 126 different resamples, too few for a 95 % interval


@dataclass(frozen=True)
class Units:
    """What a resample draws.

    Attributes:
        kind: `session`, or `minute` where there are fewer than six sessions.
        unit: int [N], the unit of each anchor.
        count: U, the number of units.
    """

    kind: str
    unit: np.ndarray
    count: int


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval; `low` and `high` are NaN where no resample has the value."""

    value: float
    low: float
    high: float


def resampling_units(predictions: Predictions) -> Units:
    """Sessions where there are at least six of them, else minutes within the sessions."""
    keys = predictions.session.astype(np.int64)[:, None]
    kind = "session"
    if len(np.unique(keys)) < MIN_SESSIONS:
        kind = "minute"
        keys = np.column_stack([keys, predictions.target_index // BLOCK_STEPS])
    names, unit = np.unique(keys, axis=0, return_inverse=True)
    return Units(kind, unit.reshape(-1), len(names))


def draw_weights(num_units: int, *, resamples: int, seed: int) -> np.ndarray:
    """int64 [R, U]: how often each resample of U draws holds each unit."""
    return np.random.default_rng(seed).multinomial(num_units, np.full(num_units, 1 / num_units), size=resamples)


def resample_metrics(
    probabilities: np.ndarray,
    targets: np.ndarray,
    units: Units,
    weights: np.ndarray,
    *,
    workers: int = min(os.cpu_count() or 1, 8),
    advance: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """Every value of `turn_metrics` under every resample.

    Args:
        probabilities, targets: [N, 10, 3].
        weights: int [R, U], from `draw_weights`; the same weights for two files make a paired comparison.
        workers: threads; numpy's sums run without the interpreter's lock.
        advance: called after each of the 30 cells.

    Returns:
        name -> float64 [R].
    """
    probabilities = np.asarray(probabilities, np.float32)
    known, positive = known_rows(targets), positives(targets)
    average_precision, roc_auc = np.full((2, len(weights), NUM_HORIZONS, NUM_CLASSES), np.nan)

    def fill(horizon: int, class_index: int) -> None:
        rows = known[:, horizon]
        truth, score = positive[rows, horizon, class_index], probabilities[rows, horizon, class_index]
        cell = Ranking(truth, score, units.unit[rows]).resample(weights)
        average_precision[:, horizon, class_index], roc_auc[:, horizon, class_index] = cell

    with ThreadPoolExecutor(workers) as pool:
        for cell in as_completed([pool.submit(fill, *place) for place in np.ndindex(NUM_HORIZONS, NUM_CLASSES)]):
            cell.result()
            advance()
    sums = sums_by_unit(probabilities, targets, units.unit, num_units=units.count)
    rows = weights @ sums.known  # [R, 10]
    return name_values(
        average_precision=average_precision,
        roc_auc=roc_auc,
        balanced_accuracy=balanced_accuracy(np.tensordot(weights, sums.confusion, axes=1)),
        log_loss=mean(weights @ sums.log_loss, rows),
        brier=mean(weights @ sums.brier, rows),
        ece=expected_calibration_error(np.tensordot(weights, sums.calibration, axes=1)),
    )


def interval(value: float, samples: np.ndarray) -> Interval:
    """The percentile interval of the resamples that have the value."""
    samples = samples[~np.isnan(samples)]
    if not samples.size:
        return Interval(value, np.nan, np.nan)
    low, high = np.quantile(samples, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(value, float(low), float(high))


def intervals(values: dict[str, float], samples: dict[str, np.ndarray]) -> dict[str, Interval]:
    """An interval for each value that has samples; the others are counts."""
    return {name: interval(value, samples[name]) for name, value in values.items() if name in samples}
