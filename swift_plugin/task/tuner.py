"""`--tuner_type turn`: a head for the model, and LoRA on the Thinker's language layers unless it is frozen."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from swift.tuner_plugin import Tuner
from swift.utils import get_logger
from torch import nn

from swift_plugin.config import TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import load_head_weights, read_head
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.checkpoint import load_checkpoint, save_checkpoint

logger = get_logger()


class TurnTuner(Tuner):
    @staticmethod
    def prepare_model(args, model: TurnPredictor) -> nn.Module:
        """A new head (or that of `turn_head_checkpoint`), and new adapters."""
        options: TurnOptions = args.training_args.turn_options
        model.requires_grad_(False)
        _attach_head(model, options)
        if options.freeze_thinker:
            model.freeze_thinker = True
            return model
        tuned = _add_adapters(args, model, options)
        model.turn_head.requires_grad_(not options.freeze_head)  # PEFT freezes all that is not an adapter
        return tuned

    @staticmethod
    def from_pretrained(model: TurnPredictor, model_id: str, is_trainable: bool = False, **kwargs) -> nn.Module:
        """Head and adapters of a checkpoint, for `--adapters` and `--resume_from_checkpoint`."""
        options = TurnOptions.from_environment()
        model.requires_grad_(False)
        head = Path(options.head_checkpoint) if options.head_checkpoint and is_trainable else None
        tuned = load_checkpoint(model, Path(model_id), head=head, is_trainable=is_trainable)
        model.freeze_thinker = not isinstance(tuned, PeftModel)
        model.turn_head.requires_grad_(is_trainable and not options.freeze_head)
        return tuned

    @staticmethod
    def save_pretrained(
        model: nn.Module,
        save_directory: str,
        state_dict: dict[str, Any] | None = None,
        safe_serialization: bool = True,
        **kwargs,
    ) -> None:
        save_checkpoint(model, Path(save_directory), state_dict=state_dict)


def _attach_head(model: TurnPredictor, options: TurnOptions) -> None:
    if options.head_checkpoint is None:
        model.attach_head(options.head_config(model.config.hidden_size))
    else:
        source = Path(options.head_checkpoint)
        config, state = read_head(source)
        model.attach_head(config)
        load_head_weights(model.turn_head, state, source=source)
        logger.info(f"turn head: loaded from {source}")
    model.turn_head.requires_grad_(not options.freeze_head)


def _add_adapters(args, model: TurnPredictor, options: TurnOptions) -> PeftModel:
    expected = language_linears(model, args.target_modules, last_n_layers=options.lora_last_n_layers)
    config = LoraConfig(
        r=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_dropout=args.lora_dropout,
        bias=args.lora_bias,
        use_rslora=args.use_rslora,
        use_dora=args.use_dora,
        init_lora_weights=args.init_weights,
        # A pattern over full names: PEFT's own choice of layers fails on some hierarchies (huggingface/peft#2155),
        # and a bare name would match other modules too.
        target_modules="|".join(re.escape(name) for name in expected),
    )
    tuned = get_peft_model(model, config, autocast_adapter_dtype=args.lora_dtype is None)
    if args.lora_dtype is not None:
        for name, parameter in tuned.named_parameters():
            if "lora_" in name:
                parameter.data = parameter.data.to(getattr(torch, str(args.lora_dtype).removeprefix("torch.")))
    found = set(tuned.targeted_module_names)
    if found != set(expected):
        missing = sorted(set(expected) ^ found)
        raise InputError(f"PEFT put adapters into {len(found)} of {len(expected)} modules; the first that differs is {missing[0]}")
    logger.info(f"LoRA in {len(expected)} modules of the language model, from {expected[0]} to {expected[-1]}")
    return tuned


def language_linears(model: TurnPredictor, target_modules: str | list[str], *, last_n_layers: int = 0) -> list[str]:
    """Full names of the linear layers to adapt, in the language model only.

    Args:
        target_modules: last parts of the names, `all-linear`, or a regular expression over full names.
        last_n_layers: only in the last N decoder layers; 0 is all.

    Raises:
        InputError: more layers than there are, or a name that matches nothing.
    """
    num_layers = len(model.model.layers)
    if last_n_layers > num_layers:
        raise InputError(f"turn_lora_last_n_layers={last_n_layers}, but the language model has {num_layers} layers")
    linears = [
        f"model.layers.{index}.{name}"
        for index in range(num_layers - last_n_layers if last_n_layers else 0, num_layers)
        for name, module in model.model.layers[index].named_modules()
        if isinstance(module, nn.Linear)
    ]
    if isinstance(target_modules, str):
        matched = [name for name in linears if re.fullmatch(target_modules, name)]
        unmatched = [] if matched else [target_modules]
    elif "all-linear" in target_modules:
        matched, unmatched = linears, [name for name in target_modules if name != "all-linear"]
    else:
        matched = [name for name in linears if name.rsplit(".", 1)[-1] in target_modules]
        unmatched = [name for name in target_modules if not any(full.endswith(f".{name}") for full in matched)]
    if unmatched:
        known = sorted({name.rsplit(".", 1)[-1] for name in linears})
        raise InputError(f"--target_modules {' '.join(unmatched)}: not in the language model, which has {', '.join(known)}")
    return matched
