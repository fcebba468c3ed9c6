"""Annotation files as text or JSON, with an `InputError` where they cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from swift_plugin.errors import InputError


def read_text(path: Path) -> str:
    """The whole file as UTF-8, with or without a byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8; save the file as UTF-8 text") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give an existing annotation file") from None


def read_json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {error.lineno}: is not JSON ({error.msg}); "
            "download it again, a Git LFS pointer is not the file"
        ) from None
