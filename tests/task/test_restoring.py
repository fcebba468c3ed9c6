"""A run that was killed and resumed is the run that was never killed, to the last bit on a CPU.

Dropout and shuffling are on. An epoch has four steps of two batches of two blocks, the last one short; the runs go two
epochs, are evaluated after every third step and killed with SIGKILL after the sixth, in the middle of the second epoch.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from task.helpers_run import Job, digest, start, train, train_processes

from swift_plugin.errors import InputError
from swift_plugin.evaluation.metrics import turn_metrics
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.task.metrics import TurnMetrics

KILLED_AFTER = 6
KILLER = f"""
import os, signal
from swift.callbacks import TrainerCallback, callbacks_map

class Killer(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        if state.global_step == {KILLED_AFTER}:
            os.kill(os.getpid(), signal.SIGKILL)

callbacks_map["killer"] = Killer
"""
OPTIONS = {
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "num_train_epochs": 2,
    "lora_dropout": 0.2,
    "lr_scheduler_type": "cosine",
    "warmup_steps": 2,
    "save_steps": 1,
    "eval_steps": 3,
}
TURN = {"turn_head_dropout": 0.2, "turn_head_learning_rate": 3e-3}
LOGGED = ("loss", "grad_norm", "learning_rate", "head_learning_rate", "eval_loss", "eval_mAP", "epoch", "step")


def job(model, sessions, output, **options) -> Job:
    return Job(
        model=model, output=output, train=sessions["long"], val=sessions["val"], options={**OPTIONS, **options}, turn=TURN
    )


def logged(run) -> list[dict[str, float]]:
    return [{name: entry[name] for name in LOGGED if name in entry} for entry in run.history]


@pytest.fixture(scope="module", params=[0, 1], ids=["no worker", "a worker that persists"])
def runs(request, tiny_checkpoint, sessions, tmp_path_factory):
    """The run that was never killed, the folder of the one that was, and how many loader workers both had."""
    folder = tmp_path_factory.mktemp("restoring")
    workers = request.param  # ms-swift's default is one, and that it persists
    killer = folder / "killer.py"
    killer.write_text(KILLER)
    whole = train(job(tiny_checkpoint, sessions, folder / "whole", dataloader_num_workers=workers))
    plugins = [job(tiny_checkpoint, sessions, folder).argv()[3], killer]
    doomed = job(
        tiny_checkpoint,
        sessions,
        folder / "killed",
        dataloader_num_workers=workers,
        external_plugins=plugins,
        callbacks="killer",
    )
    process = start(doomed)
    output, _ = process.communicate()
    assert process.returncode % 256 == 256 - signal.SIGKILL, output[-2000:]  # as ms-swift hands it on
    return whole, doomed.output, workers


@pytest.mark.slow
@pytest.mark.parametrize("step", [3, 4, 6])
def test_a_resumed_run_is_the_run_that_was_never_killed(runs, tiny_checkpoint, sessions, tmp_path, step):
    """From the middle of the first epoch, from between the epochs, from the middle of the second."""
    whole, killed, workers = runs
    assert not (killed / "checkpoint-7").exists()
    options = {"dataloader_num_workers": workers, "resume_from_checkpoint": killed / f"checkpoint-{step}"}
    resumed = train(job(tiny_checkpoint, sessions, tmp_path / "out", **options))
    ours, theirs = resumed.parameters(), whole.parameters()
    different = [name for name in theirs if digest(ours[name]) != digest(theirs[name])]
    print(f"from {step}: {len(different)} of {len(theirs)} tensors differ, losses {resumed.losses()}")
    assert ours.keys() == theirs.keys()
    assert logged(resumed) == logged(whole)
    assert not different


@pytest.mark.slow
def test_two_ranks_resume_to_the_same_bits(tiny_checkpoint, sessions, tmp_path):
    """Each rank has its own dropout, and gets its own back."""
    options = {"num_train_epochs": 1, "per_device_train_batch_size": 1, "eval_strategy": "no", "dataloader_num_workers": 1}
    whole = train_processes(job(tiny_checkpoint, sessions, tmp_path / "whole", **options), processes=2)
    options["resume_from_checkpoint"] = whole.folder / "checkpoint-2"
    resumed = train_processes(job(tiny_checkpoint, sessions, tmp_path / "resumed", **options), processes=2)
    assert whole.last.name == "checkpoint-4"
    states = [torch.load(whole.folder / "checkpoint-2" / f"rng_state_{rank}.pth", weights_only=False) for rank in (0, 1)]
    assert not torch.equal(states[0]["cpu"], states[1]["cpu"])
    ours, theirs = resumed.parameters(), whole.parameters()
    assert [name for name in theirs if digest(ours[name]) != digest(theirs[name])] == []
    assert logged(resumed) == logged(whole)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_predict_in_a_new_process_gives_what_evaluation_saw(tiny_checkpoint, sessions, tmp_path, monkeypatch, dtype):
    """Blocks whose anchors all have a future make the same batches in both, and then every bit is the same."""
    seen, metrics = [], []
    compute = TurnMetrics.compute_metrics

    def compute_and_keep(self, output):
        seen.append(output)
        metrics.append(compute(self, output))
        return metrics[-1]

    monkeypatch.setattr(TurnMetrics, "compute_metrics", compute_and_keep)
    options = {"max_steps": 2, "save_steps": 2, "eval_steps": 2, "per_device_eval_batch_size": 1, "torch_dtype": dtype}
    run = train(job(tiny_checkpoint, sessions, tmp_path / "out", **options))
    output = tmp_path / "predictions.npz"
    command = ["predict", "--checkpoint", run.last, "--manifest", sessions["val"], "--output", output, "--device", "cpu"]
    subprocess.run([sys.executable, "-m", "swift_plugin", *map(str, command)], check=True, capture_output=True)
    predictions = Predictions.load(output)
    evaluated = torch.from_numpy(seen[-1].predictions).softmax(dim=-1).numpy()  # [blocks, 10, 10, 3]
    full = [block for block in range(len(evaluated)) if not np.isinf(seen[-1].label_ids[block]).any()]
    assert full == [0, 1, 2, 3]
    order = np.argsort(predictions.target_index)
    probabilities = predictions.probabilities[order]
    print(f"{dtype}: largest difference {max(abs(probabilities[b * 10 : b * 10 + 10] - evaluated[b]).max() for b in full)}")
    for block in full:
        assert np.array_equal(probabilities[block * 10 : block * 10 + 10], evaluated[block])
    rest = int((~np.isinf(seen[-1].label_ids[4]).any(axis=(1, 2))).sum())
    assert rest == 7
    np.testing.assert_allclose(probabilities[40 : 40 + rest], evaluated[4, :rest], rtol=1e-5 if dtype == "float32" else 1e-2)
    if dtype == "float32":  # and `swift-turn evaluate` says of them what the Trainer said
        measured = turn_metrics(predictions.probabilities, predictions.targets)
        for name, value in measured.items():
            assert metrics[-1][name] == pytest.approx(value, abs=1e-6, nan_ok=True), name


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("turn_head.safetensors", "turn_head.safetensors: no such file"),
        ("turn_head.json", "turn_head.json: no such file"),
        ("adapter_model.safetensors", "adapter_model.safetensors: no such file"),
        ("trainer_state.json", "trainer_state.json: no such file"),
        ("scheduler.pt", "scheduler.pt: no such file"),
        ("optimizer.pt", "optimizer.pt: no such file"),
    ],
)
def test_a_checkpoint_that_lacks_a_part_is_not_resumed(tiny_checkpoint, sessions, tmp_path, cut_run, missing, message):
    """transformers begins at step 0 without a state, and with a new optimizer without the old one, and says nothing."""
    folder = tmp_path / "checkpoint-1"
    shutil.copytree(cut_run, folder)
    (folder / missing).unlink()
    with pytest.raises(InputError, match=message) as error:
        train(job(tiny_checkpoint, sessions, tmp_path / "out", resume_from_checkpoint=folder))
    assert "\n" not in str(error.value)
    assert str(folder) in str(error.value)


@pytest.fixture(scope="module")
def cut_run(tiny_checkpoint, sessions, tmp_path_factory):
    """A checkpoint after one step."""
    output = tmp_path_factory.mktemp("cut") / "out"
    return train(job(tiny_checkpoint, sessions, output, max_steps=1, eval_strategy="no")).last


EXTRA = "base_model.model.model.layers.9.mlp.down_proj.lora_A.weight"


def rename(tensors):
    tensors[next(iter(tensors)).replace("lora_A", "lora_C")] = tensors.pop(next(iter(tensors)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop(next(iter(tensors))), r"1 tensors do not fit, first .*lora_A.weight: missing in the file"),
        (lambda tensors: tensors.update({EXTRA: torch.zeros(1)}), rf"1 tensors do not fit, first {EXTRA}: \[1\] in the file, unknown"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "extra is no tensor of an adapter"),
        (rename, r"2 tensors do not fit, first .*missing in the file"),
        (lambda tensors: tensors.update({next(iter(tensors)): torch.zeros(8, 32)}), r"\[8, 32\] in the file, \[8, 192\] in the model"),
    ],
    ids=["missing", "extra", "strange", "renamed", "another size"],
)
@pytest.mark.parametrize("option", ["resume_from_checkpoint", "adapters"])
def test_an_adapter_with_other_tensors_is_refused_by_name(
    tiny_checkpoint, sessions, tmp_path, cut_run, damage, message, option
):
    folder = tmp_path / "checkpoint-1"
    shutil.copytree(cut_run, folder)
    tensors = load_file(folder / "adapter_model.safetensors")
    damage(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")
    with pytest.raises(InputError, match=message) as error:
        train(job(tiny_checkpoint, sessions, tmp_path / "out", **{option: folder}))
    assert str(folder) in str(error.value) and "\n" not in str(error.value)
    assert not (tmp_path / "out" / "logging.jsonl").exists()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda tensors: tensors.pop("classifier.bias"), "classifier.bias is missing"),
        (lambda tensors: tensors.update(extra=torch.zeros(1)), "extra is unknown"),
        (lambda tensors: tensors.update({"classifier.weight": torch.zeros(30, 32)}), r"\(30, 32\) instead of \(30, 64\)"),
    ],
    ids=["missing", "extra", "another size"],
)
def test_a_head_with_other_tensors_is_refused_by_name(tiny_checkpoint, sessions, tmp_path, cut_run, damage, message):
    folder = tmp_path / "checkpoint-1"
    shutil.copytree(cut_run, folder)
    tensors = load_file(folder / "turn_head.safetensors")
    damage(tensors)
    save_file(tensors, folder / "turn_head.safetensors")
    with pytest.raises(InputError, match=message) as error:
        train(job(tiny_checkpoint, sessions, tmp_path / "out", resume_from_checkpoint=folder))
    assert str(folder) in str(error.value) and "\n" not in str(error.value)


def test_a_head_of_another_hidden_size_is_refused(tiny_checkpoint, sessions, tmp_path, cut_run):
    folder = tmp_path / "checkpoint-1"
    shutil.copytree(cut_run, folder)
    content = json.loads((folder / "turn_head.json").read_text())
    content["head_config"]["hidden_size"] = 32
    (folder / "turn_head.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="the head has hidden_size 32, the language model 64"):
        train(job(tiny_checkpoint, sessions, tmp_path / "out", resume_from_checkpoint=folder))
