"""How much of each step is speech, in whole microseconds.

Turns are rounded to the microsecond once and everything after that is integer arithmetic, so a turn that ends on a
step's border never leaks into the next step, and the steps of a turn add up to the turn.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from swift_plugin.labels.turns import Turn
from swift_plugin.stream.spec import NUM_CLASSES, STEP_SECONDS

MICROSECONDS = 1_000_000
STEP_MICROSECONDS = round(STEP_SECONDS * MICROSECONDS)

Interval = tuple[float, float]


def covered_microseconds(intervals: Iterable[Interval], *, num_steps: int) -> np.ndarray:
    """How much of each step lies in the union of `intervals` (seconds).

    Returns:
        int64 [num_steps], 0 .. 200000.
    """
    starts, ends = _disjoint(intervals)
    borders = np.arange(num_steps + 1, dtype=np.int64) * STEP_MICROSECONDS
    if not len(starts):
        return np.zeros(num_steps, dtype=np.int64)
    begun = np.searchsorted(starts, borders, side="right")  # intervals that begin at or before a border
    total = np.concatenate([[0], np.cumsum(ends - starts)])
    running_on = np.maximum(ends[np.maximum(begun - 1, 0)] - borders, 0)  # of the last one begun, what is still to come
    return np.diff(total[begun] - np.where(begun > 0, running_on, 0))


def class_microseconds(turns: Iterable[Turn], *, num_steps: int, self_speaker: str) -> np.ndarray:
    """How long nobody, the wearer and at least one other person speak in each step.

    While two speak at once both count, so a row may add up to more than a step.

    Returns:
        int64 [num_steps, 3] in the order of the classes: nobody, self, other.
    """
    turns = list(turns)
    own = [(turn.start, turn.end) for turn in turns if turn.speaker == self_speaker]
    others = [(turn.start, turn.end) for turn in turns if turn.speaker != self_speaker]
    covered = np.empty((num_steps, NUM_CLASSES), dtype=np.int64)
    covered[:, 0] = STEP_MICROSECONDS - covered_microseconds(own + others, num_steps=num_steps)
    covered[:, 1] = covered_microseconds(own, num_steps=num_steps)
    covered[:, 2] = covered_microseconds(others, num_steps=num_steps)
    return covered


def class_seconds(turns: Iterable[Turn], *, num_steps: int, self_speaker: str) -> np.ndarray:
    """`class_microseconds` as float64 seconds."""
    return class_microseconds(turns, num_steps=num_steps, self_speaker=self_speaker) / MICROSECONDS


def steps_until(seconds: float) -> int:
    """How many steps reach up to `seconds`; a step that is only begun counts."""
    return -(-round(seconds * MICROSECONDS) // STEP_MICROSECONDS)


def _disjoint(intervals: Iterable[Interval]) -> tuple[np.ndarray, np.ndarray]:
    """Starts and ends of the union, in microseconds, in order and without overlap: two int64 [N]."""
    points = sorted((round(start * MICROSECONDS), round(end * MICROSECONDS)) for start, end in intervals)
    if not points:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    starts, ends = np.array(points, dtype=np.int64).T
    reached = np.maximum.accumulate(ends)
    opens = np.concatenate([[True], starts[1:] > reached[:-1]])  # begins after everything before has ended
    closes = np.concatenate([opens[1:], [True]])
    return starts[opens], reached[closes]
