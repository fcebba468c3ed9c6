"""Two CPU processes under ZeRO 1, 2 and 3: what a checkpoint holds, going on from it, and a rank that fails."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from task.helpers_run import Job, Run, checkpoint_parameters, relative_difference, start, train_processes

from swift_plugin.task.predict import load_predictor

pytest.importorskip("deepspeed")
pytestmark = pytest.mark.slow

STAGES = ("zero1", "zero2", "zero3")
LAYERS, PROJECTIONS = 4, 7  # of the tiny checkpoint
EXACT = 1e-6  # float32 sums in another order
FAILING_RANK = '''
"""Rank 1 fails in its first step."""
import os
from pathlib import Path

from swift_plugin.task.trainer import TurnTrainer


def training_step(self, *args, **kwargs):
    Path(os.environ["FAILED"]).touch()
    raise RuntimeError("this rank was made to fail")


if os.environ.get("RANK") == "1":
    TurnTrainer.training_step = training_step
'''


@pytest.fixture(scope="module")
def job(tiny_checkpoint, sessions, tmp_path_factory):
    """Two steps of AdamW over two ranks, each saved."""

    def make(options: dict, val: Path | None = None, **turn) -> Job:
        defaults = {"max_steps": 2, "save_steps": 1, "per_device_train_batch_size": 2, "learning_rate": 1e-2}
        output = tmp_path_factory.mktemp("run") / "out"
        options = {**defaults, **options}
        return Job(model=tiny_checkpoint, output=output, train=sessions["short"], val=val, options=options, turn=turn)

    return make


@pytest.fixture(scope="module")
def trained(job):
    runs: dict[tuple, Run] = {}

    def get(stage: str, **turn) -> Run:
        key = (stage, *turn)
        if key not in runs:
            runs[key] = train_processes(job({"deepspeed": stage}, **turn), processes=2)
        return runs[key]

    return get


def engine_tensors(checkpoint: Path) -> dict[str, torch.Tensor]:
    """Model weights in DeepSpeed's own folder; its files are pickles, and these we have just written."""
    files = list(checkpoint.glob("global_step*/*model_states.pt"))
    assert files
    tensors = {}
    for file in files:
        state = torch.load(file, weights_only=False)
        tensors |= {**state["module"], **(state.get("frozen_param_fragments") or {})}
    return tensors


@pytest.mark.parametrize("stage", STAGES)
def test_a_checkpoint_is_a_plain_adapter_and_head_in_float32(trained, tiny_checkpoint, stage):
    last = trained(stage).last
    parameters = checkpoint_parameters(last)
    assert {tensor.dtype for tensor in parameters.values()} == {torch.float32}
    assert len(parameters) == 2 * LAYERS * PROJECTIONS + 2
    assert all(tensor.numel() and tensor.count_nonzero() for tensor in parameters.values())
    predictor = load_predictor(last, tiny_checkpoint, dtype=torch.float32, device="cpu")
    loaded = {name.replace(".default", ""): tensor for name, tensor in predictor.state_dict().items()}
    for name, tensor in parameters.items():
        assert torch.equal(loaded[name if name.startswith("base_model") else f"base_model.model.{name}"], tensor)


@pytest.mark.parametrize("stage", STAGES)
def test_deepspeeds_own_part_holds_no_base_weight(trained, stage):
    assert all("lora_" in name or "turn_head." in name for name in engine_tensors(trained(stage).last))


@pytest.mark.parametrize("stage", STAGES)
def test_a_resumed_run_ends_where_the_whole_one_does(trained, job, stage):
    whole = trained(stage)
    options = {"deepspeed": stage, "resume_from_checkpoint": whole.folder / "checkpoint-1"}
    resumed = train_processes(job(options), processes=2)
    assert resumed.last.name == "checkpoint-2"
    start_of_resumed = checkpoint_parameters(whole.folder / "checkpoint-1")
    assert relative_difference(start_of_resumed, whole.parameters()) > 1e-3
    assert relative_difference(resumed.parameters(), whole.parameters()) < EXACT


def test_all_stages_and_ddp_agree(trained, job):
    ddp = train_processes(job({}), processes=2)
    for stage in STAGES:
        assert relative_difference(trained(stage).parameters(), ddp.parameters()) < 1e-4, stage


def test_a_frozen_thinker_under_zero3_is_in_no_file_and_resumes(trained, job):
    turn = {"turn_freeze_thinker": True}
    whole = trained("zero3", **turn)
    assert all("turn_head." in name for name in engine_tensors(whole.last))
    assert not list(whole.last.glob("adapter*")) and not list(whole.last.glob("model*"))
    options = {"deepspeed": "zero3", "resume_from_checkpoint": whole.folder / "checkpoint-1"}
    resumed = train_processes(job(options, **turn), processes=2)
    heads = []
    for run in (resumed, whole):
        with safe_open(run.last / "turn_head.safetensors", framework="pt") as file:
            heads.append({name: file.get_tensor(name) for name in file.keys()})
    assert relative_difference(*heads) < EXACT


def test_bfloat16_with_a_users_own_file_keeps_float32_masters(job, sessions, tmp_path):
    """One type a group (ZeRO-3 asserts on two), more digits than bfloat16 in the file, and the best one read back."""
    file = tmp_path / "mine.json"
    zero = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": False}
    auto = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
    file.write_text(json.dumps({"bf16": {"enabled": "auto"}, "zero_optimization": zero, **dict.fromkeys(auto, "auto")}))
    options = {"deepspeed": file, "torch_dtype": "bfloat16", "load_best_model_at_end": "true", "max_steps": 1, "eval_steps": 1}
    run = train_processes(job(options, val=sessions["val"]), processes=2)
    parameters = run.parameters()
    assert {tensor.dtype for tensor in parameters.values()} == {torch.float32}
    rounded = {name: tensor.bfloat16().float() for name, tensor in parameters.items()}
    assert any(not torch.equal(rounded[name], parameters[name]) for name in parameters)


def test_a_rank_that_fails_ends_all_ranks_within_a_minute(job, tmp_path, monkeypatch):
    plugin, failed = tmp_path / "failing_rank.py", tmp_path / "failed"
    plugin.write_text(FAILING_RANK)
    monkeypatch.setenv("FAILED", str(failed))
    failing = job({})
    options = {**failing.options, "external_plugins": [failing.argv()[failing.argv().index("--external_plugins") + 1], plugin]}
    process = start(Job(model=failing.model, output=failing.output, train=failing.train, options=options), processes=2)
    try:
        while not failed.exists() and process.poll() is None:
            time.sleep(0.5)
        output, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "this rank was made to fail" in output
