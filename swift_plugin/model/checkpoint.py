"""The head on disk: `turn_head.safetensors` beside `turn_head.json`, and the reference's `turn_head.pt`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from swift_plugin.errors import InputError
from swift_plugin.files import read_json, write_atomically, write_json
from swift_plugin.model.head import TurnHead, TurnHeadConfig

HEAD_WEIGHTS = "turn_head.safetensors"
HEAD_CONFIG = "turn_head.json"
_REFERENCE_SUFFIXES = (".pt", ".pth")


def save_head(
    config: TurnHeadConfig, state: dict[str, torch.Tensor], folder: Path, *, facts: dict[str, Any] | None = None
) -> None:
    """Write the head.

    Args:
        config: its shape.
        state: its state dict, full tensors; written in float32.
        folder: the checkpoint folder.
        facts: more entries for `turn_head.json`, such as options and versions.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().float().cpu().contiguous() for name, tensor in state.items()}
    write_atomically(folder / HEAD_WEIGHTS, lambda path: save_file(tensors, path, metadata={"format": "pt"}))
    write_json(folder / HEAD_CONFIG, {"head_config": dataclasses.asdict(config), **(facts or {})})


def read_head(source: Path) -> tuple[TurnHeadConfig, dict[str, torch.Tensor]]:
    """Read a head.

    Args:
        source: a checkpoint folder, a `turn_head.safetensors`, or the reference's `turn_head.pt`.

    Raises:
        InputError: a file that is missing, unreadable, or does not describe a turn head.
    """
    if source.suffix in _REFERENCE_SUFFIXES:
        return _read_reference_head(source)
    folder = source.parent if source.name == HEAD_WEIGHTS else source
    weights, config_file = folder / HEAD_WEIGHTS, folder / HEAD_CONFIG
    for file in (weights, config_file):
        if not file.is_file():
            raise InputError(f"{file}: no such file; a checkpoint of this task has {HEAD_WEIGHTS} and {HEAD_CONFIG}")
    content = read_json(config_file)
    if "head_config" not in content:
        raise InputError(f"{config_file}: head_config is missing; take the file from the checkpoint again")
    try:
        state = load_file(weights)
    except SafetensorError as error:
        raise InputError(f"{weights}: not readable ({error}); take the file from the checkpoint again") from None
    return TurnHeadConfig.from_dict(content["head_config"], source=str(config_file)), state


def load_head_weights(head: TurnHead, state: dict[str, torch.Tensor], *, source: Path) -> None:
    """Put weights into a head, all of them and no others.

    Raises:
        InputError: names the tensors that are missing, unknown or of another shape.
    """
    expected = head.state_dict()
    problems = [f"{name} is missing" for name in expected.keys() - state.keys()]
    problems += [f"{name} is unknown" for name in state.keys() - expected.keys()]
    problems += [
        f"{name} has shape {tuple(state[name].shape)} instead of {tuple(expected[name].shape)}"
        for name in expected.keys() & state.keys()
        if state[name].shape != expected[name].shape
    ]
    if problems:
        raise InputError(f"{source}: the head does not fit: {', '.join(sorted(problems))}; use a head of the same shape")
    head.load_state_dict(state)


def write_reference_head(config: TurnHeadConfig, state: dict[str, torch.Tensor], path: Path) -> None:
    """Write the reference's `turn_head.pt`, a dict with `head` and `head_config`."""
    payload = {"head": {name: tensor.cpu() for name, tensor in state.items()}, "head_config": dataclasses.asdict(config)}
    write_atomically(path, lambda partial: torch.save(payload, partial))


def _read_reference_head(path: Path) -> tuple[TurnHeadConfig, dict[str, torch.Tensor]]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    try:
        payload = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises several kinds for a file that is damaged or holds other objects
        first_line = str(error).splitlines()[0]
        raise InputError(f"{path}: not loadable with weights_only ({first_line}); save head and head_config alone") from None
    if not isinstance(payload, dict) or not {"head", "head_config"} <= payload.keys():
        raise InputError(f"{path}: no dict with head and head_config; pass the reference's turn_head.pt")
    return TurnHeadConfig.from_dict(payload["head_config"], source=str(path)), payload["head"]
