"""Training arguments of the task: ms-swift fills them before it loads a model, so here the whole run is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift.trainers import TrainingArguments
from swift.utils import get_logger

from swift_plugin.cache.manifest import Manifest, check_same_contract
from swift_plugin.config import PREFIX, TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import read_head
from swift_plugin.task.compat import join_deepspeed_to_gloo

logger = get_logger()

TUNER_TYPE = "turn"
OPTIMIZER = "turn"
EVAL_METRIC = "turn"
SUMMARY_CALLBACK = "turn_summary"
FIRST_STEP_CALLBACK = "turn_first_step"


@dataclass
class TurnTrainingArguments(TrainingArguments):
    """ms-swift's training arguments, and those of its `sft` command that this task must see.

    Raises:
        InputError: all contradictions between options at once, each with its reason.
    """

    model_kwargs: dict[str, Any] | None = None
    dataset: list[str] = field(default_factory=list)
    val_dataset: list[str] = field(default_factory=list)
    split_dataset_ratio: float = 0.0
    adapters: list[str] = field(default_factory=list)
    modules_to_save: list[str] = field(default_factory=list)
    packing: bool = False
    padding_free: bool = False
    streaming: bool = False
    sequence_parallel_size: int = 1

    def __post_init__(self) -> None:
        self.turn_options = TurnOptions.from_environment()
        problems = [*self.turn_options.problems(), *self._problems()]
        if problems:
            raise InputError("contradictory or wrong options: " + "; ".join(problems))
        self._check_sessions()
        self.optimizer = OPTIMIZER
        self.eval_metric = EVAL_METRIC
        self.label_names = ["labels"]  # under PEFT the Trainer finds none by itself (huggingface/transformers#33420)
        self.callbacks = [*self.callbacks, FIRST_STEP_CALLBACK, SUMMARY_CALLBACK]
        if self.turn_options.freeze_thinker:
            self.gradient_checkpointing = self.vit_gradient_checkpointing = False  # ms-swift's default; no gradient flows
        if self.use_cpu and self.fp16:
            self.fp16 = False  # ms-swift turns float32 weights into float16 autocast, which a CPU does not have
            logger.info("Setting args.fp16: False, since a CPU computes in the type of the weights.")
        super().__post_init__()
        if self.use_cpu and self.deepspeed:
            join_deepspeed_to_gloo()

    def _problems(self) -> list[str]:
        options, found = self.turn_options, []
        for key in self.model_kwargs or {}:
            if not key.upper().startswith(PREFIX):
                found.append(f"--model_kwargs {key}: options of this plug-in begin with turn_")
        if self.tuner_type != TUNER_TYPE:
            found.append(f"--tuner_type {self.tuner_type}: add --tuner_type {TUNER_TYPE}, which tunes this task's model")
        if self.optimizer not in (None, OPTIMIZER):
            found.append(f"--optimizer {self.optimizer}: only {OPTIMIZER} gives the head its own rate; drop it")
        if self.eval_metric not in (None, EVAL_METRIC):
            found.append(f"--eval_metric {self.eval_metric}: only {EVAL_METRIC} reads this task's output; drop it")
        if self.loss_type is not None:
            found.append(f"--loss_type {self.loss_type}: the task has its own loss; see the turn_ options")
        if self.modules_to_save:
            found.append(f"--modules_to_save {' '.join(self.modules_to_save)}: the head is always saved; drop it")
        for name, off in (("packing", False), ("padding_free", False), ("streaming", False), ("sequence_parallel_size", 1)):
            if getattr(self, name) != off:
                found.append(f"--{name} {getattr(self, name)}: sequences of this task are laid out by its collator; drop it")
        if options.freeze_thinker and self.adapters:
            found.append("turn_freeze_thinker with --adapters: a frozen Thinker has no adapter; start from turn_head_checkpoint")
        if options.lora_last_n_layers and self.adapters:
            found.append("turn_lora_last_n_layers with --adapters: the adapter's own configuration names its layers; drop one")
        if options.freeze_head and not (options.head_checkpoint or self.adapters or self.resume_from_checkpoint):
            found.append("turn_freeze_head: a new head would stay random; add turn_head_checkpoint")
        if options.target and len(self.dataset) + len(self.val_dataset) != 1:
            found.append("turn_target replaces the targets of one session; pass one --dataset")
        if self.deepspeed and isinstance(self.deepspeed, dict) and "optimizer" in self.deepspeed:
            found.append("the DeepSpeed file has an optimizer of its own, which knows no head rate; take that part out")
        if options.head_checkpoint:
            try:
                read_head(Path(options.head_checkpoint))
            except InputError as error:
                found.append(str(error))
        return found

    def _check_sessions(self) -> None:
        """One contract for all sessions, and none in both training and validation."""
        training, validation = (_manifests(paths) for paths in (self.dataset, self.val_dataset))
        check_same_contract({**training, **validation})
        for path, manifest in training.items():
            for other_path, other in validation.items():
                if manifest.overlaps(other):
                    raise InputError(
                        f"{other_path} in --val_dataset covers the same time of the same recording as {path} in --dataset; "
                        "validate on other sessions"
                    )


def _manifests(datasets: list[str]) -> dict[Path, Manifest]:
    paths = [Path(dataset.rsplit("#", 1)[0]).resolve() for dataset in datasets]
    return {path: Manifest.load(path) for path in paths}
