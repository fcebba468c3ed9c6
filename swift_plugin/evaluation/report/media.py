"""The film or the sound in the page: inside it where it is small, else by a relative path."""

from __future__ import annotations

import base64
import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from swift_plugin.errors import InputError

EMBED_LIMIT_MIB = 20
FILM_TYPES = {".mp4": "video/mp4", ".m4v": "video/mp4", ".mov": "video/mp4", ".webm": "video/webm"}
SOUND_TYPES = {
    ".wav": "audio/wav",
    ".mp3": "audio/mpeg",
    ".m4a": "audio/mp4",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".opus": "audio/ogg",
}


@dataclass(frozen=True, kw_only=True)
class Media:
    """What the viewer plays.

    Attributes:
        film: whether there is a picture.
        source: a data URI, or a relative path as a URL.
        note: what the reader of the page has to know about the file.
    """

    film: bool
    source: str
    note: str


def load_media(path: Path | None, *, film: bool, output: Path, limit: int = EMBED_LIMIT_MIB * 2**20) -> Media | None:
    """
    Args:
        output: the page, from which a large file is reached.
        limit: bytes up to which a file goes into the page.

    Raises:
        InputError: no such file, or none that browsers play.
    """
    if path is None:
        return None
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path")
    types = FILM_TYPES if film else SOUND_TYPES
    kind = types.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: browsers do not play {path.suffix!r} here; convert it to one of {', '.join(types)}")
    size = f"{path.stat().st_size / 2**20:.1f} MiB"
    if path.stat().st_size <= limit:
        source = f"data:{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        return Media(film=film, source=source, note=f"{path.name} ({size}) is part of this page.")
    relative = Path(os.path.relpath(path.resolve(), output.resolve().parent)).as_posix()
    note = (
        f"{path.name} ({size}) is too large to be part of this page. The page looks for it at {relative}, "
        "seen from its own folder: move both together."
    )
    return Media(film=film, source=urllib.parse.quote(relative), note=note)
