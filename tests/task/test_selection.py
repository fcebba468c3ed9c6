"""The best checkpoint, early stopping and the length of a run, by ms-swift's own options and the plug-in's metrics."""

from __future__ import annotations

import json

import pytest
import torch
from task.helpers_run import Job, checkpoint_parameters, train

from swift_plugin.task.metrics import TurnMetrics

OPTIONS = {"per_device_train_batch_size": 4, "num_train_epochs": 3, "eval_steps": 1, "save_steps": 1}


@pytest.fixture
def scripted(monkeypatch):
    """Replaces the values of a metric, evaluation by evaluation; everything else is measured."""

    def script(name: str, values: list[float]) -> None:
        left, compute = iter(values), TurnMetrics.compute_metrics
        monkeypatch.setattr(TurnMetrics, "compute_metrics", lambda self, output: {**compute(self, output), name: next(left)})

    return script


def job(model, sessions, output, **options) -> Job:
    return Job(model=model, output=output, train=sessions["short"], val=sessions["val"], options={**OPTIONS, **options})


def test_the_checkpoint_with_the_best_map_is_the_best(tiny_checkpoint, sessions, tmp_path):
    """Measured, not scripted: whatever the values are, the state names the first of the largest."""
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", metric_for_best_model="mAP", learning_rate=1e-2))
    values = [entry["eval_mAP"] for entry in run.evaluations()]
    state = run.trainer.state
    print(f"mAP by step {[round(value, 4) for value in values]}, best {state.best_metric:.4f} at {state.best_global_step}")
    assert len(values) == 6 and len(set(values)) > 1
    assert state.best_metric == pytest.approx(max(values), abs=1e-8)  # ms-swift rounds what it logs
    assert state.best_global_step == values.index(max(values)) + 1
    assert state.best_model_checkpoint.endswith(f"checkpoint-{state.best_global_step}")


@pytest.mark.parametrize(
    ("metric", "values", "best"), [("mAP", [0.2, 0.6, 0.4], 2), ("loss", [1.0, 0.7, 0.9], 2), ("brier", [0.5, 0.3, 0.7], 2)]
)
def test_best_is_highest_or_lowest_as_the_metric_says(tiny_checkpoint, sessions, tmp_path, scripted, metric, values, best):
    """Of `brier` and `ece` ms-swift would take the highest."""
    scripted(metric, values)
    options = {"metric_for_best_model": metric, "max_steps": 3, "save_total_limit": 1, "load_best_model_at_end": "true"}
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", **options))
    assert run.trainer.state.best_metric == values[best - 1]
    assert run.trainer.state.best_global_step == best
    stored = checkpoint_parameters(run.folder / f"checkpoint-{best}")
    loaded = {name.replace(".default", ""): tensor for name, tensor in run.trainer.model.state_dict().items()}
    head = {name.removeprefix("base_model.model."): tensor for name, tensor in loaded.items()}
    assert all(torch.equal(tensor, loaded.get(name, head.get(name))) for name, tensor in stored.items())
    assert [path.name for path in sorted(run.folder.glob("checkpoint-*"))] == [f"checkpoint-{best}"]


def test_an_unknown_metric_is_refused_before_the_run(tiny_checkpoint, sessions, tmp_path):
    from swift_plugin.errors import InputError

    with pytest.raises(InputError, match="--metric_for_best_model mAPP: not among .*mAP"):
        train(job(tiny_checkpoint, sessions, tmp_path / "out", metric_for_best_model="mAPP"))


def test_early_stopping_by_a_metric_of_ours(tiny_checkpoint, sessions, tmp_path, scripted):
    """Two evaluations without a better value end the run after the fourth step of six."""
    scripted("mAP", [0.3, 0.5, 0.4, 0.4, 0.9, 0.9])
    options = {"metric_for_best_model": "mAP", "early_stop_interval": 2}
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", **options))
    assert run.trainer.state.max_steps == 6
    assert run.trainer.state.global_step == 4
    assert run.trainer.state.best_global_step == 2


def test_max_steps_ends_the_run_with_an_evaluation_and_a_checkpoint(tiny_checkpoint, sessions, tmp_path):
    options = {"max_steps": 3, "eval_steps": 2, "save_steps": 2, "eval_on_start": "true"}
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", **options))
    assert run.trainer.state.global_step == 3
    assert [entry["step"] for entry in run.evaluations()] == [0, 2, 3]
    assert sorted(path.name for path in run.folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-3"]
    summary = json.loads((run.folder / "train_summary.json").read_text())
    assert summary["initial_eval_loss"] == run.evaluations()[0]["eval_loss"]
    assert summary["final_eval_loss"] == run.evaluations()[-1]["eval_loss"]


@pytest.mark.parametrize(("strategy", "steps"), [("epoch", [2, 4, 6]), ("no", [])])
def test_eval_strategy(tiny_checkpoint, sessions, tmp_path, strategy, steps):
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", eval_strategy=strategy, save_strategy="epoch"))
    # ms-swift evaluates at the last step and once more at the end of its epoch.
    assert sorted({entry["step"] for entry in run.evaluations()}) == steps
    assert sorted(path.name for path in run.folder.glob("checkpoint-*")) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]


def test_the_loss_of_evaluation_is_the_mean_over_rows_not_over_batches(tiny_checkpoint, sessions, tmp_path):
    """The last batch holds one short block: a mean of the means of batches would weigh it as much as the others."""
    runs = {
        size: train(job(tiny_checkpoint, sessions, tmp_path / f"{size}", max_steps=1, per_device_eval_batch_size=size))
        for size in (1, 4, 5)
    }
    losses = {size: run.evaluations()[-1]["eval_loss"] for size, run in runs.items()}
    print(f"eval_loss by batch size {losses}")
    assert losses[1] == pytest.approx(losses[5], rel=1e-6)
    assert losses[4] == pytest.approx(losses[5], rel=1e-6)
    assert losses[5] == pytest.approx(runs[5].evaluations()[-1]["eval_log_loss"], rel=1e-6)
