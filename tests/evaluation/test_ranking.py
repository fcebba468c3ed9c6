"""The fast sums under weights against scikit-learn with `sample_weight`."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from swift_plugin.evaluation.ranking import Ranking

UNITS = 9


@pytest.mark.parametrize("levels", [10**9, 40, 3, 1], ids=["random", "some ties", "many ties", "one score"])
@pytest.mark.parametrize("rows", [5, 60, 2000])
def test_equal_to_scikit_learn(rows, levels):
    random = np.random.default_rng(rows + levels)
    positive = random.random(rows) < 0.3
    score = (random.integers(0, levels, rows) / levels).astype(np.float32)
    unit = random.integers(0, UNITS, rows)
    weights = np.concatenate([np.ones((1, UNITS), int), random.multinomial(UNITS, np.full(UNITS, 1 / UNITS), 40)])
    average_precision, roc_auc = Ranking(positive, score, unit).resample(weights)
    for number, unit_weight in enumerate(weights):
        weight = unit_weight[unit]
        if not weight[positive].any():
            assert np.isnan(average_precision[number]) and np.isnan(roc_auc[number])
            continue
        expected = average_precision_score(positive, score, sample_weight=weight)
        assert average_precision[number] == pytest.approx(expected, rel=0, abs=1e-12)
        if weight[~positive].any():
            expected = roc_auc_score(positive, score, sample_weight=weight)
            assert roc_auc[number] == pytest.approx(expected, rel=0, abs=1e-12)
        else:
            assert np.isnan(roc_auc[number])


def test_without_rows_or_positives_there_is_no_value():
    for positive in (np.zeros(0, bool), np.zeros(4, bool)):
        zeros = np.zeros(len(positive))
        values = Ranking(positive, zeros, zeros.astype(int)).resample(np.ones((2, 1), int))
        assert np.isnan(values).all()
