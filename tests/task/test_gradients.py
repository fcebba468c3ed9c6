"""Every adapter gets a gradient under every kind of checkpointing, and what is frozen stays as it was, by hash."""

from __future__ import annotations

import pytest
import torch
from task.helpers_run import Job, checkpoint_parameters, digest, lora_b, relative_difference, train, untouched_process

from swift_plugin.errors import InputError

LAYERS, PROJECTIONS = 4, 7  # of the tiny checkpoint
CHECKPOINTING = {
    "off": {"gradient_checkpointing": "false"},
    "default": {"gradient_checkpointing": "true"},  # ms-swift then chooses reentrant, unless it is plain DDP
    "reentrant": {"gradient_checkpointing": "true", "gradient_checkpointing_kwargs": '{"use_reentrant": true}'},
    "not reentrant": {"gradient_checkpointing": "true", "gradient_checkpointing_kwargs": '{"use_reentrant": false}'},
}


@pytest.fixture(scope="module")
def first_step(tiny_checkpoint, sessions, tmp_path_factory):
    """One step of SGD by the kind of checkpointing."""
    runs = {}

    def get(kind: str):
        if kind not in runs:
            options = {**CHECKPOINTING[kind], "max_steps": 1, "optim": "sgd", "learning_rate": 0.1}
            output = tmp_path_factory.mktemp("run") / "out"
            runs[kind] = train(Job(model=tiny_checkpoint, output=output, train=sessions["short"], options=options))
        return runs[kind]

    return get


@pytest.mark.parametrize("kind", CHECKPOINTING)
def test_every_matrix_b_moves_and_nothing_frozen_does(first_step, kind):
    run = first_step(kind)
    trainable = {name for name, parameter in run.trainer.model.named_parameters() if parameter.requires_grad}
    after = run.trainer.model.state_dict()
    assert after.keys() == run.before.keys()
    moved = {name for name in after if digest(after[name]) != digest(run.before[name])}
    matrices_b = [name for name in after if "lora_B" in name]
    frozen = after.keys() - trainable
    print(f"{kind}: {len(moved & set(matrices_b))} of {len(matrices_b)} B moved, {len(moved & frozen)} of {len(frozen)} frozen")
    assert len(matrices_b) == LAYERS * PROJECTIONS
    assert set(matrices_b) <= moved
    assert {"base_model.model.turn_head.classifier.weight", "base_model.model.turn_head.classifier.bias"} <= moved
    assert not moved & frozen
    assert all(torch.count_nonzero(after[name]) for name in matrices_b)


@pytest.mark.parametrize("kind", [kind for kind in CHECKPOINTING if kind != "off"])
def test_checkpointing_gives_the_gradient_of_the_plain_run(first_step, kind):
    difference = relative_difference(lora_b(first_step(kind).parameters()), lora_b(first_step("off").parameters()))
    print(f"{kind}: update of B differs by {difference:.1e}")
    assert difference < 1e-6


def test_each_run_of_a_process_has_the_kind_that_it_asks_for(tiny_checkpoint, sessions, tmp_path, monkeypatch):
    """Otherwise the tests above would try one kind three times, and so would a notebook."""
    import torch.utils.checkpoint
    from swift.pipelines import sft_main

    seen, original = [], torch.utils.checkpoint.checkpoint

    def watched(*args, use_reentrant=None, **kwargs):
        seen[-1].add(use_reentrant)
        return original(*args, use_reentrant=use_reentrant, **kwargs)

    monkeypatch.setattr(torch.utils.checkpoint, "checkpoint", watched)
    with untouched_process():
        for kind in ("default", "not reentrant", "reentrant"):
            seen.append(set())
            options = {**CHECKPOINTING[kind], "max_steps": 1, "save_strategy": "no"}
            sft_main(Job(model=tiny_checkpoint, output=tmp_path / kind, train=sessions["short"], options=options).argv())
    assert seen == [{True}, {False}, {True}]


def test_a_run_whose_adapters_get_no_gradient_stops(tiny_checkpoint, sessions, tmp_path, monkeypatch):
    """Embeddings without a gradient under reentrant checkpointing: the loss falls, since the head learns."""
    ask_for_gradient = torch.Tensor.requires_grad_
    monkeypatch.setattr(
        torch.Tensor,
        "requires_grad_",
        lambda tensor, value=True: tensor if tensor.dim() == 3 else ask_for_gradient(tensor, value),  # [B, L, H]
    )
    options = {**CHECKPOINTING["reentrant"], "max_steps": 3}
    job = Job(model=tiny_checkpoint, output=tmp_path / "out", train=sessions["short"], options=options)
    dead = (LAYERS - 1) * PROJECTIONS  # the last layer runs at the readouts alone, and is not checkpointed
    message = f"after the first step {dead} of 30 trainable tensors have not moved, first .*lora_B"
    with pytest.raises(InputError, match=message) as error:
        train(job)
    assert "\n" not in str(error.value)
    assert not list(job.output.glob("checkpoint-*"))


def test_the_check_waits_for_a_rate_above_zero(tiny_checkpoint, sessions, tmp_path):
    """A warm-up begins with rate 0: nothing moves in step 1, and that is no fault."""
    options = {
        "per_device_train_batch_size": 2,
        "max_steps": 3,
        "save_steps": 1,
        "warmup_steps": 2,
        "lr_scheduler_type": "constant_with_warmup",
    }
    run = train(Job(model=tiny_checkpoint, output=tmp_path / "out", train=sessions["short"], options=options))
    first, second = (torch.load(run.folder / f"checkpoint-{n}" / "scheduler.pt", weights_only=True)["_last_lr"] for n in (1, 2))
    assert first[0] < second[0]
    one, two = (checkpoint_parameters(run.folder / f"checkpoint-{n}") for n in (1, 2))
    assert not any(tensor.any() for tensor in lora_b(one).values())
    assert all(tensor.any() for tensor in lora_b(two).values())
