"""Intervals: the resampled values are those of the resampled rows, and the intervals cover."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from scipy.signal import lfilter

from swift_plugin.errors import InputError
from swift_plugin.evaluation.evaluate import common_anchors, evaluate, paired_differences, with_probabilities
from swift_plugin.evaluation.metrics import turn_metrics
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.uncertainty import (
    BLOCK_STEPS,
    NUM_CELLS,
    draw_weights,
    interval,
    resample_metrics,
    resampling_units,
)


def make_predictions(sessions: int, rows: int, seed: int = 0) -> Predictions:
    random = np.random.default_rng(seed)
    targets = np.eye(3, dtype=np.float32)[random.integers(0, 3, (sessions * rows, 10))]
    targets[random.random((sessions * rows, 10)) < 0.05] = np.nan
    probabilities = np.round(random.dirichlet(np.ones(3), (sessions * rows, 10)), 2)
    return Predictions(
        probabilities=probabilities / probabilities.sum(axis=-1, keepdims=True),
        target_index=np.tile(np.arange(rows) * 11, sessions),  # far enough apart that no step has two targets
        session=np.repeat(np.arange(sessions), rows),
        session_names=[f"session {k}" for k in range(sessions)],
        targets=targets,
    )


def test_units_are_sessions_or_minutes():
    units = resampling_units(make_predictions(sessions=6, rows=60))
    assert (units.kind, units.count) == ("session", 6)
    units = resampling_units(make_predictions(sessions=1, rows=60))  # 60 anchors in 660 steps, 132 s
    assert (units.kind, units.count) == ("minute", 3)
    assert np.bincount(units.unit).tolist() == [28, 27, 5]
    units = resampling_units(make_predictions(sessions=2, rows=60))
    assert (units.kind, units.count) == ("minute", 6)  # a minute of one session is none of the other's


def test_a_resample_is_the_metric_of_the_repeated_rows():
    predictions = make_predictions(sessions=7, rows=30)
    units = resampling_units(predictions)
    weights = draw_weights(units.count, resamples=5, seed=1)
    assert weights.sum(axis=1).tolist() == [7] * 5
    done = []
    samples = resample_metrics(
        predictions.probabilities, predictions.targets, units, weights, advance=lambda: done.append(1)
    )
    assert len(done) == NUM_CELLS
    for number, weight in enumerate(weights):
        rows = np.repeat(np.arange(len(predictions)), weight[units.unit])
        expected = turn_metrics(predictions.probabilities[rows], predictions.targets[rows])
        del expected["cells_without_positives"]
        for name, value in expected.items():
            assert samples[name][number] == pytest.approx(value, rel=0, abs=1e-12), name


def test_a_cell_that_a_resample_lacks_is_left_out_of_its_mean():
    predictions = make_predictions(sessions=6, rows=20)
    predictions.targets[:, 0] = [1, 0, 0]
    predictions.targets[:3, 0] = [0, 1, 0]  # self at 0.2 s in the first session alone
    units = resampling_units(predictions)
    weights = np.array([[0, 2, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]])
    samples = resample_metrics(predictions.probabilities, predictions.targets, units, weights)
    assert np.isnan(samples["AP_self_0.2s"]).tolist() == [True, False]
    assert not np.isnan(samples["mAP"]).any()
    assert interval(0.5, samples["AP_self_0.2s"]).low == samples["AP_self_0.2s"][1]
    assert np.isnan(interval(0.5, np.full(3, np.nan)).low)


def coverage(draw: Callable[[np.random.Generator], np.ndarray], truth: float, trials: int = 300) -> float:
    """The share of data sets whose 95 % interval of the mean holds the truth; `draw` gives one value a unit."""
    random = np.random.default_rng(0)
    covered = 0
    for trial in range(trials):
        values = draw(random)
        found = interval(values.mean(), draw_weights(len(values), resamples=400, seed=trial) @ values / len(values))
        covered += found.low <= truth <= found.high
    return covered / trials


def test_intervals_over_sessions_cover():
    """The percentile interval of 30 units is a little short of its 95 %."""
    assert 0.90 <= coverage(lambda random: random.gamma(4, 1 / 4, 30), truth=1.0) <= 0.98


def test_intervals_over_minutes_cover_where_single_anchors_would_not():
    def session(random: np.random.Generator) -> np.ndarray:
        """Half an hour of losses that forget their past in 4 s."""
        return lfilter([1], [1, -0.95], random.normal(size=BLOCK_STEPS * 30))

    def minutes(random: np.random.Generator) -> np.ndarray:
        return session(random).reshape(30, BLOCK_STEPS).mean(axis=1)

    assert 0.90 <= coverage(minutes, truth=0.0) <= 0.98

    def anchors(random: np.random.Generator) -> np.ndarray:
        return session(random)[:300]

    assert coverage(anchors, truth=0.0, trials=50) < 0.6


def test_a_paired_comparison_is_sharper_than_two_intervals():
    predictions = make_predictions(sessions=12, rows=40)
    # forecasts that are good in some sessions and bad in others, and always a little better than the other run
    skill = np.linspace(0.05, 0.6, 12)[predictions.session][:, None, None]
    truth = np.nan_to_num(predictions.targets, nan=1 / 3)
    better = with_probabilities(predictions, skill * truth + (1 - skill) / 3)
    worse = with_probabilities(predictions, (skill - 0.02) * truth + (1.02 - skill) / 3)
    units = resampling_units(predictions)
    weights = draw_weights(units.count, resamples=200, seed=0)
    first, second = evaluate(better, units, weights), evaluate(worse, units, weights)
    difference = paired_differences(first, second)["log_loss"]
    assert difference.value == pytest.approx(first.values["log_loss"] - second.values["log_loss"], abs=1e-12)
    assert difference.low < difference.high < 0
    assert first.intervals["log_loss"].high > second.intervals["log_loss"].low  # the two alone overlap
    assert all(entry.low == entry.high == 0 for entry in paired_differences(first, first).values())


def test_common_anchors():
    first = make_predictions(sessions=3, rows=10)
    keep = np.random.default_rng(0).permutation(len(first))[:20]
    second = Predictions(
        probabilities=first.probabilities[keep],
        target_index=first.target_index[keep],
        session=2 - first.session[keep],
        session_names=first.session_names[::-1],
        targets=first.targets[keep],
    )
    ours, theirs = common_anchors(first, second)
    assert len(ours) == len(theirs) == 20
    np.testing.assert_array_equal(ours.probabilities, theirs.probabilities)
    np.testing.assert_array_equal(ours.target_index, theirs.target_index)
    second.targets[4, 0] = [0.5, 0.25, 0.25]
    with pytest.raises(InputError, match=f"target_index {second.target_index[4]} of session .* different targets"):
        common_anchors(first, second)
    with pytest.raises(InputError, match="no anchor in common"):
        common_anchors(first, dataclasses.replace(second, session_names=["a", "b", "c"]))


def test_nothing_known():
    predictions = make_predictions(sessions=6, rows=4)
    predictions.targets[:] = np.nan
    units = resampling_units(predictions)
    with pytest.raises(InputError, match="no target is known"):
        evaluate(predictions, units, draw_weights(6, resamples=2, seed=0))
