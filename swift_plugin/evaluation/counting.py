"""Which rows and labels count, and what each row adds to a mean.

Targets are one-hot, multi-hot or soft. A row with NaN is unknown and counts nowhere.

- One class against the rest (average precision, ROC AUC, events): a row is positive for a class whose target is at
  least 0.5. That is the 1 of one-hot and multi-hot rows and at least half of a step in soft ones; where two classes
  have half each, the row is positive for both.
- One class a row (balanced accuracy, confusion, calibration error): the class with the largest target, the first of
  equals in the order nobody, self, other.
- Log loss and Brier score: the target itself, divided by its sum, since both scores are proper for soft labels. On
  one-hot targets they are scikit-learn's `log_loss` and multi-class `brier_score_loss`, which take no soft labels.
"""

from __future__ import annotations

import numpy as np

from swift_plugin.stream.spec import NUM_CLASSES

POSITIVE_SHARE = 0.5
SMALLEST_PROBABILITY = float(np.finfo(np.float32).eps)  # log loss clips here, as scikit-learn does for float32
CALIBRATION_BINS = 15  # Guo et al. 2017, section 5


def known_rows(targets: np.ndarray) -> np.ndarray:
    """bool [...] of targets [..., 3]: rows without NaN."""
    return ~np.isnan(targets).any(axis=-1)


def positives(targets: np.ndarray) -> np.ndarray:
    """bool [..., 3]: the classes that are there; none in unknown rows."""
    return targets >= POSITIVE_SHARE  # false for NaN


def labels(targets: np.ndarray) -> np.ndarray:
    """int [...]: the class with the largest target; 0 in unknown rows, which the caller leaves out."""
    return np.where(np.isnan(targets), 0, targets).argmax(axis=-1)


def log_loss_terms(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """-Σ_c y_c log p_c of each row, float64 [...]; NaN in unknown rows."""
    logs = np.log(np.clip(probabilities.astype(np.float64), SMALLEST_PROBABILITY, 1))
    return -(_distribution(targets) * logs).sum(axis=-1)


def brier_terms(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Σ_c (p_c - y_c)² of each row, 0..2, float64 [...]; NaN in unknown rows."""
    return np.square(probabilities.astype(np.float64) - _distribution(targets)).sum(axis=-1)


def confusion_cell(probabilities: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """int [...]: 3 · class of the target + most likely class."""
    return labels(targets) * NUM_CLASSES + probabilities.argmax(axis=-1)


def calibration_terms(probabilities: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Bin, probability and correctness of the most likely class of each row; three arrays [...].

    Bin b of 15 holds the probabilities in [b/15, (b+1)/15), the last one 1 as well.
    """
    confidence = probabilities.max(axis=-1).astype(np.float64)
    bins = np.minimum((confidence * CALIBRATION_BINS).astype(np.int64), CALIBRATION_BINS - 1)
    return bins, confidence, probabilities.argmax(axis=-1) == labels(targets)


def _distribution(targets: np.ndarray) -> np.ndarray:
    targets = targets.astype(np.float64)
    return targets / targets.sum(axis=-1, keepdims=True)
