"""`swift-turn evaluate` from the command line to its file."""

from __future__ import annotations

import json

import numpy as np
import pytest

from swift_plugin.cli import main
from swift_plugin.evaluation.evaluate import with_probabilities
from swift_plugin.evaluation.metrics import turn_metrics
from swift_plugin.evaluation.predictions import Predictions


def conversation(seed: int) -> str:
    random = np.random.default_rng(seed)
    pieces = zip(random.choice(list("-so"), 60), random.integers(2, 9, 60))
    return "".join(letter * int(count) for letter, count in pieces)


@pytest.fixture
def folder(tmp_path, monkeypatch, predictions_of, targets_of):
    """Two runs on seven sessions and the targets of two others."""
    predictions = predictions_of(*(conversation(seed) for seed in range(7)))
    random = np.random.default_rng(0)
    for name in ("run.npz", "other.parquet"):
        probabilities = random.dirichlet(np.ones(3), predictions.probabilities.shape[:2])
        with_probabilities(predictions, probabilities).save(tmp_path / name)
    for seed in (20, 21):
        np.save(tmp_path / f"train_{seed}.npy", targets_of(conversation(seed)))
    np.save(tmp_path / "session_3.npy", targets_of(conversation(3)))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # so that no table breaks its words
    return tmp_path


def test_everything_in_one_file(folder, capsys):
    line = "evaluate run.npz --against other.parquet --baselines train_20.npy train_21.npy --output out.json"
    assert main([*line.split(), "--resamples", "20"]) == 0
    content = json.loads((folder / "out.json").read_text())
    predictions, other = Predictions.load(folder / "run.npz"), Predictions.load(folder / "other.parquet")
    expected = turn_metrics(predictions.probabilities, predictions.targets)
    assert {name: content["values"][name] for name in expected} == expected  # what the Trainer's metric gives
    value, low, high = content["intervals"]["mAP"]
    assert value == expected["mAP"] and low < value < high
    difference = content["against"]["difference"]["log_loss"]
    assert difference[0] == pytest.approx(
        expected["log_loss"] - turn_metrics(other.probabilities, other.targets)["log_loss"], abs=1e-12
    )
    assert len(content["baselines"]) == 5
    # a random forecast is worse than label history, and the interval says so
    assert content["baselines"]["Markov chain, order 5"]["difference"]["log_loss"][1] > 0
    assert content["bootstrap"] == {"unit": "session", "units": 7, "resamples": 20, "seed": 0}
    assert content["by_horizon"]["positives"][0] == expected_positives(predictions)
    printed = capsys.readouterr().out
    assert "7 sessions" in printed and "logistic regression" in printed and "difference to the other file" in printed


def expected_positives(predictions: Predictions) -> list[int]:
    return np.nansum(predictions.targets[:, 0], axis=0).astype(int).tolist()


def test_temperatures_are_fitted_and_applied(folder, capsys):
    assert main("evaluate run.npz --output before.json --fit-temperature t.json --resamples 2".split()) == 0
    assert "temperatures: 20.00" in capsys.readouterr().out  # noise knows nothing, so nearly nothing is left of it
    assert main("evaluate run.npz --output after.json --temperature t.json --resamples 2".split()) == 0
    before, after = (json.loads((folder / f"{name}.json").read_text())["values"] for name in ("before", "after"))
    assert after["log_loss"] < before["log_loss"] and after["ece"] < before["ece"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("evaluate none.npz --output out.json", "none.npz: no such file"),
        ("evaluate run.npz --output run.npz", "run.npz exists"),
        ("evaluate run.npz --output nowhere/out.json", "folder nowhere does not exist"),
        ("evaluate run.npz --output out.json --resamples 0", "--resamples 0"),
        ("evaluate run.npz --output out.json --temperature a.json --fit-temperature b.json", "exclude each other"),
        ("evaluate run.npz --output out.json --temperature train_20.npy", "train_20.npy: not readable as JSON"),
        ("evaluate run.npz --output out.json --baselines run.npz", "run.npz"),
        (
            "evaluate run.npz --output out.json --baselines train_20.npy session_3.npy",
            "session_3.npy: holds the targets of session 'session 3', which is evaluated",
        ),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(folder, capsys, line, message):
    before = sorted(path.name for path in folder.iterdir())
    assert main(line.split()) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert sorted(path.name for path in folder.iterdir()) == before
