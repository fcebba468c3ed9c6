"""Metrics of predictions [N, 10, 3] against targets [N, 10, 3], by horizon and class; `counting` says what counts.

A cell (horizon × class) without positives has no average precision, and one without negatives no ROC AUC. Such cells
are NaN in `TurnMetrics`, left out of every mean and of `flat()`, and counted.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from swift_plugin.evaluation.counting import (
    CALIBRATION_BINS,
    brier_terms,
    calibration_terms,
    confusion_cell,
    known_rows,
    log_loss_terms,
    positives,
)
from swift_plugin.evaluation.predictions import HORIZON_NAMES
from swift_plugin.stream.spec import CLASS_NAMES, NUM_CLASSES, NUM_HORIZONS

SPEAKING = [1, 2]  # self and other, the classes of `mAP`


@dataclass(frozen=True, kw_only=True)
class TurnMetrics:
    """Metrics by horizon and class; NaN where a value does not exist.

    Attributes:
        known: int [10], rows with targets.
        positives: int [10, 3].
        average_precision, roc_auc: [10, 3], one class against the rest, by scikit-learn.
        confusion: int [10, 3, 3], rows are the truth, columns the most likely class.
        log_loss, brier: [10], means over the known rows; the Brier score sums over the three classes (0..2).
        calibration: [10, 15, 3]; of each bin its number of rows, the sum of the probabilities of the most likely class
            and the number of rows where that class was right.
    """

    known: np.ndarray
    positives: np.ndarray
    average_precision: np.ndarray
    roc_auc: np.ndarray
    confusion: np.ndarray
    log_loss: np.ndarray
    brier: np.ndarray
    calibration: np.ndarray

    @property
    def balanced_accuracy(self) -> np.ndarray:
        """[10]"""
        return balanced_accuracy(self.confusion)

    @property
    def ece(self) -> np.ndarray:
        """[10]"""
        return expected_calibration_error(self.calibration)

    def flat(self) -> dict[str, float]:
        """The values under the names of `name_values`, without those that do not exist."""
        values = name_values(
            average_precision=self.average_precision,
            roc_auc=self.roc_auc,
            balanced_accuracy=self.balanced_accuracy,
            log_loss=self.log_loss,
            brier=self.brier,
            ece=self.ece,
        )
        flat = {name: float(value) for name, value in values.items() if not np.isnan(value)}
        return flat | {"cells_without_positives": float((self.positives == 0).sum())}


def turn_metrics(probabilities: np.ndarray, targets: np.ndarray) -> dict[str, float]:
    """`measure(…).flat()`: what the Trainer logs and what `swift-turn evaluate` writes."""
    return measure(probabilities, targets).flat()


def measure(probabilities: np.ndarray, targets: np.ndarray) -> TurnMetrics:
    """Compute every metric.

    Args:
        probabilities: float [N, 10, 3], rows sum to one.
        targets: float [N, 10, 3]; one-hot, multi-hot or soft, a row with NaN is unknown.
    """
    # Files hold float32. Doubles in the Trainer would break ties that the file has, and so give another metric.
    probabilities = np.asarray(probabilities, np.float32)
    known, positive = known_rows(targets), positives(targets)
    average_precision, roc_auc = np.full((2, NUM_HORIZONS, NUM_CLASSES), np.nan)
    for horizon, class_index in np.ndindex(NUM_HORIZONS, NUM_CLASSES):
        rows = known[:, horizon]
        truth, score = positive[rows, horizon, class_index], probabilities[rows, horizon, class_index]
        if truth.any():
            average_precision[horizon, class_index] = average_precision_score(truth, score)
            if not truth.all():
                roc_auc[horizon, class_index] = roc_auc_score(truth, score)
    one_unit = np.zeros(len(targets), np.int64)
    sums = sums_by_unit(probabilities, targets, one_unit, num_units=1)
    return TurnMetrics(
        known=known.sum(axis=0),
        positives=positive.sum(axis=0),
        average_precision=average_precision,
        roc_auc=roc_auc,
        confusion=sums.confusion[0].astype(np.int64),
        log_loss=mean(sums.log_loss[0], sums.known[0]),
        brier=mean(sums.brier[0], sums.known[0]),
        calibration=sums.calibration[0],
    )


@dataclass(frozen=True, kw_only=True)
class UnitSums:
    """What the rows of each unit (a session, a minute) add to the metrics that are means.

    Attributes:
        known, log_loss, brier: float64 [U, 10]
        confusion: float64 [U, 10, 3, 3]
        calibration: float64 [U, 10, 15, 3], as in `TurnMetrics`
    """

    known: np.ndarray
    log_loss: np.ndarray
    brier: np.ndarray
    confusion: np.ndarray
    calibration: np.ndarray


def sums_by_unit(probabilities: np.ndarray, targets: np.ndarray, unit: np.ndarray, *, num_units: int) -> UnitSums:
    """Sum over the known rows of each unit.

    Args:
        probabilities, targets: [N, 10, 3].
        unit: int [N], the unit of each anchor, 0 .. num_units-1.
    """
    known = known_rows(targets)
    row, horizon = np.nonzero(known)
    probabilities, targets = probabilities[row, horizon], targets[row, horizon]  # [K, 3], K known rows
    place = unit[row] * NUM_HORIZONS + horizon
    cells = num_units * NUM_HORIZONS

    def total(index: np.ndarray, size: int, weights: np.ndarray | None = None) -> np.ndarray:
        sums = np.bincount(place * size + index, weights, minlength=cells * size)
        return sums.astype(np.float64).reshape(num_units, NUM_HORIZONS, size)

    bins, confidence, correct = calibration_terms(probabilities, targets)
    calibration = [total(bins, CALIBRATION_BINS, weights) for weights in (None, confidence, correct)]
    confusion = total(confusion_cell(probabilities, targets), NUM_CLASSES**2)
    return UnitSums(
        known=total(0, 1)[..., 0],
        log_loss=total(0, 1, log_loss_terms(probabilities, targets))[..., 0],
        brier=total(0, 1, brier_terms(probabilities, targets))[..., 0],
        confusion=confusion.reshape(num_units, NUM_HORIZONS, NUM_CLASSES, NUM_CLASSES),
        calibration=np.stack(calibration, axis=-1),
    )


def mean(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    """total / count, NaN where the count is 0."""
    return np.divide(total, count, out=np.full(np.shape(total), np.nan), where=count > 0)


def balanced_accuracy(confusion: np.ndarray) -> np.ndarray:
    """[...] of confusion [..., 3, 3]: mean recall of the classes that occur, as `balanced_accuracy_score`."""
    correct = np.diagonal(confusion, axis1=-2, axis2=-1).astype(np.float64)
    return nanmean(mean(correct, confusion.sum(axis=-1)), axis=-1)


def expected_calibration_error(calibration: np.ndarray) -> np.ndarray:
    """[...] of calibration [..., 15, 3]: Guo et al. 2017, https://arxiv.org/abs/1706.04599, equation 3."""
    count, confidence, correct = np.moveaxis(calibration, -1, 0)
    return mean(np.abs(confidence - correct).sum(axis=-1), count.sum(axis=-1))


def name_values(
    *,
    average_precision: np.ndarray,
    roc_auc: np.ndarray,
    balanced_accuracy: np.ndarray,
    log_loss: np.ndarray,
    brier: np.ndarray,
    ece: np.ndarray,
) -> dict[str, np.ndarray]:
    """Give every value its name, and take the means.

    Args:
        average_precision, roc_auc: [..., 10, 3], NaN where there is none.
        the others: [..., 10].

    Returns:
        arrays [...] under `mAP` (mean over the cells of self and other), `mAP_all` (with nobody), `mAP_0.4s`,
        `AP_self`, `AP_self_0.4s`, the same with `ROC` for the area under the ROC curve, and `log_loss`, `log_loss_0.4s`
        and so on.
    """
    values: dict[str, np.ndarray] = {}
    for short, mean_name, cells in (("AP", "mAP", average_precision), ("ROC", "mROC", roc_auc)):
        values[mean_name] = nanmean(cells[..., SPEAKING], axis=(-2, -1))
        values[f"{mean_name}_all"] = nanmean(cells, axis=(-2, -1))
        for horizon, at in enumerate(HORIZON_NAMES):
            values[f"{mean_name}_{at}"] = nanmean(cells[..., horizon, SPEAKING], axis=-1)
        for class_index, name in enumerate(CLASS_NAMES):
            values[f"{short}_{name}"] = nanmean(cells[..., class_index], axis=-1)
            for horizon, at in enumerate(HORIZON_NAMES):
                values[f"{short}_{name}_{at}"] = cells[..., horizon, class_index]
    for name, rows in (
        ("balanced_accuracy", balanced_accuracy),
        ("log_loss", log_loss),
        ("brier", brier),
        ("ece", ece),
    ):
        values[name] = nanmean(rows, axis=-1)
        for horizon, at in enumerate(HORIZON_NAMES):
            values[f"{name}_{at}"] = rows[..., horizon]
    return values


def nanmean(values: np.ndarray, axis: int | tuple[int, ...]) -> np.ndarray:
    """The mean over the values that exist, NaN where none does."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "mean of empty slice"
        return np.nanmean(values, axis=axis)
