"""Finds a checkpoint: a folder on this machine, or a name on a hub, as ms-swift's `--model` takes it."""

from __future__ import annotations

import os
from pathlib import Path

from swift_plugin.errors import InputError


def find_model(model: str, *, use_hf: bool) -> Path:
    """The folder of a checkpoint; a name is fetched from ModelScope, or from Hugging Face with `use_hf`.

    Raises:
        InputError: no such folder, and no such name on the hub.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    if folder.is_absolute() or model.startswith(".") or model.count("/") != 1:
        raise InputError(f"{model}: no such folder; pass a checkpoint folder or a name such as Qwen/Qwen2.5-Omni-3B")
    try:
        if use_hf or os.environ.get("USE_HF", "").lower() in ("1", "true"):
            from huggingface_hub import snapshot_download
        else:
            from modelscope import snapshot_download
        return Path(snapshot_download(model))
    except Exception as error:  # each hub has its own kinds
        raise InputError(f"{model}: neither a folder here nor to be fetched ({str(error).splitlines()[0]})") from None
