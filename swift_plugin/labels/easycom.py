"""EasyCom: the speech transcriptions of one session, one JSON file a minute, frames at 20 a second.

A file `mm-ss-SSS.json` is a list of entries {Participant_ID, Start_Frame, End_Frame, Transcription,
Target_of_Speech}; its name is the time of the session at which its minute begins, and its frames count from there.
Redacted minutes have no file: they, and the fractions of a second between two minutes, are not annotated.
Source: README of facebookresearch/EasyComDataset, "File Naming Convention" and "Speech Transcriptions and Voice
Activity". It does not say whether frames count from 0 or from 1 (its head boxes count from 0, its face boxes from 1),
so `frame_base` is an option.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from swift_plugin.errors import InputError
from swift_plugin.labels.files import read_json
from swift_plugin.labels.turns import Turn, merge_turns

FRAMES_PER_SECOND = 20
MINUTE_SECONDS = 60.0
_NAME = re.compile(r"(\d{2,})-([0-5]\d)-(\d{3})")
_NONVERBAL = re.compile(r"\s*(\[[LCT]\][\s.,-]*)+")  # laughter, coughing, throat clear, and nothing else


def easycom_files(path: str | Path) -> list[Path]:
    """The minutes of a session folder, in order of time, or the one file that `path` is.

    Raises:
        InputError: nothing there, or a JSON file whose name is not a time.
    """
    path = Path(path)
    files = [path] if path.is_file() else list(path.glob("*.json"))
    if not files:
        raise InputError(f"{path}: holds no mm-ss-SSS.json; give one Session_N folder of Speech_Transcriptions")
    return sorted(files, key=_offset)


def easycom_known(files: list[Path]) -> list[tuple[float, float]]:
    """Which seconds of the session are annotated: one minute from each file's time on."""
    return [(_offset(file), _offset(file) + MINUTE_SECONDS) for file in files]


def read_easycom(path: str | Path, *, frame_base: int = 0, skip_nonverbal: bool = False) -> list[Turn]:
    """Read a session as one time line.

    An entry speaks from `Start_Frame` to `End_Frame`, both taken as points in time, so it lasts
    (End_Frame - Start_Frame) / 20 s with either base. What runs past the end of its minute is cut there, since that
    time is not annotated.

    Args:
        path: a session's folder, or one minute's file.
        frame_base: the number of a minute's first frame, 0 or 1.
        skip_nonverbal: leave out entries that are only laughter [L], coughing [C] or clearing the throat [T]. By
            default they count, as in the dataset, whose frames mark "voice or speech activity".

    Returns:
        Turns in order of time; speakers are participant numbers as text. Empty where nobody speaks.

    Raises:
        InputError: see `easycom_files`; a file that is not such a list; an entry outside its minute.
    """
    if frame_base not in (0, 1):
        raise InputError(f"frame_base={frame_base} is not 0 or 1; say which number the first frame has")
    turns = []
    for file in easycom_files(path):
        entries = read_json(file)
        if not isinstance(entries, list):
            raise InputError(f"{file}: is a JSON {type(entries).__name__}, not a list; give a speech transcription")
        for number, entry in enumerate(entries):
            try:
                turn = _parse_entry(entry, frame_base=frame_base, offset=_offset(file))
            except InputError as error:
                raise InputError(f"{file}, entry {number}: {error}") from None
            if not (skip_nonverbal and _NONVERBAL.fullmatch(str(entry.get("Transcription", "")))):
                turns.append(turn)
    return merge_turns(turns)


def _offset(file: Path) -> float:
    """Seconds of the session at which this file's minute begins."""
    match = _NAME.fullmatch(file.stem)
    if match is None:
        raise InputError(f"{file}: the name is not a time mm-ss-SSS; rename it or move it out of the session's folder")
    minutes, seconds, milliseconds = map(int, match.groups())
    return (60_000 * minutes + 1_000 * seconds + milliseconds) / 1_000


def _parse_entry(entry: Any, *, frame_base: int, offset: float) -> Turn:
    if not isinstance(entry, dict):
        raise InputError(f"{entry!r} is not an object; give entries with Participant_ID, Start_Frame, End_Frame")
    first, last = (_number(entry, key) for key in ("Start_Frame", "End_Frame"))
    if first < frame_base:
        raise InputError(f"Start_Frame={first} is before the first frame, {frame_base}; use --frame_base 0")
    start, end = ((frame - frame_base) / FRAMES_PER_SECOND for frame in (first, last))
    if start >= MINUTE_SECONDS:
        raise InputError(f"Start_Frame={first} is past the minute's {MINUTE_SECONDS:g} s; count from each file's start")
    speaker = entry.get("Participant_ID")
    if isinstance(speaker, bool) or not isinstance(speaker, (int, str)):
        raise InputError(f"Participant_ID={speaker!r} is not a participant's number; name who speaks")
    return Turn(offset + start, offset + min(end, MINUTE_SECONDS), str(speaker).strip())


def _number(entry: dict[str, Any], key: str) -> float:
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{key}={value!r} is not a frame number; correct it")
    return value
