"""Baselines on chains whose answer is known, and that none of them sees the future."""

from __future__ import annotations

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.evaluation.baselines import (
    ClassPrior,
    MarkovChain,
    Persistence,
    SilenceRule,
    fit_baselines,
    predict_baseline,
)
from swift_plugin.evaluation.history_regression import HistoryRegression, history_features
from swift_plugin.evaluation.metrics import turn_metrics

KINDS = [ClassPrior, Persistence, SilenceRule, MarkovChain, HistoryRegression]


def conversation(seed: int, length: int = 600) -> str:
    random = np.random.default_rng(seed)
    pieces = zip(random.choice(list("-so?"), length, p=[0.4, 0.25, 0.33, 0.02]), random.integers(1, 12, length))
    return "".join(letter * int(count) for letter, count in pieces)[:length]


def test_class_prior(targets_of):
    # 3 nobody, 1 self, 1 other, and one seen case of each; ? does not count
    prior = ClassPrior([targets_of("--s"), targets_of("?o-")]).predict(targets_of("sss"), np.array([0, 2]))
    assert prior.shape == (2, 10, 3)
    np.testing.assert_allclose(prior, np.broadcast_to([4 / 8, 2 / 8, 2 / 8], (2, 10, 3)))


def test_persistence(targets_of):
    # at 0.2 s: 4 pairs of which 2 keep their class; with one of each, (2 + 1) / (4 + 2)
    fitted = Persistence([targets_of("--soo")])
    at_self = fitted.predict(targets_of("-s"), np.array([1]))[0, 0]
    # the prior, counts 3 2 3 of 8: what is not self goes to nobody and other as 3 to 3
    np.testing.assert_allclose(at_self, [0.25, 0.5, 0.25])
    at_nobody = fitted.predict(targets_of("-s"), np.array([0]))[0, 0]
    np.testing.assert_allclose(at_nobody, [0.5, 0.5 * 2 / 5, 0.5 * 3 / 5])
    # at 0.4 s: 3 pairs (-s, -o, so), none kept
    np.testing.assert_allclose(fitted.predict(targets_of("s"), np.array([0]))[0, 1, 1], 1 / 5)


def test_silence_rule_finds_its_x(targets_of):
    # others pause for 0.4 s and go on; where a silence gets longer, self comes after 1.2 s
    random = np.random.default_rng(0)
    steps = "".join(random.choice(["oooo--", "oooo------ssssss"], 500))
    fitted = SilenceRule([targets_of(steps)])
    assert fitted.name == "silence longer than 0.4 s"
    p = fitted.predict(targets_of("o------"), np.arange(7))
    # after three to six steps of silence self speaks 0.8 s later, always
    np.testing.assert_allclose(p[3:, 3], [[0, 1, 0]] * 4, atol=0.02)
    # after one or two steps most pauses end in speech of others, and some become the long silence
    assert (p[1:3, 3, 2] > 0.4).all() and (p[1:3, 3, 1] < 0.3).all()


def test_markov_chain_of_order_one_is_the_power_of_its_matrix(targets_of):
    steps = "--so-soo-s--oo"
    names = "-so"
    counts = np.zeros((3, 3))
    for before, after in zip(steps, steps[1:]):
        counts[names.index(before), names.index(after)] += 1
    prior = (np.array([steps.count(name) for name in names]) + 1) / (len(steps) + 3)
    matrix = (counts + prior) / (counts.sum(axis=1, keepdims=True) + 1)
    predicted = MarkovChain([targets_of(steps)], order=1).predict(targets_of("s-o"), np.array([0, 1, 2]))
    for row, state in enumerate([1, 0, 2]):
        for horizon in range(10):
            expected = np.linalg.matrix_power(matrix, horizon + 1)[state]
            np.testing.assert_allclose(predicted[row, horizon], expected, atol=1e-12)


def test_markov_chain_of_higher_order_knows_a_rhythm(targets_of):
    rhythm = "--soo" * 400
    predicted = MarkovChain([targets_of(rhythm)]).predict(targets_of(rhythm[:20]), np.arange(5, 20))
    future = np.stack([targets_of(rhythm[i + 1 : i + 11]) for i in range(5, 20)])
    assert (predicted[future == 1] > 0.9).all()
    np.testing.assert_allclose(predicted.sum(axis=-1), 1)
    # order 1 cannot tell the first step of a pause from the second
    short = MarkovChain([targets_of(rhythm)], order=1).predict(targets_of(rhythm[:20]), np.array([5]))
    np.testing.assert_allclose(short[0, 0], [0.5, 0.5, 0], atol=0.01)


def test_history_features(targets_of):
    features = history_features(targets_of("so-" + "-" * 60), np.array([2, 62]))
    assert features.shape == (2, 103)
    self_steps, other_steps = features[0, 0:100:2], features[0, 1:100:2]
    assert np.flatnonzero(self_steps).tolist() == [2] and np.flatnonzero(other_steps).tolist() == [1]
    np.testing.assert_allclose(features[0, 100:], np.log1p([0, 2, 1]))
    np.testing.assert_allclose(features[1, 100:], np.log1p([0, 50, 50]))


def test_logistic_regression_finds_what_depends_on_four_seconds_ago(targets_of):
    random = np.random.default_rng(0)
    letters = list(random.choice(list("-so"), 20))
    while len(letters) < 4000:
        letters.append(letters[-20] if random.random() < 0.95 else str(random.choice(list("-so"))))
    steps = "".join(letters)
    at = np.arange(2000, 3900)
    targets = targets_of(steps)
    future = np.stack([targets[i + 1 : i + 11] for i in at])
    by_history = turn_metrics(HistoryRegression([targets[:2000]]).predict(targets, at), future)
    by_chain = turn_metrics(MarkovChain([targets[:2000]]).predict(targets, at), future)
    assert by_history["mAP"] > 0.9 > 0.6 > by_chain["mAP"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_future_is_not_seen(kind, targets_of):
    fitted = kind([targets_of(conversation(seed)) for seed in range(3)])
    steps = conversation(7)
    anchors = np.arange(0, 300, 7)
    expected = fitted.predict(targets_of(steps), anchors)
    other = fitted.predict(targets_of(steps[: anchors[-1] + 1] + "s" * 300), anchors)
    np.testing.assert_array_equal(other, expected)
    assert expected.shape == (len(anchors), 10, 3)
    np.testing.assert_allclose(expected.sum(axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_only_ten_seconds_are_seen(kind, targets_of):
    fitted = kind([targets_of(conversation(seed)) for seed in range(3)])
    steps = conversation(8)
    there = fitted.predict(targets_of("s" * 100 + steps), np.array([100 + 49]))
    alone = fitted.predict(targets_of("-" * 100 + steps), np.array([100 + 49]))
    np.testing.assert_array_equal(there, alone)


def test_all_baselines_on_the_anchors_of_a_file(targets_of, predictions_of):
    predictions = predictions_of(conversation(5), conversation(6))
    done = []
    fitted = fit_baselines([targets_of(conversation(seed)) for seed in range(3)], advance=lambda: done.append(1))
    assert [type(baseline) for baseline in fitted] == KINDS and len(done) == 5
    for baseline in fitted:
        probabilities = predict_baseline(baseline, predictions)
        assert probabilities.shape == predictions.probabilities.shape
        second = np.flatnonzero((predictions.session == 1) & (predictions.target_index == 100))
        alone = baseline.predict(targets_of("?" + conversation(6)[1:]), np.array([100]))
        np.testing.assert_allclose(probabilities[second], alone, atol=1e-6)


def test_nothing_to_fit_on(targets_of):
    with pytest.raises(InputError, match="no known step"):
        fit_baselines([targets_of("???")])
