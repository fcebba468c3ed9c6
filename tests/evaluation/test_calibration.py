"""Temperatures are found again, and only files that hold temperatures are read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.special import softmax

from swift_plugin.errors import InputError
from swift_plugin.evaluation.calibration import TemperatureScaling
from swift_plugin.evaluation.metrics import turn_metrics

TRUE = np.linspace(0.5, 3.2, 10)


def make_case(rows: int = 20_000) -> tuple[np.ndarray, np.ndarray]:
    """Forecasts whose logits are `TRUE` times too large, with labels drawn from the right ones."""
    random = np.random.default_rng(0)
    logits = random.normal(0, 1.5, (rows, 10, 3))
    label = (softmax(logits, axis=-1).cumsum(axis=-1) < random.random((rows, 10, 1))).sum(axis=-1).clip(max=2)
    return softmax(logits * TRUE[:, None], axis=-1).astype(np.float32), np.eye(3, dtype=np.float32)[label]


def test_the_temperatures_are_found_again():
    probabilities, targets = make_case()
    targets[:50] = np.nan
    scaling = TemperatureScaling.fit(probabilities, targets)
    np.testing.assert_allclose(scaling.temperatures, TRUE, rtol=0.05)
    assert scaling.rows == (19_950,) * 10
    before, after = turn_metrics(probabilities, targets), turn_metrics(scaling.apply(probabilities), targets)
    assert after["ece"] < 0.015 < 0.08 < before["ece"]
    assert after["log_loss"] < before["log_loss"]


def test_applying_is_dividing_the_logits():
    logits = np.random.default_rng(1).normal(0, 2, (5, 10, 3))
    scaling = TemperatureScaling(temperatures=tuple(TRUE), rows=(1,) * 10)
    applied = scaling.apply(softmax(logits, axis=-1))
    np.testing.assert_allclose(applied, softmax(logits / TRUE[:, None], axis=-1), atol=1e-6)
    assert applied.dtype == np.float32
    np.testing.assert_allclose(scaling.apply(np.eye(3)[None].repeat(10, axis=1)[:, :10][:, [0] * 10]).sum(axis=-1), 1)


def test_saved_and_loaded(tmp_path):
    scaling = TemperatureScaling(temperatures=tuple(TRUE), rows=(7,) * 10)
    scaling.save(tmp_path / "turn_calibration.json")
    assert TemperatureScaling.load(tmp_path / "turn_calibration.json") == scaling


@pytest.mark.parametrize(
    "content",
    [
        {"temperatures": [1.0] * 9, "rows": [1] * 9},
        {"temperatures": [0.0] * 10, "rows": [1] * 10},
        {"temperatures": [float("nan")] * 10, "rows": [1] * 10},
        {"temperatures": ["warm"] * 10, "rows": [1] * 10},
        {"rows": [1] * 10},
        [1.0],
    ],
)
def test_other_files_are_refused_by_name(tmp_path, content):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="t.json: "):
        TemperatureScaling.load(path)


def test_a_horizon_without_targets():
    probabilities, targets = make_case(rows=10)
    targets[:, 4] = np.nan
    with pytest.raises(InputError, match="horizon 5 has no known target"):
        TemperatureScaling.fit(probabilities, targets)
