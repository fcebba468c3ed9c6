"""Metrics against scikit-learn, and the cells that do not exist."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    confusion_matrix,
    log_loss,
    roc_auc_score,
)

from swift_plugin.evaluation.metrics import measure, turn_metrics

ROWS = 700


def make_case(tied: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities and targets with unknown rows, and the labels behind them."""
    random = np.random.default_rng(int(tied))
    if tied:  # multiples of 1/8, so that scores and most likely classes are tied
        parts = random.multinomial(8, np.ones(3) / 3, (ROWS, 10)) / 8
        probabilities = parts.astype(np.float32)
    else:
        probabilities = random.dirichlet(np.ones(3), (ROWS, 10)).astype(np.float32)
    label = random.integers(0, 3, (ROWS, 10))
    targets = np.eye(3, dtype=np.float32)[label]
    targets[random.random((ROWS, 10)) < 0.1] = np.nan
    return probabilities, targets, label


@pytest.mark.parametrize("tied", [False, True])
def test_every_value_equals_scikit_learn(tied):
    probabilities, targets, label = make_case(tied)
    metrics = measure(probabilities, targets)
    result = turn_metrics(probabilities, targets)
    for horizon in range(10):
        known = ~np.isnan(targets[:, horizon, 0])
        p, y = probabilities[known, horizon].astype(np.float64), label[known, horizon]
        at = f"{(horizon + 1) / 5}s"
        clipped = np.clip(p, np.finfo(np.float32).eps, 1)
        expected = {
            f"balanced_accuracy_{at}": balanced_accuracy_score(y, p.argmax(axis=1)),
            f"log_loss_{at}": -np.log(clipped[np.arange(len(y)), y]).mean(),
            f"brier_{at}": sum(brier_score_loss(y == c, p[:, c]) for c in range(3)),
        }
        if not tied:
            expected[f"log_loss_{at}"] = log_loss(y, p / p.sum(axis=1, keepdims=True), labels=[0, 1, 2])
        for c, name in enumerate(["nobody", "self", "other"]):
            expected[f"AP_{name}_{at}"] = average_precision_score(y == c, p[:, c])
            expected[f"ROC_{name}_{at}"] = roc_auc_score(y == c, p[:, c])
        for name, value in expected.items():
            # float32 rows do not sum to one exactly, and scikit-learn's log loss wants them to
            tolerance = 1e-7 if name.startswith("log_loss") and not tied else 1e-12
            assert result[name] == pytest.approx(value, rel=0, abs=tolerance), name
        matrix = confusion_matrix(y, p.argmax(axis=1), labels=[0, 1, 2])
        np.testing.assert_array_equal(metrics.confusion[horizon], matrix)


def test_means_over_cells():
    result = turn_metrics(*make_case(tied=False)[:2])
    speaking = [result[f"AP_{name}_{h / 5}s"] for name in ("self", "other") for h in range(1, 11)]
    nobody = [result[f"AP_nobody_{h / 5}s"] for h in range(1, 11)]
    assert result["mAP"] == pytest.approx(np.mean(speaking), abs=1e-12)
    assert result["mAP_all"] == pytest.approx(np.mean(speaking + nobody), abs=1e-12)
    assert result["mAP_0.4s"] == pytest.approx((result["AP_self_0.4s"] + result["AP_other_0.4s"]) / 2, abs=1e-12)
    assert result["log_loss"] == pytest.approx(np.mean([result[f"log_loss_{h / 5}s"] for h in range(1, 11)]), abs=1e-12)


def test_a_cell_without_positives_is_left_out_and_counted():
    probabilities, targets, _ = make_case(tied=False)
    targets[:, 2, 1], targets[:, 2, 2] = 0, 1
    targets[:, 2, 0] = 0  # at 0.6 s always other
    targets[:, 9] = np.nan  # at 2.0 s nothing is known
    result = turn_metrics(probabilities, targets)
    assert result["cells_without_positives"] == 2 + 3
    assert "AP_self_0.6s" not in result and "ROC_other_0.6s" not in result
    assert "mAP_2.0s" not in result and "log_loss_2.0s" not in result
    assert result["AP_other_0.6s"] == pytest.approx(1, abs=1e-12)
    names = [f"AP_{name}_{h / 5}s" for h in range(1, 10) for name in ("self", "other")]
    names.remove("AP_self_0.6s")
    cells = [result[name] for name in names]
    assert result["mAP"] == pytest.approx(np.mean(cells), abs=1e-12)
    assert not any(np.isnan(value) for value in result.values())


def test_soft_and_multi_hot_targets():
    probabilities = np.tile(np.array([0.2, 0.5, 0.3], np.float32), (4, 10, 1))
    targets = np.tile(np.array([[0, 1, 1], [0, 0.5, 0.5], [0.6, 0.4, 0], [0, 0, 1]], np.float32)[:, None], (1, 10, 1))
    metrics = measure(probabilities, targets)
    assert metrics.positives[0].tolist() == [1, 2, 3]  # at least half: nobody in row 3, self in 1 2, other in 1 2 4
    assert metrics.confusion[0].tolist() == [[0, 1, 0], [0, 2, 0], [0, 1, 0]]  # the first of equals is self
    log = np.log(np.array([0.2, 0.5, 0.3], np.float32).astype(float))
    by_hand = -np.mean([(log[1] + log[2]) / 2, (log[1] + log[2]) / 2, 0.6 * log[0] + 0.4 * log[1], log[2]])
    assert metrics.log_loss[0] == pytest.approx(by_hand, abs=1e-7)  # 0.6 + 0.4 is not 1 in float32
    brier = [0.04 + 0 + 0.04, 0.04 + 0 + 0.04, 0.16 + 0.01 + 0.09, 0.04 + 0.25 + 0.49]
    assert metrics.brier[0] == pytest.approx(np.mean(brier), abs=1e-7)


def test_calibration_error_by_hand():
    # eight rows at 0.9 of which four are right, two at 0.6 that are both right
    probabilities = np.zeros((10, 10, 3), np.float32)
    probabilities[:8] = [0.05, 0.9, 0.05]
    probabilities[8:] = [0.2, 0.2, 0.6]
    targets = np.zeros((10, 10, 3), np.float32)
    targets[:4, :, 1] = targets[4:, :, 2] = 1
    assert turn_metrics(probabilities, targets)["ece"] == pytest.approx(0.8 * 0.4 + 0.2 * 0.4, abs=1e-7)


def test_doubles_give_the_metric_of_the_file():
    """The Trainer has doubles in which float32 ties are broken; the file has float32."""
    probabilities, targets, _ = make_case(tied=True)
    noise = np.random.default_rng(0).normal(0, 1e-12, probabilities.shape)
    doubles = probabilities.astype(np.float64) + noise
    assert turn_metrics(doubles, targets) == turn_metrics(doubles.astype(np.float32), targets)
    assert turn_metrics(doubles, targets)["mAP"] == pytest.approx(turn_metrics(probabilities, targets)["mAP"], abs=1e-4)
