"""`TurnTrainer`: ms-swift's Trainer with this task's loss, its exact mean, and its checkpoints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from swift.trainers import Trainer
from swift.utils import get_logger
from torch._dynamo.utils import counters
from torch.utils.data import DataLoader

from swift_plugin.cache.fingerprint import check_weights
from swift_plugin.errors import InputError
from swift_plugin.model.loss import loss_weight, multi_horizon_loss, transition_loss, transition_weight
from swift_plugin.task.arguments import load_manifests
from swift_plugin.task.checkpoint import predictor_of, reload_checkpoint
from swift_plugin.task.collator import OpenStreamCollator
from swift_plugin.task.metrics import ABSENT
from swift_plugin.task.compat import (
    draw_apart,
    engine_state_may_lack_frozen,
    engine_state_without_frozen,
    every_row_on_a_rank,
    forget_checkpointing_of_earlier_runs,
    seed_ranks_apart,
)
from swift_plugin.task.online_tail import OnlineTail
from swift_plugin.task.optimizer import HEAD_GROUP
from swift_plugin.task.sharding import checkpoint_tensors
from swift_plugin.task.tail_inputs import TAIL

logger = get_logger()


class TurnTrainer(Trainer):
    def __init__(self, model, args, *positional, **kwargs) -> None:
        self._packed = predictor_of(model).config._attn_implementation == "flex_attention"
        manifests = load_manifests([*args.dataset, *args.val_dataset])
        check_weights(manifests, Path(model.model_dir))
        self.online_tail = None
        if args.turn_options.online_tail:
            self.online_tail = OnlineTail(
                manifests, Path(model.model_dir), args.turn_options, device=args.device, local_rank=max(args.local_rank, 0)
            )
        forget_checkpointing_of_earlier_runs()
        super().__init__(model, args, *positional, **kwargs)
        seed_ranks_apart(args)
        # `compute_loss` divides by what the whole step holds, so nothing may divide again (transformers#37766).
        self.model_accepts_loss_kwargs = True
        self.loss_config = args.turn_options.loss_config()
        self._anchors_seen, self._logged_at = 0, time.monotonic()
        self._fuse_layers(args.turn_options.fused_layers)

    def _fuse_layers(self, wanted: bool | None) -> None:
        """Fuse and compile the decoder layers: by default on a GPU, where it is faster by far.

        Raises:
            InputError: asked for by name, and not to be had with these adapters or this engine.
        """
        on_gpu = self.args.device.type == "cuda"
        if not (on_gpu if wanted is None else wanted):
            return
        reason = predictor_of(self.model).fuse_layers(compile=on_gpu)
        if reason is None:
            logger.info(f"decoder layers: fused{' and compiled' if on_gpu else ''}")
        elif wanted:
            raise InputError(f"turn_fused_layers: not possible here, {reason}; drop it")
        else:
            logger.info(f"decoder layers: transformers' and PEFT's own, since {reason}")

    def _get_data_collator(self, args, template) -> OpenStreamCollator:
        return OpenStreamCollator(
            shared=args.turn_options.layout == "shared",
            packed=self._packed,
            tail_inputs=self.online_tail and self.online_tail.inputs,
        )

    def train(self, *args, **kwargs):
        try:
            return super().train(*args, **kwargs)
        finally:
            if self.online_tail is not None:
                self.online_tail.stop()

    def get_batch_samples(self, epoch_iterator, num_batches: int, device: torch.device):
        """The batches of an optimizer step; with an online tail a thread fills in the next ones meanwhile."""
        if self.online_tail is not None:
            epoch_iterator = self.online_tail.ahead(epoch_iterator)
        return super().get_batch_samples(epoch_iterator, num_batches, device)

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        return super()._prepare_inputs(self.online_tail.fill_now(inputs) if TAIL in inputs else inputs)

    def get_train_dataloader(self, skip_batches: int = 0) -> DataLoader:
        with every_row_on_a_rank(self):
            return draw_apart(super().get_train_dataloader(skip_batches))

    def _get_dataloader(self, *args, **kwargs) -> DataLoader:
        """The loader for evaluation."""
        return draw_apart(super()._get_dataloader(*args, **kwargs))

    def _get_num_items_in_batch(self, batch_samples: list[dict], device: torch.device) -> torch.Tensor | None:
        """The denominators of a whole optimizer step, over its batches and over all ranks, float32 [2].

        First the weight of the known anchor-horizons, then that of the known transitions.
        """
        if not batch_samples:
            return None
        weights = torch.stack([self._weights(batch["labels"][batch["present"]]) for batch in batch_samples]).sum(dim=0)
        weights = weights.to(device)
        return self.accelerator.reduce(weights, reduction="sum") if self.args.world_size > 1 else weights

    def _weights(self, labels: torch.Tensor) -> torch.Tensor:
        return torch.stack([loss_weight(labels[:, 1:], self.loss_config), transition_weight(labels, self.loss_config)])

    def compute_loss(self, model, inputs: dict[str, torch.Tensor], return_outputs=False, num_items_in_batch=None):
        """The step's mean over known anchor-horizons: each batch adds its part of the sum.

        The gradient of ranks is averaged, so each rank's part counts `world_size` times.
        """
        present = inputs.pop("present")
        labels = inputs.pop("labels")[present]  # [N, 11, 3]
        outputs = model(**inputs)
        if num_items_in_batch is None:
            weights, ranks = self._weights(labels), 1
        else:
            weights, ranks = num_items_in_batch, self.accelerator.num_processes
            self._anchors_seen += len(labels)
        # A step without a single known row has loss 0, not 0 / 0.
        main_weight, transition_weight_ = weights.clamp(min=torch.finfo(weights.dtype).tiny)
        loss = multi_horizon_loss(outputs.logits, labels[:, 1:], self.loss_config) / main_weight
        if outputs.transition_logits is not None:
            auxiliary = transition_loss(outputs.transition_logits, labels, self.loss_config) / transition_weight_
            loss = loss + self.loss_config.transition_weight * auxiliary
        loss = loss * ranks
        return (loss, outputs) if return_outputs else loss

    @torch.no_grad()
    def prediction_step(self, model, inputs, prediction_loss_only: bool, ignore_keys=None):
        """Loss, logits [rows, 10, 10, 3] (with the auxiliary also [rows, 10, 10]) and labels [rows, 10, 11, 3].

        There is one entry a row of the dataset: rows are what the evaluation loop gathers over ranks and counts once. A
        row with fewer than ten anchors is filled up, and its labels say so.
        """
        inputs = self._prepare_inputs(inputs)
        present, labels = inputs["present"], inputs["labels"]
        with self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        if prediction_loss_only:
            return loss, None, None
        outputs = [tensor for tensor in (outputs.logits, outputs.transition_logits) if tensor is not None]
        filled = [tensor.new_zeros(*present.shape, *tensor.shape[1:]) for tensor in outputs]
        for whole, tensor in zip(filled, outputs):
            whole[present] = tensor
        labels = labels.masked_fill(~present[:, :, None, None], ABSENT)
        return loss.detach(), tuple(filled) if len(filled) > 1 else filled[0], labels

    def log(self, logs: dict[str, float], *args, **kwargs) -> None:
        if "loss" in logs and self.optimizer is not None:
            logs.update(self._head_rate())
            now = time.monotonic()
            anchors = self._anchors_seen * self.accelerator.num_processes
            if self.args.device.type == "cuda":
                logs["compiled_graphs"] = counters["stats"]["unique_graphs"]  # grows while lengths are new, then stays
            logs["anchors_per_second"] = round(anchors / (now - self._logged_at), 3)
            if self.online_tail is not None:
                logs.update(self.online_tail.report(seconds=now - self._logged_at))
            self._anchors_seen, self._logged_at = 0, now
        super().log(logs, *args, **kwargs)

    def _head_rate(self) -> dict[str, float]:
        rates = [group["lr"] for group in self.optimizer.param_groups if group.get("name") == HEAD_GROUP]
        return {"head_learning_rate": float(rates[0])} if rates else {}

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model=None) -> None:
        reload_checkpoint(self.model, Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        reload_checkpoint(self.model, Path(self.state.best_model_checkpoint))

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Under DeepSpeed only adapters and head are gathered, not the whole model on every rank."""
        if not self.is_deepspeed_enabled:
            super().save_model(output_dir, _internal_call)
            return
        tensors = checkpoint_tensors(self.model)
        if self.args.should_save:
            self._save(output_dir, state_dict=tensors)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if not self.is_deepspeed_enabled:
            super()._save_optimizer_and_scheduler(output_dir)
            return
        with engine_state_without_frozen(self.model_wrapped):
            super()._save_optimizer_and_scheduler(output_dir)

    @contextmanager
    def _patch_deepspeed_load_checkpoint(self) -> Iterator[None]:
        """ms-swift's own place for this, around the whole of `train`."""
        with engine_state_may_lack_frozen() if self.is_deepspeed_enabled else nullcontext():
            with super()._patch_deepspeed_load_checkpoint():
                yield
