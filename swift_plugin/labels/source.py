"""One annotated session out of the user's words: which reader, with which of its options."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_plugin.errors import InputError
from swift_plugin.labels.coverage import Interval
from swift_plugin.labels.csv_turns import read_csv
from swift_plugin.labels.easycom import easycom_files, easycom_known, read_easycom
from swift_plugin.labels.egocom import egocom_known, egocom_video, read_egocom
from swift_plugin.labels.rttm import read_rttm
from swift_plugin.labels.turns import Turn

# option -> the formats whose reader has it
_OPTIONS = {
    "recording": ("rttm", "egocom"),
    "frame_base": ("easycom",),
    "skip_nonverbal": ("easycom",),
    "video_info": ("egocom",),
    "label_window": ("egocom",),
}


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """What a source says about one session.

    Attributes:
        turns: who speaks.
        known: the seconds that are annotated; `None` where the format cannot tell, so everything is.
        files: the files that were read, named as the user named them.
        source_format: rttm, csv, easycom or egocom.
        wearer: the speaker who wears the camera, where the format names one.
        recording: the part of the source that was read, where it can hold several.
        reader_options: what else decided the turns.
    """

    turns: list[Turn]
    known: list[Interval] | None = None
    files: list[str]
    source_format: str
    wearer: str | None = None
    recording: str | None = None
    reader_options: dict[str, Any] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The last second that is annotated."""
        return max([turn.end for turn in self.turns] + [end for _, end in self.known or ()], default=0.0)


def guess_format(path: Path) -> str:
    """The format by the suffix, where one suffix is one format; only EasyCom sessions are folders.

    Raises:
        InputError: any other suffix. `.json` is EasyCom as well as EgoCom.
    """
    if path.is_dir():
        return "easycom"
    guess = {".rttm": "rttm", ".csv": "csv"}.get(path.suffix.lower())
    if guess is None:
        raise InputError(f"{path}: {path.suffix or 'no suffix'} does not tell the format; add --format, see --help")
    return guess


def read_annotated(path: str | Path, *, source_format: str, **options: Any) -> Annotated:
    """Read a session.

    Args:
        source_format: rttm, csv, easycom, egocom, or auto to guess it.
        options: `recording`, `frame_base`, `skip_nonverbal`, `video_info`, `label_window`; `None` is "not given".

    Raises:
        InputError: see the readers; an option that the format does not have.
    """
    path = Path(path)
    chosen = guess_format(path) if source_format == "auto" else source_format
    options = {name: value for name, value in options.items() if value is not None}
    for name, value in options.items():
        if chosen not in _OPTIONS[name]:
            raise InputError(f"{path}: {name}={value} is only for {' and '.join(_OPTIONS[name])}, not for {chosen}")
    return READERS[chosen](path, **options)


def _rttm(path: Path, **options: Any) -> Annotated:
    return Annotated(turns=read_rttm(path, **options), files=[str(path)], source_format="rttm", **options)


def _csv(path: Path) -> Annotated:
    return Annotated(turns=read_csv(path), files=[str(path)], source_format="csv")


def _easycom(path: Path, **options: Any) -> Annotated:
    files = easycom_files(path)
    return Annotated(
        turns=read_easycom(path, **options),
        known=easycom_known(files),
        files=[str(file) for file in files],
        source_format="easycom",
        reader_options={"frame_base": 0, "skip_nonverbal": False} | options,
    )


def _egocom(
    path: Path, *, recording: str | None = None, video_info: str | None = None, label_window: float = 0.5
) -> Annotated:
    if recording is None:
        raise InputError(f"{path}: holds many conversations; add --recording with a video's number from video_info.csv")
    files, conversation, wearer = [str(path)], recording, None
    if recording.isdecimal():
        table = Path(video_info) if video_info is not None else path.with_name("video_info.csv")
        conversation, wearer = egocom_video(table, video_id=recording)
        files.append(str(table))
    elif video_info is not None:
        raise InputError(f"{path}: recording {recording!r} is a conversation; with video_info give a video's number")
    place = {"conversation": conversation, "label_window": label_window}
    return Annotated(
        turns=read_egocom(path, **place),
        known=egocom_known(path, **place),
        files=files,
        source_format="egocom",
        wearer=wearer,
        recording=recording,
        reader_options=place,
    )


READERS = {"rttm": _rttm, "csv": _csv, "easycom": _easycom, "egocom": _egocom}
