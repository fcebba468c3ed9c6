"""What the run checks and records by itself: that the first step trains all it should, and `train_summary.json`."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import torch
from swift.callbacks import TrainerCallback
from swift.utils import get_logger

from swift_plugin.errors import InputError
from swift_plugin.files import write_json
from swift_plugin.task.checkpoint import library_versions
from swift_plugin.task.sharding import gathered

logger = get_logger()

SUMMARY_NAME = "train_summary.json"


class FirstStepCallback(TrainerCallback):
    """After the first step with a learning rate, every LoRA matrix B and the head have moved, or the run stops.

    Adapters that silently get no gradient cost others weeks: see huggingface/peft#1142.
    """

    def __init__(self, args, trainer) -> None:
        super().__init__(args, trainer)
        self._before: dict[str, torch.Tensor] | None = None

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self._before = self._snapshot()

    def on_pre_optimizer_step(self, args, state, control, **kwargs) -> None:
        self._rate = max(group["lr"] for group in self.trainer.optimizer.param_groups)

    def on_step_end(self, args, state, control, **kwargs) -> None:
        if self._before is None or self._rate == 0:  # a warm-up begins with rate 0
            return
        after, before, self._before = self._snapshot(), self._before, None
        still = [name for name, tensor in after.items() if torch.equal(tensor, before[name])]
        if still:
            raise InputError(
                f"after the first step {len(still)} of {len(after)} trainable tensors have not moved, first {still[0]}; "
                "they get no gradient: try --gradient_checkpointing false, and report this"
            )
        logger.info(f"first step: all {len(after)} of LoRA B and the head have moved")

    def _snapshot(self) -> dict[str, torch.Tensor]:
        watched = {
            name: parameter
            for name, parameter in self.trainer.model.named_parameters()
            if parameter.requires_grad and ("lora_B" in name or "turn_head." in name)
        }
        with gathered(list(watched.values())):
            return {name: parameter.detach().float().cpu().clone() for name, parameter in watched.items()}


class SummaryCallback(TrainerCallback):
    """Writes `train_summary.json` beside ms-swift's `logging.jsonl` when training ends."""

    def on_train_begin(self, args, state, control, **kwargs) -> None:
        self._started, self._first_step = time.monotonic(), state.global_step
        self._evaluation_seconds = 0.0
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs) -> None:
        self._evaluation_seconds += (metrics or {}).get("eval_runtime", 0.0)

    def on_train_end(self, args, state, control, **kwargs) -> None:
        peaks = self._peak_memory()
        if state.is_world_process_zero:
            write_json(Path(args.output_dir) / SUMMARY_NAME, self._summary(args, state, peaks))

    def _summary(self, args, state, peaks: list[float]) -> dict[str, Any]:
        trainer, options = self.trainer, args.turn_options
        seconds = time.monotonic() - self._started - self._evaluation_seconds
        updates = state.global_step - self._first_step
        evaluations = [entry for entry in state.log_history if "eval_loss" in entry]
        anchors_per_epoch = sum(len(tails) for tails in trainer.train_dataset["tails"])
        return {
            "schema_version": 1,
            "variant": _variant(options),
            "thinker_frozen": options.freeze_thinker,
            "head_frozen": options.freeze_head,
            "model": trainer.model.model_dir,
            "datasets": args.dataset,
            "val_datasets": args.val_dataset,
            "num_anchors": anchors_per_epoch,
            "initial_eval_loss": evaluations[0]["eval_loss"] if evaluations else None,
            "final_eval_loss": evaluations[-1]["eval_loss"] if evaluations else None,
            "best_eval_loss": min((entry["eval_loss"] for entry in evaluations), default=None),
            "seconds": seconds,  # of training; evaluation is counted apart
            "evaluation_seconds": self._evaluation_seconds,
            "updates": updates,
            "updates_per_second": updates / seconds,
            "anchors_per_second": anchors_per_epoch * (state.epoch or 0) * updates / max(state.global_step, 1) / seconds,
            "world_size": args.world_size,
            "per_device_train_batch_size": args.per_device_train_batch_size,
            "gradient_accumulation_steps": args.gradient_accumulation_steps,
            "global_batch_size": args.per_device_train_batch_size * args.gradient_accumulation_steps * args.world_size,
            "initial_adapter": args.adapters[0] if args.adapters else None,
            "initial_head": options.head_checkpoint or (args.adapters[0] if args.adapters else None),
            "resumed_from_step": self._first_step,
            "peak_cuda_allocated_gib": peaks,
            "online_tail": trainer.online_tail.summary() if trainer.online_tail else None,
            "best_metric": state.best_metric,
            "best_checkpoint": state.best_model_checkpoint,
            "checkpoints": sorted(path.name for path in Path(args.output_dir).glob("checkpoint-*")),
            "versions": library_versions(),
            "turn_options": dataclasses.asdict(options),
            "arguments": args.to_dict(),
            "history": state.log_history,
        }

    def _peak_memory(self) -> list[float]:
        """Peak of each rank in GiB, zeros without a GPU."""
        peak = torch.cuda.max_memory_allocated() / 1024**3 if torch.cuda.is_available() else 0.0
        tensor = torch.tensor([peak], device=self.trainer.args.device)
        return self.trainer.accelerator.gather(tensor).tolist()


def _variant(options) -> str:
    if options.freeze_thinker:
        return "frozen_thinker"
    return "thinker_lora_frozen_head" if options.freeze_head else "thinker_lora"
