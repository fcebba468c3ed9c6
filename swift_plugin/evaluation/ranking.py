"""Average precision and ROC AUC under many integer weights: sort once, then two running sums a resample."""

from __future__ import annotations

import numpy as np


class Ranking:
    """One yes-or-no question, asked of n rows that lie in U units.

    A resample that draws unit u w_u times counts each of its rows w_u times. The results are those of scikit-learn's
    `average_precision_score` and `roc_auc_score` with `sample_weight`, equal scores being one threshold.

    Args:
        positive: bool [n].
        score: float [n], without NaN.
        unit: int [n], the unit of each row.
    """

    def __init__(self, positive: np.ndarray, score: np.ndarray, unit: np.ndarray) -> None:
        _, threshold = np.unique(-score, return_inverse=True)  # 0 is the highest score
        # Rows of one threshold and one unit always count together: few, where scores are tied.
        num_units = int(unit.max(initial=0)) + 1
        key, first_row, piece, count = np.unique(
            threshold * num_units + unit, return_index=True, return_inverse=True, return_counts=True
        )
        hits = np.bincount(piece[positive], minlength=len(key))
        self._unit, self._count = unit[first_row], count
        self._with_hits = np.flatnonzero(hits)
        self._hits = hits[self._with_hits]
        # Only thresholds that hold a positive add to either sum.
        used = np.unique(threshold[positive])
        self._starts = np.searchsorted(key // num_units, used, side="left")
        self._ends = np.searchsorted(key // num_units, used, side="right")
        self._first = np.searchsorted(self._with_hits, self._starts)
        self._last = np.searchsorted(self._with_hits, self._ends)

    def resample(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Args:
            weights: int64 [R, U], how often each resample draws each unit.

        Returns:
            average precision and ROC AUC, float64 [R] each; NaN where a resample has no positive, or for ROC AUC no
            negative.
        """
        results = np.full((2, len(weights)), np.nan)
        weight = np.empty(len(self._unit), np.int64)  # filled anew by each resample: fresh pages would cost more
        hit_weight = np.empty(len(self._hits), np.int64)
        rows = np.zeros(len(weight) + 1, np.int64)
        hits = np.zeros(len(hit_weight) + 1, np.int64)
        for number, unit_weight in enumerate(weights):
            np.take(unit_weight, self._unit, out=weight, mode="clip")  # "raise", the default, copies `out`
            np.take(weight, self._with_hits, out=hit_weight, mode="clip")
            np.cumsum(np.multiply(weight, self._count, out=weight), out=rows[1:])
            np.cumsum(np.multiply(hit_weight, self._hits, out=hit_weight), out=hits[1:])
            total, negatives = hits[-1], rows[-1] - hits[-1]
            if total == 0:
                continue
            rows_to, hits_to, hits_before = rows.take(self._ends), hits.take(self._last), hits.take(self._first)
            new_hits = hits_to - hits_before
            precision = hits_to / np.maximum(rows_to, 1)  # no rows, no hits
            results[0, number] = _dot(new_hits, precision) / total
            if negatives:
                misses_before, misses_to = rows.take(self._starts) - hits_before, rows_to - hits_to
                # A positive is ranked under the negatives before its threshold, and half under those at it.
                twice_under = _dot(new_hits, misses_before + misses_to)
                results[1, number] = 1 - float(twice_under) / (2 * float(total) * float(negatives))
        return results[0], results[1]


def _dot(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Without BLAS, whose threads would fight with those of the caller."""
    return np.einsum("i,i->", left, right)
