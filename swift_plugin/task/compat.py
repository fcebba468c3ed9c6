"""Faults of other packages that this task meets, each mended in one function that names it."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.utils.checkpoint
from torch.utils.data import DataLoader
from transformers import set_seed


def join_deepspeed_to_gloo() -> None:
    """Tell DeepSpeed of the process group that accelerate has made for a CPU.

    accelerate 1.15 calls DeepSpeed's own `init_distributed` for a GPU only (`PartialState.__init__`, "if not cpu"), so
    `zero.Init` would count one rank and find "train_batch_size is not equal to …" wrong under ZeRO-3.

    DeepSpeed 0.19 would also compile a faster all-reduce for the CPU, for minutes, and wait for ever where an earlier
    compilation was killed. Here a CPU is for trying things out: it goes without.
    """
    if torch.distributed.is_initialized():
        import deepspeed

        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
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


def forget_checkpointing_of_earlier_runs() -> None:
    """Let a run have the kind of gradient checkpointing that it asks for.

    ms-swift 4.6 puts its own `checkpoint` into torch once a process (`_fix_gradient_checkpointing`, "avoid double
    patching"): a second run would get `use_reentrant` of the first.
    """
    original = torch.utils.checkpoint.__dict__.pop("_old_checkpoint", None)
    if original is not None:
        torch.utils.checkpoint.checkpoint = original


_LOG_FOLDER = "TENSORBOARD_LOGGING_DIR"
_log_folder_of_user = os.environ.get(_LOG_FOLDER)


def forget_log_folder_of_earlier_runs() -> None:
    """Let a run write its TensorBoard events into its own folder.

    ms-swift 4.6 names the folder in the environment unless one is named there (`SftArguments._add_version`,
    "os.environ.setdefault"): a second run of a process would write into that of the first.
    """
    if _log_folder_of_user is None:
        os.environ.pop(_LOG_FOLDER, None)


def seed_ranks_apart(args) -> None:
    """Let each rank drop other units.

    transformers 5.19 seeds all ranks alike (`Trainer.__init__`, "set_seed(self.args.seed)"), after ms-swift has seeded
    each with its own.
    """
    set_seed(args.seed + args.process_index)


def draw_apart(loader: DataLoader) -> DataLoader:
    """Draw the seeds of a loader's workers from a generator of its own.

    torch 2.14 draws one from the global generator whenever a loader makes an iterator (`_BaseDataLoaderIter.__init__`).
    Workers that persist, as ms-swift's do, make one in the first epoch only: a run that is resumed later would draw once
    more than the run that went on, and drop other units from there.
    """
    generator = torch.Generator().manual_seed(0)  # nothing in this task's workers is random
    for part in (loader, getattr(loader, "base_dataloader", loader)):  # accelerate wraps the one for evaluation
        part.generator = generator
    return loader


@contextmanager
def every_row_on_a_rank(trainer) -> Iterator[None]:
    """Make the number of training rows a multiple of the ranks, with rows that count nothing.

    ms-swift 4.6 rounds down (`BatchSamplerShard.__init__`, "total_samples // self.world_size"): of 15 rows on two ranks,
    the last one would never be trained, in any epoch.
    """
    rows = trainer.train_dataset
    trainer.train_dataset = _FilledUp(rows, multiple=trainer.args.world_size)
    try:
        yield
    finally:
        trainer.train_dataset = rows


class _FilledUp(torch.utils.data.Dataset):
    """Rows, and behind them as many copies of the first as fill the last window, with all targets unknown."""

    def __init__(self, rows, *, multiple: int) -> None:
        self.rows = rows
        self.length = -(-len(rows) // multiple) * multiple

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> dict:
        if index < len(self.rows):
            return self.rows[index]
        row = self.rows[0]
        return {**row, "targets": np.full_like(row["targets"], np.nan, dtype=np.float32).tolist()}


@contextmanager
def weights_stay_whole() -> Iterator[None]:
    """Load a model that is no part of training, under whatever DeepSpeed stage training runs.

    With ZeRO-3 transformers cuts every model that `from_pretrained` makes into pieces, one a rank; see
    `is_deepspeed_zero3_enabled`.
    """
    from transformers.integrations import deepspeed as integration

    config, integration._hf_deepspeed_config_weak_ref = integration._hf_deepspeed_config_weak_ref, None
    try:
        yield
    finally:
        integration._hf_deepspeed_config_weak_ref = config
