"""Coverage of steps: tables by hand, and the durations that pyannote.core gives for the same turns."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from pyannote.core import Segment, Timeline

from swift_plugin.labels.coverage import (
    class_microseconds,
    class_seconds,
    covered_microseconds,
    steps_until,
)
from swift_plugin.labels.turns import Turn, merge_turns, speaker_seconds


def random_turns(seed: int, number: int = 200, length: float = 60.0) -> list[Turn]:
    """Turns of three speakers in milliseconds, overlapping freely, some on the borders of steps."""
    dice = random.Random(seed)
    turns = []
    for _ in range(number):
        start = dice.choice([dice.randrange(0, int(length * 1000)), 200 * dice.randrange(0, int(length * 5))]) / 1000
        length_of_turn = dice.choice([0.0, 0.2, 0.001, dice.randrange(1, 3000) / 1000])
        turns.append(Turn(start, start + length_of_turn, dice.choice("abc")))
    return turns


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        ([], [0, 0, 0, 0]),
        ([(0.0, 0.2)], [200_000, 0, 0, 0]),
        ([(0.1, 0.5)], [100_000, 200_000, 100_000, 0]),
        ([(0.25, 0.35)], [0, 100_000, 0, 0]),
        ([(0.05, 0.1), (0.15, 0.25)], [100_000, 50_000, 0, 0]),
        ([(0.0, 0.3), (0.1, 0.2), (0.25, 0.4)], [200_000, 200_000, 0, 0]),  # overlaps are counted once
        ([(0.2, 0.4), (0.4, 0.6)], [0, 200_000, 200_000, 0]),
        ([(0.3, 0.3)], [0, 0, 0, 0]),
        ([(0.7, 9.0)], [0, 0, 0, 100_000]),  # what lies after the last step is left out
        ([(5.0, 9.0)], [0, 0, 0, 0]),
        ([(0.0, 0.0000014)], [1, 0, 0, 0]),  # rounded to the microsecond
    ],
)
def test_steps_by_hand(intervals, expected):
    assert covered_microseconds(intervals, num_steps=4).tolist() == expected


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1_000, 123_457])
def test_a_turn_that_ends_on_a_border_does_not_leak(step):
    # 0.6 == 3 * 0.2 is false in floats, whichever way the turn's end was computed
    for end in (step * 0.2, step / 5, sum([0.2] * step) if step < 10 else step / 5):
        covered = covered_microseconds([(0.0, end)], num_steps=step + 2)
        assert covered[step - 1] == 200_000
        assert covered[step] == 0


def test_no_error_grows_over_ten_hours():
    turns = [(0.1 + 0.2 * i, 0.1 + 0.2 * i + 0.1) for i in range(180_000)]  # the second half of every step
    assert set(covered_microseconds(turns, num_steps=180_000).tolist()) == {100_000}


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_pyannote(seed):
    turns, num_steps = random_turns(seed), 330
    for column, speakers in ((1, "a"), (2, "bc")):
        timeline = Timeline(Segment(turn.start, turn.end) for turn in turns if turn.speaker in speakers)
        expected = [
            timeline.crop(Segment(0.2 * i, 0.2 * (i + 1)), mode="intersection").duration() for i in range(num_steps)
        ]
        measured = class_seconds(turns, num_steps=num_steps, self_speaker="a")[:, column]
        np.testing.assert_allclose(measured, expected, atol=2e-6)  # pyannote leaves out segments below 1e-6 s


@pytest.mark.parametrize("seed", range(20))
def test_coverage_is_conserved(seed):
    turns = random_turns(seed, number=40)
    covered = class_microseconds(turns, num_steps=400, self_speaker="a")
    nobody, own, other = covered.T

    def union(speakers: str) -> Fraction:
        """Length of the union, from the definition: every millisecond that some turn covers."""
        ticks = {
            tick
            for turn in turns
            if turn.speaker in speakers
            for tick in range(round(turn.start * 1000), round(turn.end * 1000))
        }
        return Fraction(len(ticks) * 1000)

    assert own.sum() == union("a")
    assert other.sum() == union("bc")
    assert 400 * 200_000 - nobody.sum() == union("abc")
    assert covered.min() >= 0 and covered.max() <= 200_000
    # both at once count twice, never more: |A| + |B| = |A or B| + |A and B|
    assert ((own + other + nobody >= 200_000) & (own + other + nobody <= 400_000)).all()


@pytest.mark.parametrize(
    ("seconds", "steps"), [(0.2, 1), (0.6, 3), (3 * 0.2, 3), (0.61, 4), (30.0, 150), (30.05, 151), (0.0000004, 0)]
)
def test_steps_until(seconds, steps):
    assert steps_until(seconds) == steps


def test_merge_joins_one_speaker_only():
    turns = [Turn(1.0, 2.0, "a"), Turn(1.5, 3.0, "b"), Turn(1.2, 1.4, "a"), Turn(2.0, 2.5, "a"), Turn(4.0, 4.0, "c")]
    assert merge_turns(turns) == [Turn(1.0, 2.5, "a"), Turn(1.5, 3.0, "b")]
    assert speaker_seconds(turns) == {"a": 1.5, "b": 1.5}
