"""Events and the trade-off on conversations that fit on a line."""

from __future__ import annotations

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.evaluation.events import event_questions
from swift_plugin.evaluation.timeline import timelines
from swift_plugin.evaluation.trade_off import trade_off


def test_the_time_line_is_put_together_again(predictions_of, targets_of):
    steps = "--ss-oob?-o"
    line = timelines(predictions_of(steps))[0]
    np.testing.assert_array_equal(line.targets[1 : len(steps)], targets_of(steps)[1:])
    assert not line.known[0]  # no anchor predicts the first step
    assert line.anchor[: len(steps)].tolist() == list(range(len(steps)))


def test_two_anchors_that_disagree_are_refused(predictions_of):
    predictions = predictions_of("ooooooooooooooo")
    predictions.targets[2, 3] = [1, 0, 0]
    with pytest.raises(InputError, match="step 6 of session 'session 0' has different targets"):
        timelines(predictions)


def test_onsets(predictions_of):
    #        01234567890123456789012345
    steps = "---o--ss--" + "-" * 16
    questions = event_questions(predictions_of(steps))
    onset_self = dict(zip(questions["onset_self"].rows.tolist(), questions["onset_self"].happens.tolist()))
    # step 0 is not known from any anchor; 6 and 7 are self; from 16 on the ten future steps are not all known
    assert onset_self == {i: i < 6 for i in (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15)}
    onset_other = dict(zip(questions["onset_other"].rows.tolist(), questions["onset_other"].happens.tolist()))
    assert onset_other == {i: i < 3 for i in range(1, 16) if i != 3}


def test_the_score_of_an_onset_is_its_largest_probability(predictions_of):
    predictions = predictions_of("-" * 12)
    predictions.probabilities[1, 7] = [0.1, 0.6, 0.3]
    question = event_questions(predictions)["onset_self"]
    assert question.rows.tolist() == [1]
    assert question.score[0] == pytest.approx(0.6, abs=1e-7)


def test_shift_and_hold(predictions_of):
    #        0         1         2         3         4
    #        0123456789012345678901234567890123456789012345
    steps = "-ss-ss--o-o--s" + "----------o-b---oo-?"
    question = event_questions(predictions_of(steps))["shift"]
    # 3 hold (self again), 6 shift to other, 9 hold (other again), 11 shift to self,
    # 14: other speaks at 24, the tenth step after it, so shift; 25: both at once; 27: both before; 34: unknown
    assert question.rows.tolist() == [3, 6, 9, 11, 14]
    assert question.happens.tolist() == [False, True, False, True, True]


def test_the_score_of_a_shift_is_the_other_sides_part(predictions_of):
    predictions = predictions_of("-ss-" + "o" * 12)
    predictions.probabilities[3] = [0.2, 0.6, 0.2]
    question = event_questions(predictions)["shift"]
    assert question.score.tolist() == pytest.approx([0.25], abs=1e-6)


def test_overlap(predictions_of):
    steps = "--s-obb-" + "-" * 12
    question = event_questions(predictions_of(steps))["overlap"]
    assert dict(zip(question.rows.tolist(), question.happens.tolist())) == {i: i < 5 for i in (1, 2, 3, 4, 7, 8, 9)}
    predictions = predictions_of(steps.replace("b", "o"))
    assert event_questions(predictions)["overlap"].flat() == {"asked": 9.0, "happened": 0.0}


def test_precision_and_recall_over_a_threshold(predictions_of):
    scores = [0.0, 0.9, 0.8, 0.1, 0.5] + [0.0] * 20
    question = event_questions(predictions_of("-----" + "s" * 20, p_self=[scores]))["onset_self"]
    assert question.rows.tolist() == [1, 2, 3, 4] and question.happens.all()
    curve = question.precision_recall()
    assert curve["threshold"].tolist() == pytest.approx([0.1, 0.5, 0.8, 0.9])
    assert curve["recall"].tolist() == [1, 0.75, 0.5, 0.25]
    assert question.flat()["AP"] == 1 and "ROC" not in question.flat()


#           01234567890123456789012
STRETCHES = "--oo-o---ss-oos-oo?-o--"
# [2, 5) ends because others begin again at 5: a hold
# [5, 9) is a turn that is free from step 6, taken by the wearer at 9
# [12, 14) is a turn without silence, free at 14 only
# [16, 18) and [20, 23) end in the unknown, or with the session


@pytest.fixture
def run_device(predictions_of):
    def run(scores: dict[int, float]):
        p_self = [scores.get(step, 0.0) for step in range(len(STRETCHES))]
        return trade_off(predictions_of(STRETCHES, p_self=[p_self]), thresholds=np.array([0.5]))

    return run


@pytest.mark.parametrize(
    ("scores", "false", "taken", "delay"),
    [
        ({}, 0, 0, np.nan),
        ({7: 0.9}, 0, 1, 0.4),  # starts at 8, free from 6
        ({5: 0.9}, 0, 1, 0.0),
        ({8: 0.9}, 0, 1, 0.6),  # starts with the wearer
        ({6: 0.9, 8: 0.9}, 0, 1, 0.2),  # the first start counts
        ({3: 0.9}, 1, 0, np.nan),  # into a hold
        ({4: 0.9}, 1, 0, np.nan),  # together with others who go on
        ({12: 0.9}, 1, 0, np.nan),  # one step too early
        ({12: 0.9, 13: 0.9}, 1, 0, np.nan),  # and it cannot start twice
        ({13: 0.9}, 0, 1, 0.0),
        ({7: 0.9, 13: 0.9}, 0, 2, 0.2),
        ({1: 0.9, 9: 0.9, 10: 0.9, 14: 0.9, 16: 0.9, 20: 0.9}, 0, 0, np.nan),  # outside of every stretch
    ],
)
def test_a_device_that_starts(run_device, scores, false, taken, delay):
    curve = run_device(scores)
    assert (curve.stretches, curve.turns) == (3, 2)
    assert curve.false_share[0] == pytest.approx(false / 3)
    assert curve.taken_share[0] == pytest.approx(taken / 2)
    np.testing.assert_allclose(curve.median_delay[0], delay, atol=1e-12)


def test_a_miss_is_an_infinite_delay(run_device):
    assert run_device({7: 0.9}).median_delay_of_all[0] == pytest.approx(0.4)  # lower median of 0.4 and infinity
    assert run_device({}).median_delay_of_all[0] == np.inf


def test_the_curve_runs_from_always_to_never(predictions_of):
    random = np.random.default_rng(0)
    steps = "".join(random.choice(list("-so"), 3000).repeat(random.integers(1, 9, 3000)))
    curve = trade_off(predictions_of(steps, p_self=[random.random(len(steps)).tolist()]))
    assert curve.false_share[0] == 1 or curve.thresholds[0] > 0
    assert curve.false_share[-1] == 0 and curve.taken_share[-1] == 0
    assert (np.diff(curve.false_share) <= 0).all() and len(curve.thresholds) == 201
    point = curve.point(0.1)
    assert curve.false_share[point] <= 0.1 < curve.false_share[point - 1]
