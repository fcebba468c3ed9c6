"""`swift-turn predict` on a checkpoint that was made without training: files, calibration, refusals."""

import json

import numpy as np
import pytest
import torch
from helpers import make_cache

from swift_plugin.cli import main
from swift_plugin.evaluation.calibration import CALIBRATION_NAME, TemperatureScaling
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.checkpoint import save_checkpoint


@pytest.fixture(scope="module")
def folder(tiny_checkpoint, tmp_path_factory):
    """A cache of 9 s with a gap, and a head-only checkpoint with a random head."""
    folder = tmp_path_factory.mktemp("predict")
    make_cache(folder / "s", tiny_checkpoint, spans=[(0, 5), (8, 12)], memory_seconds=2)
    torch.manual_seed(0)
    model = TurnPredictor.load(tiny_checkpoint, dtype=torch.float32)
    model.attach_head(TurnHeadConfig(hidden_size=model.config.hidden_size))
    save_checkpoint(model, folder / "checkpoint")
    (folder / "checkpoint" / "args.json").write_text(json.dumps({"model": str(tiny_checkpoint), "torch_dtype": "float32"}))
    return folder


def predict(folder, output: str, *more: str) -> int:
    words = ["--checkpoint", folder / "checkpoint", "--manifest", folder / "s/cache", "--output", folder / output]
    return main(["predict", *map(str, words), "--device", "cpu", *more])


def test_every_anchor_once_in_both_formats(folder):
    assert predict(folder, "p.npz") == predict(folder, "p.parquet") == 0
    a, b = Predictions.load(folder / "p.npz"), Predictions.load(folder / "p.parquet")
    assert sorted(a.target_index.tolist()) == [*range(25), *range(40, 60)]
    np.testing.assert_array_equal(a.probabilities, b.probabilities)
    np.testing.assert_allclose(a.probabilities.sum(axis=-1), 1, atol=1e-5)
    without_future = ~np.isin(a.target_index, [*range(15), *range(40, 50)])
    assert np.isnan(a.targets[without_future]).all()


def test_temperatures_of_the_checkpoint_are_applied_on_request(folder):
    assert predict(folder, "raw.npz") == 0
    file = folder / "checkpoint" / CALIBRATION_NAME
    assert predict(folder, "none.npz", "--temperature", str(file)) == 2  # there are none yet
    calibration = TemperatureScaling(temperatures=tuple(1 + 0.2 * n for n in range(10)), rows=(9,) * 10)
    calibration.save(file)
    assert predict(folder, "calibrated.npz", "--temperature", str(file)) == 0
    raw, calibrated = Predictions.load(folder / "raw.npz"), Predictions.load(folder / "calibrated.npz")
    np.testing.assert_allclose(calibrated.probabilities, calibration.apply(raw.probabilities), atol=1e-6)
    assert not (folder / "none.npz").exists()


def test_an_output_that_is_there_is_kept(folder, capsys):
    assert predict(folder, "kept.npz") == 0
    before = (folder / "kept.npz").read_bytes()
    assert predict(folder, "kept.npz") == 2
    assert "--overwrite" in capsys.readouterr().err
    assert (folder / "kept.npz").read_bytes() == before


def test_a_cache_of_other_towers_is_refused(folder, load_example, tmp_path, capsys):
    other = load_example("make_tiny_checkpoint").make_tiny_checkpoint(tmp_path / "other", seed=1)
    assert predict(folder, "other.npz", "--model", str(other)) == 2
    assert "cached with other tower weights (tiny) than those of" in capsys.readouterr().err
    assert not (folder / "other.npz").exists()
