"""Events of a conversation as yes-or-no questions to a forecast.

- `onset_self`, `onset_other`: asked at every anchor at which this side is silent: does it start within the two
  seconds? The score is the largest of its ten probabilities.
- `shift`: asked once at the end of a turn, at the first step in which nobody speaks after exactly one side spoke. Does
  the other side speak next (shift), or the same one again (hold)? Silences after which nobody speaks within two
  seconds, or both start in the same step, are left out. The score is the other side's part of the probability that
  anyone speaks, Σ_h p_h(other side) / Σ_h (p_h(self) + p_h(other)). "The same side" may be another person where the
  side is "other". After Ekstedt & Skantze 2022, https://arxiv.org/abs/2205.09812, section 3.
- `overlap`: asked at every anchor at which not both sides speak: do both speak at once within the two seconds? The
  score is the largest product of the two probabilities. Only multi-hot and soft targets can show overlap.

A side speaks in a step if it has at least half of the target. Anchors whose own step or whose answer is unknown are
left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.metrics import average_precision_score, precision_recall_curve, roc_auc_score

from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import Timeline, timelines
from swift_plugin.stream.spec import NUM_HORIZONS

NOBODY, SELF, OTHER = 0, 1, 2


@dataclass(frozen=True, kw_only=True)
class EventQuestion:
    """One kind of event.

    Attributes:
        rows: int64 [m], the anchors that are asked, as rows of the predictions.
        happens: bool [m].
        score: float64 [m].
    """

    rows: np.ndarray
    happens: np.ndarray
    score: np.ndarray

    def flat(self) -> dict[str, float]:
        """`asked`, `happened` and, where they exist, `AP` and `ROC`."""
        values = {"asked": float(len(self.rows)), "happened": float(self.happens.sum())}
        if self.happens.any():
            values["AP"] = float(average_precision_score(self.happens, self.score))
            if not self.happens.all():
                values["ROC"] = float(roc_auc_score(self.happens, self.score))
        return values

    def precision_recall(self) -> dict[str, np.ndarray]:
        """`precision`, `recall` and `threshold` [k], ascending in threshold; empty where nothing happens."""
        if not self.happens.any():
            return {name: np.empty(0) for name in ("precision", "recall", "threshold")}
        precision, recall, threshold = precision_recall_curve(self.happens, self.score)
        return {"precision": precision[:-1], "recall": recall[:-1], "threshold": threshold}


def event_questions(predictions: Predictions) -> dict[str, EventQuestion]:
    """All kinds of events, under the names of this module's text."""
    lines = timelines(predictions)
    now = np.zeros((len(predictions), 3), bool)  # who speaks in the anchor's own step
    now_known = np.zeros(len(predictions), bool)
    for line in lines:
        rows = line.anchor[line.anchors]
        now[rows], now_known[rows] = line.active[line.anchors], line.known[line.anchors]
    future = predictions.targets >= 0.5  # [N, 10, 3]
    future_known = predictions.known.all(axis=1)
    p = predictions.probabilities.astype(np.float64)

    def ask(silent: np.ndarray, then: np.ndarray, score: np.ndarray) -> EventQuestion:
        happens = then.any(axis=1)
        rows = np.flatnonzero(now_known & silent & (happens | future_known))
        return EventQuestion(rows=rows, happens=happens[rows], score=score[rows].max(axis=1))

    return {
        "onset_self": ask(~now[:, SELF], future[..., SELF], p[..., SELF]),
        "onset_other": ask(~now[:, OTHER], future[..., OTHER], p[..., OTHER]),
        "shift": _shifts(lines, p),
        "overlap": ask(
            ~(now[:, SELF] & now[:, OTHER]), future[..., SELF] & future[..., OTHER], p[..., SELF] * p[..., OTHER]
        ),
    }


def _shifts(lines: list[Timeline], p: np.ndarray) -> EventQuestion:
    rows, last_side, next_side = [], [], []
    for line in lines:
        active = line.active[:, [SELF, OTHER]]
        silent = line.known & ~active.any(axis=1)
        one_side = active.sum(axis=1) == 1
        for step in np.flatnonzero(silent[1:] & one_side[:-1] & (line.anchor[1:] >= 0)) + 1:
            following = slice(step + 1, step + 1 + NUM_HORIZONS)
            ended = ~silent[following]
            if not ended.any():
                continue
            resumed = step + 1 + int(ended.argmax())
            if one_side[resumed]:  # neither both at once nor an unknown step
                rows.append(line.anchor[step])
                last_side.append(OTHER if active[step - 1, 1] else SELF)
                next_side.append(OTHER if active[resumed, 1] else SELF)
    rows, last_side, next_side = (np.array(values, np.int64) for values in (rows, last_side, next_side))
    sums = p[rows].sum(axis=1)  # [m, 3]
    speaking = sums[:, SELF] + sums[:, OTHER]
    changed = sums[np.arange(len(rows)), SELF + OTHER - last_side]
    score = np.divide(changed, speaking, out=np.full(len(rows), 0.5), where=speaking > 0)
    return EventQuestion(rows=rows, happens=next_side != last_side, score=score)
