"""Small sessions, and runs over two ranks that several files look at, each made once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from task.helpers_run import Job, Run, make_small_cache, train, train_processes

# Seconds of sound: "long" has 15 blocks, "even" 14, "short" 7, "val" 5 with an odd number of anchors; the last block has
# fewer than ten.
LENGTHS = {"long": 31.0, "even": 29.0, "short": 15.0, "val": 11.4}


@pytest.fixture(scope="session")
def sessions(tiny_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Manifests by name."""
    folder = tmp_path_factory.mktemp("sessions")
    return {
        name: make_small_cache(folder / name, tiny_checkpoint, end=end, seed=seed)
        for seed, (name, end) in enumerate(LENGTHS.items())
    }


@pytest.fixture(scope="session")
def launched(tiny_checkpoint, sessions, tmp_path_factory) -> Callable[[str], Run]:
    """An epoch of two steps with 8 blocks each, evaluated, by its launch: "one", "ddp", "zero1", "zero2", "zero3".

    SGD, so that the update is the gradient; the head's rate is three times that of the adapters.
    """
    runs: dict[str, Run] = {}

    def get(launch: str) -> Run:
        if launch not in runs:
            processes = 1 if launch == "one" else 2
            options = {
                "per_device_train_batch_size": 8 // processes,
                "per_device_eval_batch_size": 2,
                "save_steps": 1,
                "eval_steps": 1,
                "optim": "sgd",
                "learning_rate": 0.1,
                "max_grad_norm": 0,
                **({"deepspeed": launch} if launch.startswith("zero") else {}),
            }
            job = Job(
                model=tiny_checkpoint,
                output=tmp_path_factory.mktemp(launch) / "out",
                train=sessions["even"],
                val=sessions["val"],
                options=options,
                turn={"turn_head_learning_rate": 0.3},
            )
            runs[launch] = train(job) if processes == 1 else train_processes(job, processes=processes)
        return runs[launch]

    return get
