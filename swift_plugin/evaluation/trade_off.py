"""What a product lives by: how often it would start too early, against how long it would let people wait.

Imagine a device that starts to speak in the wearer's place at the first anchor whose p(self) at one horizon reaches a
threshold. It is judged in every *stretch*: the steps from where others begin to speak to where they begin again or the
wearer starts, in which the wearer is silent.

- A stretch that ends with the wearer's start at step b is a *turn* to take. The floor is free from step e, the first
  after the others' last; where they still speak at b-1, e is b. A start at step s with e <= s <= b is right and its
  delay is 0.2 (s - e) seconds. A start before e is false. No start by b is a miss.
- A stretch that ends because others speak again is a *hold*: any start is false, also one in the same step as theirs.

The anchors that are asked are those at the steps of the stretch; the one at step i can start at step i + 1. Each
stretch sees one start at most. After Raux & Eskenazi 2009
(https://aclanthology.org/N09-1071), who plot the share of cut-ins against latency. A stretch with an unknown step or
without an anchor at each step is left out.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from swift_plugin.evaluation.events import OTHER, SELF
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import Timeline, timelines
from swift_plugin.stream.spec import STEP_SECONDS

NUM_THRESHOLDS = 200


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """One point for each threshold, all arrays [K].

    Attributes:
        thresholds: ascending.
        false_share: false starts / stretches; falls as the threshold rises.
        taken_share: right starts / turns.
        median_delay: seconds, over the right starts; NaN where there is none.
        median_delay_of_all: seconds, over all turns, a miss being infinite; the lower median.
        stretches, turns: how many were judged.
    """

    thresholds: np.ndarray
    false_share: np.ndarray
    taken_share: np.ndarray
    median_delay: np.ndarray
    median_delay_of_all: np.ndarray
    stretches: int
    turns: int

    def point(self, false_share: float) -> int | None:
        """The index of the lowest threshold with at most this share of false starts."""
        fits = self.false_share <= false_share
        return int(fits.argmax()) if fits.any() else None


@dataclass(frozen=True)
class _Stretch:
    """The anchors' rows of one stretch: those whose start would be false, then those whose start would be right."""

    early: np.ndarray
    right: np.ndarray


def trade_off(predictions: Predictions, *, horizon: int = 0, thresholds: np.ndarray | None = None) -> TradeOff:
    """Let the device run at each threshold.

    Args:
        horizon: which p(self) starts it, 0 (in the next step) .. 9.
        thresholds: float [K], ascending; by default at most 200 of the scores that occur, and one above them.
    """
    score = predictions.probabilities[:, horizon, SELF].astype(np.float64)
    stretches = [stretch for line in timelines(predictions) for stretch in _stretches(line)]
    if thresholds is None:
        thresholds = _quantiles(score, stretches)
    false_starts = np.zeros(len(thresholds))
    delays = []  # of each turn, [K]
    for stretch in stretches:
        falls = score[stretch.early].max(initial=-np.inf) >= thresholds
        false_starts += falls
        if stretch.right.size:
            reached = np.maximum.accumulate(score[stretch.right])
            first = np.searchsorted(reached, thresholds)  # of the anchors, the first that reaches the threshold
            delays.append(np.where(falls | (first == len(reached)), np.inf, first * STEP_SECONDS))
    turns = np.array(delays).reshape(-1, len(thresholds))
    nothing = np.full(len(thresholds), np.nan)
    return TradeOff(
        thresholds=thresholds,
        false_share=false_starts / len(stretches) if stretches else nothing,
        taken_share=np.isfinite(turns).mean(axis=0) if len(turns) else nothing,
        median_delay=_median_of_taken(turns) if len(turns) else nothing,
        median_delay_of_all=np.sort(turns, axis=0)[(len(turns) - 1) // 2] if len(turns) else nothing,
        stretches=len(stretches),
        turns=len(turns),
    )


def _quantiles(score: np.ndarray, stretches: list[_Stretch]) -> np.ndarray:
    rows = [rows for stretch in stretches for rows in (stretch.early, stretch.right)]
    scores = np.unique(score[np.concatenate(rows)]) if rows else np.zeros(1)  # each once, so that rare ones are kept
    inside = np.unique(np.quantile(scores, np.linspace(0, 1, NUM_THRESHOLDS), method="lower"))
    return np.append(inside, np.nextafter(scores[-1], np.inf))


def _stretches(line: Timeline) -> list[_Stretch]:
    other, wearer, known = line.active[:, OTHER], line.active[:, SELF], line.known
    talks = other & ~wearer  # others have the floor
    begins = np.flatnonzero(talks[1:] & ~talks[:-1] & known[:-1]) + 1
    # where a stretch can end: the wearer starts, others begin again, or the truth is unknown
    stops = np.flatnonzero(wearer[1:] | ~known[1:] | (other[1:] & ~other[:-1])) + 1
    last_talk = np.maximum.accumulate(np.where(other, np.arange(len(other)), -1))
    stretches = []
    for begin in begins:
        next_stop = np.searchsorted(stops, begin, side="right")
        if next_stop == len(stops) or not known[end := int(stops[next_stop])]:
            continue
        rows = line.anchor[begin:end]  # rows[k] can start at step begin + 1 + k, the last one at `end`
        if (rows < 0).any():
            continue
        free = int(last_talk[end - 1]) + 1 if wearer[end] else end + 1
        stretches.append(_Stretch(early=rows[: free - begin - 1], right=rows[free - begin - 1 :]))
    return stretches


def _median_of_taken(delays: np.ndarray) -> np.ndarray:
    """[K] of [turns, K], over the finite delays; NaN where there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # "All-NaN slice"
        return np.nanmedian(np.where(np.isfinite(delays), delays, np.nan), axis=0)
