"""Training arguments of the task: ms-swift fills them before it loads a model, so here the whole run is checked."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift.trainers import TrainingArguments
from swift.utils import get_logger

from swift_plugin.cache.manifest import Manifest, check_same_contract
from swift_plugin.config import PREFIX, TurnOptions, forget_options_of_earlier_runs
from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import read_head
from swift_plugin.task.checkpoint import ADAPTER_CONFIG
from swift_plugin.task.compat import forget_log_folder_of_earlier_runs, join_deepspeed_to_gloo
from swift_plugin.task.metrics import metric_names

logger = get_logger()

TUNER_TYPE = "turn"
OPTIMIZER = "turn"
EVAL_METRIC = "turn"
SUMMARY_CALLBACK = "turn_summary"
FIRST_STEP_CALLBACK = "turn_first_step"

_RESUMED = ("trainer_state.json", "scheduler.pt")
_LOWER_IS_BETTER = ("brier", "ece")

# Reason -> options of ms-swift with the values that this task can do with.
_UNUSED = {
    "sequences of this task are laid out by its collator": {
        "packing": False,
        "padding_free": False,
        "streaming": False,
        "sequence_parallel_size": 1,
        "group_by_length": False,
    },
    "the task has its own loss; see the turn_ options": {"loss_type": None},
    "the head is always saved, and nothing else is beside the adapter": {"modules_to_save": []},
    "what learns is chosen by turn_freeze_thinker, turn_freeze_head and turn_lora_last_n_layers": {
        "freeze_llm": False,
        "freeze_parameters": [],
        "freeze_parameters_regex": None,
        "freeze_parameters_ratio": 0.0,
        "trainable_parameters": [],
        "trainable_parameters_regex": None,
        "target_parameters": None,
    },
    "it trains biases of the base model, which no checkpoint holds": {"lora_bias": "none"},
    "the language model is loaded as it is": {"quant_method": None},
}


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
    lora_rank: int = 8
    lora_bias: str = "none"
    init_weights: bool | str = True
    target_parameters: list[str] | None = None
    modules_to_save: list[str] = field(default_factory=list)
    freeze_llm: bool = False
    freeze_parameters: list[str] = field(default_factory=list)
    freeze_parameters_regex: str | None = None
    freeze_parameters_ratio: float = 0.0
    trainable_parameters: list[str] = field(default_factory=list)
    trainable_parameters_regex: str | None = None
    quant_method: str | None = None
    packing: bool = False
    padding_free: bool = False
    streaming: bool = False
    sequence_parallel_size: int = 1

    def __post_init__(self) -> None:
        forget_options_of_earlier_runs(self.model_kwargs or {})
        forget_log_folder_of_earlier_runs()
        self.turn_options = TurnOptions.from_environment()
        problems = [*self.turn_options.problems(), *self._problems()]
        if problems:
            raise InputError("contradictory or wrong options: " + "; ".join(problems))
        self.optimizer = OPTIMIZER
        self.eval_metric = EVAL_METRIC
        if (self.metric_for_best_model or "").removeprefix("eval_").startswith(_LOWER_IS_BETTER):
            self.greater_is_better = False  # ms-swift takes every metric without "loss" in its name for a score
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
        return [*self._unused_options(), *self._contradictions(), *self._start_problems(), *self._session_problems()]

    def _unused_options(self) -> list[str]:
        """Options of ms-swift that this task would pass over in silence."""
        found = []
        for key in self.model_kwargs or {}:
            if not key.upper().startswith(PREFIX):
                found.append(f"--model_kwargs {key}: options of this plug-in begin with turn_")
        for reason, defaults in _UNUSED.items():
            for name, default in defaults.items():
                if (value := getattr(self, name)) not in (default, None):
                    shown = " ".join(value) if isinstance(value, list) else value
                    found.append(f"--{name} {shown}: {reason}; drop it")
        if self.init_weights not in (True, False, "gaussian"):
            found.append(f"--init_weights {self.init_weights}: changes the base model, which no checkpoint holds; use true")
        if self.tuner_type != TUNER_TYPE:
            found.append(f"--tuner_type {self.tuner_type}: add --tuner_type {TUNER_TYPE}, which tunes this task's model")
        if self.optimizer not in (None, OPTIMIZER):
            found.append(f"--optimizer {self.optimizer}: only {OPTIMIZER} gives the head its own rate; drop it")
        if self.eval_metric not in (None, EVAL_METRIC):
            found.append(f"--eval_metric {self.eval_metric}: only {EVAL_METRIC} reads this task's output; drop it")
        for part in ("optimizer", "scheduler"):
            if isinstance(self.deepspeed, dict) and part in self.deepspeed:
                found.append(f"--deepspeed: its file has a part {part}, which knows no head rate; take that part out")
        return found

    def _contradictions(self) -> list[str]:
        options, found = self.turn_options, []
        for name in ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps", "lora_rank"):
            if (value := getattr(self, name)) is not None and value < 1:  # None: ms-swift chooses
                found.append(f"--{name} {value} must be at least 1")
        names = metric_names(transition_auxiliary=options.head_transition_auxiliary)
        if self.metric_for_best_model and self.metric_for_best_model.removeprefix("eval_") not in names:
            found.append(f"--metric_for_best_model {self.metric_for_best_model}: not among {', '.join(names[:3])}, …, {names[-1]}")
        if options.freeze_thinker and self.adapters:
            found.append("turn_freeze_thinker with --adapters: a frozen Thinker has no adapter; start from turn_head_checkpoint")
        if options.lora_last_n_layers and self.adapters:
            found.append("turn_lora_last_n_layers with --adapters: the adapter's own configuration names its layers; drop one")
        if options.freeze_head and not (options.head_checkpoint or self.adapters or self.resume_from_checkpoint):
            found.append("turn_freeze_head: a new head would stay random; add turn_head_checkpoint")
        if options.target and len(self.dataset) + len(self.val_dataset) != 1:
            found.append("turn_target replaces the targets of one session; pass one --dataset")
        return found

    def _start_problems(self) -> list[str]:
        """What the run would start from is there, and is of the kind that the options say."""
        options, found = self.turn_options, []
        heads = [options.head_checkpoint] if options.head_checkpoint else self.adapters[:1]
        if self.resume_from_checkpoint:
            heads.append(self.resume_from_checkpoint)
        for head in heads:
            try:
                read_head(Path(head))
            except InputError as error:
                found.append(str(error))
        if self.resume_from_checkpoint and not self.resume_only_model:
            # transformers would begin at step 0 without the one, and with a new optimizer without the other.
            parts = [*_RESUMED, *([] if self.deepspeed else ["optimizer.pt"])]
            missing = [name for name in parts if not (Path(self.resume_from_checkpoint) / name).is_file()]
            found += [
                f"{Path(self.resume_from_checkpoint) / name}: no such file; resume from a checkpoint that is complete, or "
                "add --resume_only_model true to go on with a new optimizer"
                for name in missing
            ]
        if len(self.adapters) > 1:
            found.append(f"--adapters {' '.join(self.adapters)}: pass one checkpoint to go on from")
        sources = [("adapters", folder) for folder in self.adapters[:1] if not options.freeze_thinker]
        if self.resume_from_checkpoint:
            sources.append(("resume_from_checkpoint", self.resume_from_checkpoint))
        for option, folder in sources:
            has_adapter = (Path(folder) / ADAPTER_CONFIG).is_file()
            if has_adapter == options.freeze_thinker:
                kind = "an adapter" if has_adapter else "no adapter"
                found.append(f"--{option} {folder} has {kind}, but turn_freeze_thinker is {options.freeze_thinker}; change one")
        return found

    def _session_problems(self) -> list[str]:
        """One contract for all sessions, and none in both training and validation."""
        if self.split_dataset_ratio:
            return [
                f"--split_dataset_ratio {self.split_dataset_ratio}: anchors of one session overlap in time, so a random "
                "split leaks; pass other sessions with --val_dataset"
            ]
        try:
            training, validation = (load_manifests(paths) for paths in (self.dataset, self.val_dataset))
            check_same_contract({**training, **validation})
        except InputError as error:
            return [str(error)]
        without_tails = [path for path, manifest in {**training, **validation}.items() if not manifest.tails]
        if without_tails and not self.turn_options.online_tail:
            return [f"{without_tails[0]}: cached without tails; add turn_online_tail, or build it again with them"]
        return [
            f"{other_path} in --val_dataset covers the same time of the same recording as {path} in --dataset; "
            "validate on other sessions"
            for path, manifest in training.items()
            for other_path, other in validation.items()
            if manifest.overlaps(other)
        ]


def load_manifests(datasets: list[str]) -> dict[Path, Manifest]:
    """The manifests of `--dataset` or `--val_dataset`, with or without `#N`, by their full paths."""
    paths = [Path(dataset.rsplit("#", 1)[0]).resolve() for dataset in datasets]
    return {path: Manifest.load(path) for path in paths}
