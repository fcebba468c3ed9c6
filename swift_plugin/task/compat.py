"""Faults of other packages that this task meets, each mended in one function that names it."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def join_deepspeed_to_gloo() -> None:
    """Tell DeepSpeed of the process group that accelerate has made for a CPU.

    accelerate 1.15 calls DeepSpeed's own `init_distributed` for a GPU only (`PartialState.__init__`, "if not cpu"), so
    `zero.Init` would count one rank and find "train_batch_size is not equal to …" wrong under ZeRO-3.
    """
    if torch.distributed.is_initialized():
        import deepspeed

        deepspeed.init_distributed(dist_backend="gloo")


@contextmanager
def engine_state_without_frozen(engine) -> Iterator[None]:
    """DeepSpeed's own part of a checkpoint holds no base weight.

    transformers 5.19 asks for this where the model is a `PeftModel` only (`Trainer._save_optimizer_and_scheduler`), so a
    frozen Thinker would be written into every checkpoint (deepspeedai/DeepSpeed#3090).
    """
    engine.save_checkpoint = functools.partial(engine.save_checkpoint, exclude_frozen_parameters=True)
    try:
        yield
    finally:
        del engine.save_checkpoint


@contextmanager
def engine_state_may_lack_frozen() -> Iterator[None]:
    """The counterpart in loading: what `engine_state_without_frozen` has left out is not missed."""
    from transformers import trainer

    load = trainer.deepspeed_load_checkpoint

    def load_without_frozen(engine, path, load_module_strict=True):
        return load(engine, path, load_module_strict=False)

    trainer.deepspeed_load_checkpoint = load_without_frozen
    try:
        yield
    finally:
        trainer.deepspeed_load_checkpoint = load
