"""The label rule: from turns to targets [T, 3]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.labels.coverage import STEP_MICROSECONDS, Interval, class_microseconds, covered_microseconds
from swift_plugin.labels.turns import Turn

Overlap = Literal["priority", "multi", "soft"]
DEFAULT_SPEECH_SHARE = 0.5


@dataclass(frozen=True, kw_only=True)
class LabelRule:
    """How a step gets its target.

    Args:
        speech_share: the wearer (or the others together) speaks in a step if at least this share of it is covered;
            exactly this share is enough (>=). In (0, 1]. Each side is judged by itself: 40 % self and then 40 % other
            is nobody at 0.5.
        overlap: what a step is in which both sides speak. `priority`: self, one-hot; `multi`: both, multi-hot;
            `soft`: the times of nobody, self and other in the step, divided by their sum, whatever they are. `soft`
            cuts nothing off, so it takes no `speech_share` but the default.

    Raises:
        InputError: a value outside its range, or a `speech_share` that `soft` would not use.
    """

    speech_share: float = DEFAULT_SPEECH_SHARE
    overlap: Overlap = "priority"

    def __post_init__(self) -> None:
        if not 0 < self.speech_share <= 1:
            raise InputError(f"speech_share={self.speech_share} is not in (0, 1]; use for example 0.5")
        if self.overlap not in get_args(Overlap):
            raise InputError(f"overlap={self.overlap!r} is not one of {', '.join(get_args(Overlap))}")
        if self.overlap == "soft" and self.speech_share != DEFAULT_SPEECH_SHARE:
            raise InputError(f"speech_share={self.speech_share} has no meaning with overlap='soft'; leave it out")


def turns_to_targets(
    turns: Iterable[Turn],
    *,
    num_steps: int,
    self_speaker: str,
    rule: LabelRule,
    known: Iterable[Interval] | None = None,
) -> np.ndarray:
    """Targets of the first `num_steps` steps of a session.

    Args:
        turns: who speaks; what lies after the last step is left out.
        self_speaker: the wearer; everybody else is other.
        known: the seconds that are annotated, as (start, end); a step that is not fully within them, adjacent ones
            taken together, is unknown. `None`: everything is annotated, and time without a turn is silence.

    Returns:
        float32 [num_steps, 3]: nobody, self, other. Unknown steps are rows of NaN.
    """
    spoken = class_microseconds(turns, num_steps=num_steps, self_speaker=self_speaker)  # [T, 3]
    targets = _soft(spoken) if rule.overlap == "soft" else _hot(spoken, rule)
    if known is not None:
        targets[covered_microseconds(known, num_steps=num_steps) < STEP_MICROSECONDS] = np.nan
    return targets


def _soft(spoken: np.ndarray) -> np.ndarray:
    return (spoken / spoken.sum(axis=1, keepdims=True)).astype(np.float32)


def _hot(spoken: np.ndarray, rule: LabelRule) -> np.ndarray:
    # As a fraction of the decimal that the user wrote: 0.3 of a step is 60000 microseconds, not one more.
    threshold = Fraction(str(rule.speech_share)) * STEP_MICROSECONDS
    speaks = spoken[:, 1:] >= -(-threshold.numerator // threshold.denominator)  # [T, 2]: self, other
    if rule.overlap == "priority":
        speaks[:, 1] &= ~speaks[:, 0]
    nobody = ~speaks.any(axis=1, keepdims=True)
    return np.concatenate([nobody, speaks], axis=1).astype(np.float32)
