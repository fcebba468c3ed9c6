"""Targets on disk: an array `name.npy`, and beside it `name.json`, which says where it came from."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from swift_plugin import __version__
from swift_plugin.errors import InputError
from swift_plugin.labels.rule import LabelRule
from swift_plugin.stream.spec import CLASS_NAMES, NUM_CLASSES, STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class Targets:
    """One row a step of 0.2 s.

    Attributes:
        targets: float32 [T, 3] in the order nobody, self, other; a row of NaN is unknown.
        sidecar: what `save_targets` wrote beside the array, `None` where there is no such file.
    """

    targets: np.ndarray
    sidecar: dict[str, Any] | None


def save_targets(
    path: str | Path,
    targets: np.ndarray,
    *,
    rule: LabelRule,
    sources: Sequence[str],
    source_format: str,
    self_speaker: str,
    recording: str | None = None,
    reader_options: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the array and its sidecar, each under a temporary name first.

    Args:
        path: `name.npy`.
        targets: float32 [T, 3], checked as `load_targets` does.
        sources: the annotation files, named as the user named them; so they stand in the sidecar.
        source_format: rttm, csv, easycom or egocom.
        recording: which part of the source was read, where it holds several.
        reader_options: what else decided the turns, such as the frame base.
        overwrite: replace files that exist.

    Returns:
        The path of the sidecar.

    Raises:
        InputError: a name that is not `.npy`, a folder that is not there, a file that exists, targets that are none,
            a sidecar that would replace one of the sources.
    """
    path = Path(path)
    sidecar_path = check_output(path, sources=sources, overwrite=overwrite)
    _check(targets, path)
    buffer = io.BytesIO()
    np.save(buffer, targets, allow_pickle=False)
    known = targets[~np.isnan(targets[:, 0])]
    sidecar = {
        "source_format": source_format,
        "sources": list(sources),
        "recording": recording,
        "reader_options": dict(reader_options or {}),
        "rule": dataclasses.asdict(rule),
        "self_speaker": self_speaker,
        "class_names": list(CLASS_NAMES),
        "step_seconds": STEP_SECONDS,
        "num_steps": len(targets),
        # sums of the columns over known steps: steps of a class, parts of steps where the rule is soft
        "class_steps": dict(zip(CLASS_NAMES, known.sum(axis=0, dtype=np.float64).tolist())),
        "unknown_steps": len(targets) - len(known),
        "sha256": hashlib.sha256(buffer.getbuffer()).hexdigest(),
        "plugin_version": __version__,
    }
    text = json.dumps(sidecar, indent=2, ensure_ascii=False) + "\n"
    with _temporary(path, buffer.getvalue()) as array_file, _temporary(sidecar_path, text.encode()) as sidecar_file:
        os.replace(array_file, path)
        os.replace(sidecar_file, sidecar_path)
    return sidecar_path


def load_targets(path: str | Path) -> Targets:
    """Read targets, made by `save_targets` or by anybody else.

    Raises:
        InputError: no `.npy` array (nothing is ever unpickled), another shape than [T, 3] or type than float32, a
            value outside [0, 1], a row with some NaN or with zeros only, a sidecar that cannot be read or that
            belongs to another array.
    """
    path = Path(path)
    try:
        content = path.read_bytes()
        targets = np.load(io.BytesIO(content), allow_pickle=False)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); make it with swift-turn targets") from None
    except (ValueError, EOFError):
        raise InputError(f"{path}: is not a plain .npy array; save float32 [T, 3] with numpy.save") from None
    _check(targets, path)
    return Targets(targets=targets, sidecar=_read_sidecar(path, content))


def check_output(path: Path, *, sources: Sequence[str], overwrite: bool) -> Path:
    """Refuse an output that `save_targets` could not write; returns the sidecar's path."""
    if path.suffix != ".npy":
        raise InputError(f"{path}: targets are a .npy file; give a name that ends in .npy")
    if not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist; create it first")
    sidecar = path.with_suffix(".json")
    if sidecar.resolve() in {Path(source).resolve() for source in sources}:
        raise InputError(f"{path}: its sidecar {sidecar.name} would replace the annotations; choose another name")
    for output in (path, sidecar):
        if output.exists() and not overwrite:
            raise InputError(f"{output}: exists already; choose another name or add --overwrite")
    return sidecar


def _check(targets: Any, path: Path) -> None:
    if not isinstance(targets, np.ndarray):
        raise InputError(f"{path}: holds several arrays; save one array float32 [T, 3] with numpy.save")
    if targets.ndim != 2 or targets.shape[1] != NUM_CLASSES or not len(targets):
        raise InputError(f"{path}: has shape {list(targets.shape)}; targets are [T, 3], one row a 0.2 s step")
    if targets.dtype != np.float32:
        raise InputError(f"{path}: has type {targets.dtype}; save it with .astype('float32')")
    unknown = np.isnan(targets)
    faults = {
        "is NaN in part; an unknown step is NaN in all three columns": unknown.any(axis=1) & ~unknown.all(axis=1),
        "has a value outside [0, 1]; give shares or 0 and 1": ((targets < 0) | (targets > 1)).any(axis=1),
        "is zero in all columns; nobody is column 0, an unknown step is NaN": (targets == 0).all(axis=1),
    }
    for fault, rows in faults.items():
        if rows.any():
            row = int(rows.argmax())
            raise InputError(f"{path}: row {row} {targets[row].tolist()} {fault}")


def _read_sidecar(path: Path, content: bytes) -> dict[str, Any] | None:
    sidecar_path = path.with_suffix(".json")
    if not sidecar_path.exists():
        return None
    try:
        sidecar = json.loads(sidecar_path.read_text(encoding="utf-8"))
        digest = sidecar["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        raise InputError(
            f"{sidecar_path}: is not the sidecar of {path.name}; move it away or make both again"
        ) from None
    if digest != hashlib.sha256(content).hexdigest():
        raise InputError(f"{sidecar_path}: describes another array than {path.name}; make both again or move it away")
    return sidecar


@contextmanager
def _temporary(path: Path, content: bytes) -> Iterator[Path]:
    """A file with `content` beside `path`, gone at the end unless it was moved."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_bytes(content)
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)
