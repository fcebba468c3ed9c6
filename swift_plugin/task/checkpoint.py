"""A checkpoint folder: the PEFT adapter, the head, the plug-in's options and versions; never a base weight."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import re
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel, get_peft_model_state_dict
from peft.utils import SAFETENSORS_WEIGHTS_NAME
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from swift_plugin import __version__
from swift_plugin.config import TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.model.checkpoint import load_head_weights, read_head, save_head
from swift_plugin.model.turn_predictor import TurnPredictor
from swift_plugin.task.sharding import gathered

ADAPTER_CONFIG = "adapter_config.json"
_HEAD_PREFIX = "turn_head."
_PEFT_PREFIX = "base_model.model."
_REFERENCE_NAMES = {r"^layers\.": "model.layers."}  # the reference put its adapter on the language model alone


def library_versions() -> dict[str, str]:
    names = ("torch", "transformers", "peft", "ms-swift", "deepspeed")
    found = {"swift_plugin": __version__}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def predictor_of(model: nn.Module) -> TurnPredictor:
    """The `TurnPredictor` inside what PEFT may have wrapped around it."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def save_checkpoint(model: nn.Module, folder: Path, *, state_dict: dict[str, torch.Tensor] | None = None) -> None:
    """Write adapter and head.

    Args:
        model: a `TurnPredictor`, or a `PeftModel` around it.
        folder: the checkpoint folder.
        state_dict: full tensors by the names of `model`, from an engine that shards them; else the model's own.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(model, PeftModel):
        tensors = get_peft_model_state_dict(model, state_dict=state_dict, save_embedding_layers=False)
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items() if "lora_" in name}
        save_file(tensors, folder / SAFETENSORS_WEIGHTS_NAME, metadata={"format": "pt"})
        _save_adapter_config(model, folder)
    head = predictor_of(model).turn_head
    state = head.state_dict() if state_dict is None else _head_state(state_dict)
    facts = {"options": dataclasses.asdict(TurnOptions.from_environment()), "versions": library_versions()}
    save_head(head.config, state, folder, facts=facts)


def load_checkpoint(
    model: TurnPredictor, folder: Path, *, head: Path | None = None, is_trainable: bool = False
) -> nn.Module:
    """Give a freshly loaded model the head and the adapter of a checkpoint.

    Args:
        model: without a head.
        folder: the checkpoint; an adapter of the reference, whose names lack the outer `model.`, is read too.
        head: where the head comes from instead; see `read_head`.
        is_trainable: the adapter will be trained on.

    Returns:
        the `PeftModel`, or `model` itself where the checkpoint has no adapter (a frozen Thinker).

    Raises:
        InputError: a file is missing, or a tensor is missing, unknown or of another shape.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; pass a checkpoint of this task")
    config, state = read_head(head or folder)
    model.attach_head(config)
    load_head_weights(model.turn_head, state, source=head or folder)
    if not (folder / ADAPTER_CONFIG).is_file():
        return model
    _adapter_shapes(folder)  # a file that is missing or strange is told by its name, and not asked of a hub
    tuned = PeftModel.from_pretrained(
        model,
        str(folder),
        is_trainable=is_trainable,
        key_mapping=_REFERENCE_NAMES,
        ignore_mismatched_sizes=True,  # so that `_check_adapter` can name them
    )
    _check_adapter(tuned, folder)
    return tuned


def reload_checkpoint(model: nn.Module, folder: Path) -> None:
    """Put a checkpoint's weights into a model that already has its head and adapter, as for the best checkpoint."""
    predictor = predictor_of(model)
    _, state = read_head(folder)
    ours = [parameter for name, parameter in model.named_parameters() if "lora_" in name or _HEAD_PREFIX in name]
    with gathered(ours, modify=True):
        load_head_weights(predictor.turn_head, state, source=folder)
        if isinstance(model, PeftModel):
            from peft import set_peft_model_state_dict

            _check_adapter(model, folder)
            set_peft_model_state_dict(model, load_file(folder / SAFETENSORS_WEIGHTS_NAME))


def _check_adapter(model: PeftModel, folder: Path) -> None:
    """PEFT warns of missing tensors and passes over unknown ones; here both stop the run."""
    tensors = get_peft_model_state_dict(model, save_embedding_layers=False)
    expected = {name: list(tensor.shape) for name, tensor in tensors.items() if "lora_" in name}
    found = _adapter_shapes(folder)
    if wrong := sorted(name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)):
        file, name = folder / SAFETENSORS_WEIGHTS_NAME, wrong[0]
        raise InputError(
            f"{file}: {len(wrong)} tensors do not fit, first {name}: {found.get(name, 'missing')} in the file, "
            f"{expected.get(name, 'unknown')} in the model; use the checkpoint of this model"
        )


def _adapter_shapes(folder: Path) -> dict[str, list[int]]:
    """Names and shapes of the adapter's file.

    Raises:
        InputError: no such file, one that cannot be read, or a tensor that is no adapter's.
    """
    file = folder / SAFETENSORS_WEIGHTS_NAME
    if not file.is_file():
        raise InputError(f"{file}: no such file; the checkpoint is incomplete")
    try:
        with safe_open(file, framework="pt") as stored:
            shapes = {name: stored.get_slice(name).get_shape() for name in stored.keys()}
    except SafetensorError as error:
        raise InputError(f"{file}: not readable ({error}); take the file from the checkpoint again") from None
    if strange := sorted(name for name in shapes if not name.startswith(_PEFT_PREFIX)):
        raise InputError(f"{file}: {strange[0]} is no tensor of an adapter; use the checkpoint of this model")
    return {_our_name(name): shape for name, shape in shapes.items()}


def _our_name(name: str) -> str:
    """The name of an adapter's tensor as PEFT applies `key_mapping` to it."""
    inner = name.removeprefix(_PEFT_PREFIX)
    for pattern, replacement in _REFERENCE_NAMES.items():
        inner = re.sub(pattern, replacement, inner)
    return _PEFT_PREFIX + inner


def _save_adapter_config(model: PeftModel, folder: Path) -> None:
    config = model.peft_config["default"]
    inference_mode, config.inference_mode = config.inference_mode, True
    if config.base_model_name_or_path is None:
        config.base_model_name_or_path = predictor_of(model).config.name_or_path
    config.save_pretrained(str(folder))
    config.inference_mode = inference_mode


def _head_state(state_dict: dict[str, torch.Tensor]) -> dict[str, Any]:
    """The head's part of a whole state dict, by the head's own names."""
    return {
        name.split(_HEAD_PREFIX, 1)[1]: tensor for name, tensor in state_dict.items() if _HEAD_PREFIX in name
    }
