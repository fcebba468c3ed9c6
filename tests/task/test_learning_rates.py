"""The head's own rate is seen in what the update does, not only in the log.

Adam's first update is rate · g / (|g| + ε), so every element moves by its rate as long as |g| is far above ε.
"""

from __future__ import annotations

import pytest
import torch
from task.helpers_run import Job, Run, checkpoint_parameters, lora_b, relative_difference, train
from task.test_ranks import LAUNCHES

RATE, HEAD_RATE = 1e-4, 3e-3
HEAD = "turn_head.classifier.weight"


def moved(run: Run, folder: str, name: str) -> torch.Tensor:
    """How far each element of a tensor has moved since before training."""
    start = next(tensor for full, tensor in run.before.items() if full.replace(".default", "").endswith(name))
    return (checkpoint_parameters(run.folder / folder)[name] - start).abs()


def test_adams_first_update_has_the_size_of_each_rate(tiny_checkpoint, sessions, tmp_path):
    options = {"max_steps": 1, "learning_rate": RATE, "weight_decay": 0}
    job = Job(
        model=tiny_checkpoint,
        output=tmp_path / "out",
        train=sessions["short"],
        options=options,
        turn={"turn_head_learning_rate": HEAD_RATE},
    )
    run = train(job)
    head = moved(run, "checkpoint-1", HEAD)
    bias = moved(run, "checkpoint-1", "turn_head.classifier.bias")
    matrix_b = torch.cat([tensor.flatten() for tensor in lora_b(run.parameters()).values()]).abs()
    print(f"median move: head {head.median():.3e}, its bias {bias.median():.3e}, B {matrix_b.median():.3e}")
    assert head.median().item() == pytest.approx(HEAD_RATE, rel=1e-3)
    assert bias.median().item() == pytest.approx(HEAD_RATE, rel=1e-3)
    assert matrix_b.median().item() == pytest.approx(RATE, rel=1e-3)
    assert head.max() < HEAD_RATE * 1.001 and matrix_b.max() < RATE * 1.001
    logged = run.history[0]
    assert (logged["learning_rate"], logged["head_learning_rate"]) == (RATE, HEAD_RATE)


def test_without_a_rate_of_its_own_the_head_has_that_of_the_adapters(tiny_checkpoint, sessions, tmp_path):
    options = {"max_steps": 1, "learning_rate": RATE, "weight_decay": 0}
    run = train(Job(model=tiny_checkpoint, output=tmp_path / "out", train=sessions["short"], options=options))
    assert moved(run, "checkpoint-1", HEAD).median().item() == pytest.approx(RATE, rel=1e-3)
    assert run.history[0]["head_learning_rate"] == RATE


@pytest.fixture(scope="module")
def head_at_the_rate_of_the_adapters(tiny_checkpoint, sessions, tmp_path_factory):
    """The first step of the runs of `launched`, with 0.1 for the head too."""
    options = {"per_device_train_batch_size": 8, "max_steps": 1, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0}
    output = tmp_path_factory.mktemp("run") / "out"
    return train(Job(model=tiny_checkpoint, output=output, train=sessions["even"], options=options))


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["one", *LAUNCHES])
def test_three_times_the_rate_moves_the_head_three_times_as_far(launched, head_at_the_rate_of_the_adapters, launch):
    """SGD's update is rate times gradient, and the first gradient does not depend on the rates."""
    reference = head_at_the_rate_of_the_adapters
    start = next(tensor for name, tensor in reference.before.items() if name.endswith(HEAD))
    after = checkpoint_parameters(launched(launch).folder / "checkpoint-1")
    before = checkpoint_parameters(reference.folder / "checkpoint-1")
    head = ((after[HEAD] - start).norm() / (before[HEAD] - start).norm()).item()
    adapters = relative_difference(lora_b(after), lora_b(before))
    print(f"{launch}: head moves {head:.5f} times as far, B differs by {adapters:.1e}")
    assert head == pytest.approx(3.0, rel=1e-4)
    assert adapters < 1e-5
