"""Two processes with half the batch each do what one process does."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from task.helpers_run import Job, lora_b, relative_difference, train, train_processes

HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None
LAUNCHES = [
    "ddp",
    *(
        pytest.param(f"zero{stage}", marks=pytest.mark.skipif(not HAS_DEEPSPEED, reason="deepspeed is not installed"))
        for stage in (1, 2, 3)
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_two_processes_give_the_parameters_of_one(launched, launch):
    """Two steps of 8 blocks, the second a short window; SGD, so that the update of B is the gradient."""
    one, two = launched("one"), launched(launch)
    parameters = relative_difference(two.parameters(), one.parameters())
    update = relative_difference(lora_b(two.parameters()), lora_b(one.parameters()))
    losses = [abs(a - b) / b for a, b in zip(two.losses(), one.losses(), strict=True)]
    print(f"{launch}: parameters {parameters:.1e}, update of B {update:.1e}, losses {max(losses):.1e} of {one.losses()}")
    assert len(losses) == 2
    assert parameters < 1e-6
    assert update < 1e-5
    assert max(losses) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
def test_two_processes_give_the_metrics_of_one(launched, launch):
    """Five blocks of validation over two ranks with batches of two: three places are filled up and must not count."""
    one, two = launched("one").evaluations(), launched(launch).evaluations()
    assert len(one) == len(two) == 2
    names = [name for name in one[0] if not name.endswith(("runtime", "per_second", "epoch", "step"))]
    assert "eval_loss" in names and "eval_mAP" in names
    worst = max(abs(a[name] - b[name]) / (abs(b[name]) + 1e-12) for a, b in zip(two, one) for name in names)
    print(f"{launch}: {len(names)} metrics, largest relative difference {worst:.1e}, mAP {two[-1]['eval_mAP']:.6f}")
    assert worst < 1e-5


@pytest.mark.slow
def test_every_row_is_trained_where_ranks_do_not_divide_them(tiny_checkpoint, sessions, tmp_path):
    """Seven blocks on two ranks, in order and in one step: the place that is left over counts nothing."""
    options = {"train_dataloader_shuffle": "false", "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0}
    jobs = [
        Job(
            model=tiny_checkpoint,
            output=tmp_path / str(processes),
            train=sessions["short"],
            options={**options, "per_device_train_batch_size": 8 // processes},
        )
        for processes in (1, 2)
    ]
    one, two = train(jobs[0]), train_processes(jobs[1], processes=2)
    update = relative_difference(lora_b(two.parameters()), lora_b(one.parameters()))
    print(f"7 blocks on 2 ranks: update of B {update:.1e}, loss {two.losses()} {one.losses()}")
    assert update < 1e-5
    assert two.losses() == pytest.approx(one.losses(), rel=1e-6)


@pytest.mark.slow
def test_ranks_drop_other_units(launched):
    """Each rank goes on from a random state of its own."""
    folder = launched("ddp").folder / "checkpoint-1"
    states = [torch.load(folder / f"rng_state_{rank}.pth", weights_only=False)["cpu"] for rank in (0, 1)]
    assert not torch.equal(*states)
