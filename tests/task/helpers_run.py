"""Runs of the real `swift sft` pipeline: inside the test's process, or in processes of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from helpers import cache_arguments, tiny_encoder
from safetensors.torch import load_file

from swift_plugin.cache.builder import build_cache
from swift_plugin.cache.conversation import tokenize_conversation
from swift_plugin.cache.manifest import MANIFEST_NAME

PLUGIN = Path(__file__).resolve().parents[2] / "swift_plugin" / "plugin.py"


def make_small_cache(folder: Path, checkpoint: Path, *, end: float, seed: int = 0, memory_seconds: float = 2) -> Path:
    """A cache of sound alone, short words and one block of history, so that a step takes a second; gives its manifest."""
    encoder = tiny_encoder(checkpoint)
    arguments = cache_arguments(
        folder, checkpoint, encoder=encoder, memory_seconds=memory_seconds, video_fps=None, spans=[(0.0, end)], seed=seed
    )
    conversation = tokenize_conversation(encoder.features.processor, system="s", question="q", has_video=False)
    contract = dataclasses.replace(arguments["contract"], system="s", question="q")
    build_cache(**{**arguments, "conversation": conversation, "contract": contract})
    return arguments["folder"] / MANIFEST_NAME


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run: model, sessions, and the options that every run of these tests has.

    Attributes:
        options: of ms-swift, without their dashes; they replace the defaults here.
        turn: options of the plug-in, for `--model_kwargs`.
    """

    model: Path
    output: Path
    train: Path
    val: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    turn: dict[str, Any] = field(default_factory=dict)

    def argv(self) -> list[str]:
        options = {
            "external_plugins": PLUGIN,
            "model": self.model,
            "model_type": "qwen2_5_omni_turn",
            "tuner_type": "turn",
            "torch_dtype": "float32",
            "use_cpu": "true",
            "check_model": "false",
            "dataset": self.train,
            "output_dir": self.output,
            "add_version": "false",
            "report_to": "none",
            "dataloader_num_workers": 0,
            "gradient_checkpointing": "false",
            "logging_steps": 1,
            "num_train_epochs": 1,
            "learning_rate": 1e-3,
            "lr_scheduler_type": "constant",
            "lora_dropout": 0,
            "per_device_train_batch_size": 4,
            "gradient_accumulation_steps": 1,
            **({} if self.val is None else {"val_dataset": self.val}),
            **self.options,
        }
        turn = {"turn_head_dropout": 0.0, **self.turn}
        words = ["--model_kwargs", json.dumps(turn)]
        for name, value in options.items():
            words += [f"--{name}", *([str(v) for v in value] if isinstance(value, (list, tuple)) else [str(value)])]
        return words


@dataclass
class Run:
    """What a run left behind.

    Attributes:
        folder: its output folder.
        trainer: the Trainer, for runs inside the test's process.
        before: copies of all tensors of the model just before training, by name.
    """

    folder: Path
    trainer: Any = None
    before: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def last(self) -> Path:
        return max(self.folder.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))

    @property
    def history(self) -> list[dict[str, float]]:
        return json.loads((self.last / "trainer_state.json").read_text())["log_history"]

    def losses(self) -> list[float]:
        return [entry["loss"] for entry in self.history if "loss" in entry]

    def evaluations(self) -> list[dict[str, float]]:
        return [entry for entry in self.history if "eval_loss" in entry]

    def parameters(self) -> dict[str, torch.Tensor]:
        """Adapter and head of the last checkpoint."""
        return checkpoint_parameters(self.last)


def checkpoint_parameters(folder: Path) -> dict[str, torch.Tensor]:
    head = {f"turn_head.{name}": tensor for name, tensor in load_file(folder / "turn_head.safetensors").items()}
    return {**load_file(folder / "adapter_model.safetensors"), **head}


def lora_b(parameters: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The matrices that began at zero: what stands in them is the update alone."""
    return {name: tensor for name, tensor in parameters.items() if "lora_B" in name}


def relative_difference(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> float:
    """|one - other| / |other| over all tensors together."""
    assert one.keys() == other.keys()
    difference = sum((one[name].double() - other[name].double()).square().sum() for name in other)
    return (difference / sum(other[name].double().square().sum() for name in other)).sqrt().item()


def digest(tensor: torch.Tensor) -> str:
    return hashlib.sha256(tensor.detach().contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def train(job: Job) -> Run:
    """Run in this process, and leave its environment and torch as they were."""
    from swift.pipelines import SwiftSft

    run = Run(folder=job.output)

    class Watched(SwiftSft):
        def train(self, trainer):
            run.trainer = trainer
            run.before = {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}
            return super().train(trainer)

    with untouched_process():
        Watched(job.argv()).main()
    return run


@contextmanager
def untouched_process() -> Iterator[None]:
    """ms-swift writes options into the environment, and puts its own `checkpoint` into torch once a process."""
    environment = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(environment)
        if hasattr(torch.utils.checkpoint, "_old_checkpoint"):
            torch.utils.checkpoint.checkpoint = torch.utils.checkpoint._old_checkpoint
            del torch.utils.checkpoint._old_checkpoint


def start(job: Job, *, processes: int = 1) -> subprocess.Popen:
    """Start `swift sft` in processes of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    if processes > 1:
        environment |= {"NPROC_PER_NODE": str(processes), "MASTER_PORT": str(_free_port())}
    command = [sys.executable, "-m", "swift.cli.main", "sft", *job.argv()]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def train_processes(job: Job, *, processes: int) -> Run:
    """Run `swift sft` to its end with that many ranks.

    Raises:
        AssertionError: it failed; shows the end of what it wrote.
    """
    process = start(job, processes=processes)
    output, _ = process.communicate()
    assert process.returncode == 0, output[-4000:]
    return Run(folder=job.output)


def _free_port() -> int:
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
