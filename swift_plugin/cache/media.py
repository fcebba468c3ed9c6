"""The media that a cache was made from: written into the manifest, and opened again by it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from swift_plugin.cache.manifest import Manifest
from swift_plugin.errors import InputError
from swift_plugin.media.easycom import open_easycom_session
from swift_plugin.media.session import Session, open_session

_PATHS = ("film", "audio", "session_dir")


def media_record(session: Session, folder: Path) -> dict[str, Any]:
    """What the manifest in `folder` says of a session: its files, and how to open it, with paths relative to it."""
    opening = {
        name: os.path.relpath(Path(value).resolve(), folder.resolve()) if name in _PATHS and value is not None else value
        for name, value in session.opening.items()
    }
    sources = [{"file": path.name, "bytes": path.stat().st_size} for path in session.sources]
    return {"sources": sources, "opening": opening}


def open_media(path: Path, manifest: Manifest, *, decoder: str = "pyav") -> Session:
    """Open the session that a cache was made from.

    Args:
        path: of the manifest.
        decoder: see `open_session`.

    Raises:
        InputError: a file is not where the manifest says, or is another one; what opening a session refuses.
    """
    opening = dict(manifest.media["opening"])
    for name in _PATHS:
        if opening.get(name) is None:
            continue
        opening[name] = place = (path.parent / opening[name]).resolve()
        if not place.exists():
            raise InputError(f"{place}: not there, but {path} was made from it; put it back, or build the cache again")
    opener = open_easycom_session if "session_dir" in opening else open_session
    session = opener(**opening, decoder=decoder)
    found = media_record(session, path.parent)["sources"]
    if found != manifest.media["sources"]:
        session.close()
        names = [source["file"] for source in manifest.media["sources"] if source not in found]
        raise InputError(
            f"{path}: made from other media than those that are there now ({', '.join(names) or 'some are new'}); "
            "build the cache again"
        )
    return session
