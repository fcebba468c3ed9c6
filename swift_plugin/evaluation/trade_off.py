"""What a product lives by: how often it would start too early, against how long it would let people wait.

Imagine a device that starts to speak in the wearer's place at the first anchor whose p(self) at one horizon reaches a
threshold. It is judged in every *stretch*: the steps from where others begin to speak to where they begin again or the
wearer starts, in which the wearer is silent.

- A stretch that ends with the wearer's start at step b is a *turn* to take. The floor is free from step e, the first
  after the others' last; where they still speak at b-1, e is b. A start at step s with e <= s <= b is right and its
  delay is 0.2 (s - e) seconds. A start before e is false. No start by b is a miss, and counts as an infinite delay.
- A stretch that ends because others speak again is a *hold*: any start is false.

An anchor at step i can start at step i + 1. Each stretch sees one start at most. After Raux & Eskenazi 2009
(https://aclanthology.org/N09-1071), who plot the share of cut-ins against latency. A stretch with an unknown step or
without an anchor at each step is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swift_plugin.evaluation.events import OTHER, SELF
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import Timeline, timelines
from swift_plugin.stream.spec import STEP_SECONDS

THRESHOLDS = np.linspace(0.0, 1.0, 201)


@dataclass(frozen=True, kw_only=True)
class TradeOff:
    """One point for each threshold, all arrays [K].

    Attributes:
        thresholds: ascending.
        false_share: false starts / stretches; falls as the threshold rises.
        median_delay: seconds over all turns (the lower median), infinite where the device misses more than half of them.
        taken_share: right starts / turns.
        stretches, turns: how many were judged.
    """

    thresholds: np.ndarray
    false_share: np.ndarray
    median_delay: np.ndarray
    taken_share: np.ndarray
    stretches: int
    turns: int

    def delay_at(self, false_share: float) -> float:
        """The shortest median delay, in seconds, of the thresholds with at most this share of false starts."""
        return float(self.median_delay[self.false_share <= false_share].min(initial=np.inf))


@dataclass(frozen=True)
class _Stretch:
    """The anchors' rows of one stretch: those whose start would be false, then those whose start would be right."""

    early: np.ndarray
    right: np.ndarray


def trade_off(predictions: Predictions, *, horizon: int = 0, thresholds: np.ndarray = THRESHOLDS) -> TradeOff:
    """Let the device run at each threshold.

    Args:
        horizon: which p(self) starts it, 0 (in the next step) .. 9.
        thresholds: float [K], ascending.
    """
    score = predictions.probabilities[:, horizon, SELF].astype(np.float64)
    stretches = [stretch for line in timelines(predictions) for stretch in _stretches(line)]
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
        median_delay=_median(turns) if len(turns) else nothing,
        taken_share=np.isfinite(turns).mean(axis=0) if len(turns) else nothing,
        stretches=len(stretches),
        turns=len(turns),
    )


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
        rows = line.anchor[begin - 1 : end]  # rows[k] could start at step begin + k, the last one at `end`
        if (rows < 0).any():
            continue
        first = 1 if wearer[begin - 1] else 0  # while the wearer speaks, there is nothing to start
        free = int(last_talk[end - 1]) + 1 if wearer[end] else end  # a start at the end of a hold is the next stretch's
        right = rows[free - begin :] if wearer[end] else rows[:0]
        stretches.append(_Stretch(early=rows[first : free - begin], right=right))
    return stretches


def _median(delays: np.ndarray) -> np.ndarray:
    """The lower median of [turns, K]: the mean of a finite and an infinite delay would be no delay."""
    return np.sort(delays, axis=0)[(len(delays) - 1) // 2]
