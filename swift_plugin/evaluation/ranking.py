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
        self._unit, self._count = unit[first_row], count.astype(np.int32)
        self._with_hits = np.flatnonzero(hits)
        self._hits = hits[self._with_hits].astype(np.int32)
        # Only thresholds that hold a positive add to either sum.
        used = np.unique(threshold[positive])
        self._starts = np.searchsorted(key // num_units, used, side="left")
        self._ends = np.searchsorted(key // num_units, used, side="right")
        self._first = np.searchsorted(self._with_hits, self._starts)
        self._last = np.searchsorted(self._with_hits, self._ends)

    def resample(self, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """
        Args:
            weights: int [R, U], how often each resample draws each unit; less than 2**30 rows in all.

        Returns:
            average precision and ROC AUC, float64 [R] each; NaN where a resample has no positive, or for ROC AUC no
            negative.
        """
        results = np.full((2, len(weights)), np.nan)
        weights = weights.astype(np.int32)
        # Arrays that each resample fills anew: with fresh ones, or wider ones, the loop takes nearly twice as long.
        weight, rows = (np.zeros(len(self._unit) + extra, np.int32) for extra in (0, 1))
        hit_weight, hits = (np.zeros(len(self._hits) + extra, np.int32) for extra in (0, 1))
        rows_to, rows_before, hits_to, hits_before = np.empty((4, len(self._ends)), np.int32)
        new_hits, factor, divisor = np.empty((3, len(self._ends)))
        for number, unit_weight in enumerate(weights):
            np.take(unit_weight, self._unit, out=weight, mode="clip")  # "raise", the default, copies `out`
            np.take(weight, self._with_hits, out=hit_weight, mode="clip")
            np.cumsum(np.multiply(weight, self._count, out=weight), out=rows[1:])
            np.cumsum(np.multiply(hit_weight, self._hits, out=hit_weight), out=hits[1:])
            total, negatives = float(hits[-1]), float(rows[-1] - hits[-1])
            if total == 0:
                continue
            np.take(rows, self._ends, out=rows_to, mode="clip")
            np.take(rows, self._starts, out=rows_before, mode="clip")
            np.take(hits, self._last, out=hits_to, mode="clip")
            np.take(hits, self._first, out=hits_before, mode="clip")
            np.subtract(hits_to, hits_before, out=new_hits)

            np.copyto(factor, hits_to)
            np.copyto(divisor, rows_to)
            np.maximum(divisor, 1, out=divisor)  # no rows, no hits
            results[0, number] = _dot(new_hits, np.divide(factor, divisor, out=factor)) / total

            # A positive is ranked under the negatives before its threshold, and half under those at it: with the
            # negatives up to it, twice under are (rows_before - hits_before) + (rows_to - hits_to).
            rows_to += rows_before
            rows_to -= hits_before
            rows_to -= hits_to
            np.copyto(factor, rows_to)
            if negatives:
                results[1, number] = 1 - _dot(new_hits, factor) / (2 * total * negatives)
        return results[0], results[1]


def _dot(left: np.ndarray, right: np.ndarray) -> float:
    """Without BLAS, whose threads would fight with those of the caller."""
    return float(np.einsum("i,i->", left, right))
