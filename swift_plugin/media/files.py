"""Opening media files, with an `InputError` where that fails."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from swift_plugin.errors import InputError

if TYPE_CHECKING:
    from av.container import InputContainer


def check_file(path: Path) -> Path:
    """Raises:
    InputError: `path` is missing or not a file.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file; check the path")
    if not path.is_file():
        raise InputError(f"{path}: is not a file; give one media file")
    return path


def open_container(path: Path) -> InputContainer:
    """Open a film or sound file with PyAV.

    Raises:
        InputError: FFmpeg does not know the file as media.
    """
    import av

    try:
        return av.open(str(check_file(path)))
    except av.FFmpegError as error:
        raise InputError(
            f"{path}: cannot be opened as media ({error.strerror}); "
            "check that the download is complete (a Git LFS pointer is not the file)"
        ) from None


def start_seconds(container: InputContainer) -> float:
    """The time stamp that counts as 0 s: that of the earliest track, as in players and in FFmpeg's own commands."""
    return (container.start_time or 0) / 1_000_000  # AV_TIME_BASE
