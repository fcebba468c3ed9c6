"""Tells one set of tower weights from another without reading all of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import torch
from safetensors import safe_open

from swift_plugin.cache.manifest import Manifest
from swift_plugin.errors import InputError
from swift_plugin.files import read_json

# What the cached embeddings depend on.
TOWER_PREFIXES = ("thinker.audio_tower.", "thinker.visual.", "thinker.model.embed_tokens.")
_ROWS_HASHED = 8


def weight_files(model_dir: Path) -> dict[str, Path]:
    """Tensor name -> safetensors file of a checkpoint folder.

    Raises:
        InputError: the folder has no safetensors weights.
    """
    index = model_dir / "model.safetensors.index.json"
    if index.is_file():
        return {name: model_dir / file for name, file in read_json(index)["weight_map"].items()}
    single = model_dir / "model.safetensors"
    if not single.is_file():
        raise InputError(f"{model_dir}: no model.safetensors there; pass a Qwen2.5-Omni checkpoint folder")
    with safe_open(single, framework="pt") as file:
        return dict.fromkeys(file.keys(), single)


def weights_fingerprint(model_dir: Path) -> str:
    """SHA-256 over name, shape, type and the first rows of every tensor of the towers and the token table."""
    files = weight_files(model_dir)
    names = sorted(name for name in files if name.startswith(TOWER_PREFIXES))
    if not names:
        raise InputError(f"{model_dir}: no tensor named {TOWER_PREFIXES[0]}…; pass a Qwen2.5-Omni checkpoint folder")
    handles = {path: safe_open(path, framework="pt") for path in {files[name] for name in names}}
    digest = hashlib.sha256()
    for name in names:
        tensor = handles[files[name]].get_slice(name)
        digest.update(f"{name} {tensor.get_shape()} {tensor.get_dtype()}".encode())
        rows = tensor[:_ROWS_HASHED] if tensor.get_shape() else handles[files[name]].get_tensor(name)
        digest.update(rows.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def check_weights(manifests: dict[Path, Manifest], model_dir: Path) -> None:
    """Refuse sessions that were cached with the towers of another checkpoint.

    Args:
        manifests: by the path that the message names.
        model_dir: the checkpoint that is run on them.

    Raises:
        InputError: names the manifest, the model that it was built with, and this one.
    """
    fingerprint = weights_fingerprint(model_dir)
    for path, manifest in manifests.items():
        if manifest.weights_fingerprint != fingerprint:
            raise InputError(
                f"{path}: cached with other tower weights ({manifest.model_id}) than those of {model_dir}; "
                "build the cache again, or use the model that it was built with"
            )
