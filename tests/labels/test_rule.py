"""The label rule: tables by hand."""

from __future__ import annotations

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.labels.rule import LabelRule, turns_to_targets
from swift_plugin.labels.turns import Turn

NOBODY, SELF, OTHER = [1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]


def targets(turns, num_steps=1, known=None, **rule):
    turns = [Turn(*turn) for turn in turns]
    return turns_to_targets(turns, num_steps=num_steps, self_speaker="me", rule=LabelRule(**rule), known=known)


@pytest.mark.parametrize(
    ("turns", "priority", "multi", "soft"),
    [
        ([], NOBODY, NOBODY, NOBODY),
        ([(0.0, 0.2, "me")], SELF, SELF, SELF),
        ([(0.0, 0.2, "you")], OTHER, OTHER, OTHER),
        ([(0.0, 0.1, "me")], SELF, SELF, [0.5, 0.5, 0]),  # exactly half is speech
        ([(0.0, 0.099, "me")], NOBODY, NOBODY, [0.505, 0.495, 0]),
        ([(0.0, 0.2, "me"), (0.0, 0.2, "you")], SELF, [0, 1, 1], [0, 0.5, 0.5]),
        ([(0.0, 0.1, "me"), (0.05, 0.2, "you")], SELF, [0, 1, 1], [0, 0.4, 0.6]),
        ([(0.0, 0.05, "me"), (0.05, 0.2, "you")], OTHER, OTHER, [0, 0.25, 0.75]),
        # two other people: the union of them counts, 0.05 and 0.05 make half a step
        ([(0.0, 0.05, "you"), (0.05, 0.1, "she")], OTHER, OTHER, [0.5, 0, 0.5]),
        ([(0.0, 0.08, "you"), (0.0, 0.08, "she")], NOBODY, NOBODY, [0.6, 0, 0.4]),
        # each side is judged by itself
        ([(0.0, 0.08, "me"), (0.08, 0.16, "you")], NOBODY, NOBODY, [0.2, 0.4, 0.4]),
    ],
)
def test_one_step(turns, priority, multi, soft):
    np.testing.assert_array_equal(targets(turns, overlap="priority"), [priority])
    np.testing.assert_array_equal(targets(turns, overlap="multi"), [multi])
    np.testing.assert_allclose(targets(turns, overlap="soft"), [soft], rtol=1e-6)


def test_result_is_float32_rows():
    for overlap in ("priority", "multi", "soft"):
        result = targets([(0.3, 0.9, "me")], num_steps=7, overlap=overlap)
        assert result.dtype == np.float32 and result.shape == (7, 3)


@pytest.mark.parametrize(("share", "seconds"), [(0.3, 0.06), (0.35, 0.07), (0.7, 0.14), (1.0, 0.2), (0.1, 0.02)])
def test_exactly_the_share_is_enough(share, seconds):
    assert targets([(0.0, seconds, "me")], speech_share=share).tolist() == [SELF]
    assert targets([(0.0, seconds - 1e-6, "me")], speech_share=share).tolist() == [NOBODY]


def test_majority_is_not_the_centre_of_the_step():
    # A rule that looks at the centre, 0.1 s, would call the first step speech and the second silence.
    turns = [(0.09, 0.12, "me"), (0.2, 0.299, "me"), (0.301, 0.399, "me")]
    assert targets(turns, num_steps=2).tolist() == [NOBODY, SELF]


def test_steps_not_fully_known_are_nan():
    result = targets([(0.0, 1.2, "me")], num_steps=6, known=[(0.0, 0.5), (0.6, 0.7), (0.7, 0.8), (1.0, 9.0)])
    unknown = [False, False, True, False, True, False]  # [0.4, 0.6) is cut, [0.8, 1.0) is in the gap
    assert np.isnan(result).all(axis=1).tolist() == unknown
    assert not np.isnan(result[~np.array(unknown)]).any()


def test_nothing_known():
    assert np.isnan(targets([(0.0, 1.0, "me")], num_steps=5, known=[])).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speech_share": 0.0}, r"speech_share=0.0 is not in \(0, 1\]; use for example 0.5"),
        ({"speech_share": 1.1}, r"speech_share=1.1 is not in"),
        ({"speech_share": float("nan")}, r"speech_share=nan is not in"),
        ({"overlap": "both"}, r"overlap='both' is not one of priority, multi, soft"),
        ({"overlap": "soft", "speech_share": 0.7}, r"speech_share=0.7 has no meaning with overlap='soft'; leave it"),
    ],
)
def test_bad_rules(options, message):
    with pytest.raises(InputError, match=message):
        LabelRule(**options)


@pytest.mark.parametrize(
    ("turn", "message"),
    [
        ((2.0, 1.0, "a"), "end=1.0 is before start=2.0"),
        ((-1.0, 1.0, "a"), "start=-1.0 is negative"),
        ((0.0, float("inf"), "a"), "not both finite"),
        ((0.0, 1.0, ""), "the speaker is empty"),
    ],
)
def test_bad_turns(turn, message):
    with pytest.raises(InputError, match=message):
        Turn(*turn)
