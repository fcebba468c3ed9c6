"""From a checkpoint and a cache to probabilities, without ms-swift's training arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import send_to_device
from torch import nn
from torch.utils.data import DataLoader

from swift_plugin.errors import InputError
from swift_plugin.files import read_json
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.checkpoint import load_checkpoint, predictor_of
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.dataset import anchor_rows, group_by_block, target_index
from swift_plugin.task.online_tail import OnlineTail

ARGS_NAME = "args.json"


@dataclass
class PredictionBatch:
    """
    Attributes:
        probabilities: float32 [n, 10, 3].
        target_index: the step each anchor has seen last, int64 [n].
        targets: float32 [n, 10, 3], NaN where unknown.
    """

    probabilities: np.ndarray
    target_index: np.ndarray
    targets: np.ndarray


def model_of_checkpoint(checkpoint: Path) -> str:
    """The `--model` that a checkpoint was trained with, from ms-swift's `args.json` there.

    Raises:
        InputError: the file is missing or names no model.
    """
    arguments = _training_arguments(checkpoint)
    model = arguments.get("model_dir") or arguments.get("model")
    if not model:
        raise InputError(f"{checkpoint / ARGS_NAME}: names no model; pass --model")
    return model


def dtype_of_checkpoint(checkpoint: Path) -> str | None:
    """The `--torch_dtype` that a checkpoint was trained and evaluated with, where ms-swift's `args.json` is there."""
    return _training_arguments(checkpoint).get("torch_dtype")


def _training_arguments(checkpoint: Path) -> dict[str, Any]:
    for folder in (checkpoint, checkpoint.parent):
        if (folder / ARGS_NAME).is_file():
            return read_json(folder / ARGS_NAME)
    return {}


def load_predictor(
    checkpoint: Path, model_dir: Path, *, dtype: torch.dtype, device: str, attn_impl: str = "sdpa"
) -> nn.Module:
    """The trained model in evaluation mode."""
    model = TurnPredictor.load(model_dir, dtype=dtype, device_map=device, attn_implementation="sdpa")
    if attn_impl != "sdpa":
        model.set_attention(attn_impl)
    return load_checkpoint(model, checkpoint).eval().requires_grad_(False)


@torch.inference_mode()
def predict_session(
    model: nn.Module,
    manifest_path: Path,
    *,
    batch_size: int,
    num_workers: int = 0,
    shared: bool = True,
    online_tail: OnlineTail | None = None,
) -> Iterator[PredictionBatch]:
    """Every anchor of a session, in order of time; those without a future have NaN targets where it is missing.

    Args:
        model: from `load_predictor`.
        manifest_path: the session's `turn_manifest.json`.
        batch_size: blocks a batch.
        num_workers: processes that rebuild sequences.
        shared: anchors of a block share one history.
        online_tail: makes the tails from the media; otherwise they come from the cache.
    """
    rows = group_by_block(anchor_rows(manifest_path, require_future=False))
    packed = model.config._attn_implementation == "flex_attention"
    loader = DataLoader(
        rows,
        batch_size=batch_size,
        num_workers=num_workers,
        collate_fn=_Collate(
            OpenStreamCollator(shared=shared, packed=packed, tail_inputs=online_tail and online_tail.inputs)
        ),
    )
    device, dtype = next(model.parameters()).device, predictor_of(model).dtype
    for batch, indices in loader:
        if online_tail is not None:
            batch = online_tail.fill(batch)
        present, labels = batch.pop("present"), batch.pop("labels")
        # The Trainer evaluates float32 adapters on half-precision weights under autocast, so the same is done here.
        with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
            logits = model(**send_to_device(batch, device)).logits
        yield PredictionBatch(
            probabilities=logits.softmax(dim=-1).cpu().numpy(),
            target_index=indices,
            targets=labels[present][:, 1:].numpy(),
        )


class _Collate:
    """The collator, and beside its batch the anchors' steps."""

    def __init__(self, collator: OpenStreamCollator) -> None:
        self.collator = collator

    def __call__(self, rows: list[dict]) -> tuple[dict[str, torch.Tensor], np.ndarray]:
        steps = [target_index(row["block_index"], tail) for row in rows for tail in row["tails"]]
        return self.collator(rows), np.array(steps, dtype=np.int64)
