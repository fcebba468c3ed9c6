"""EasyCom: one time line from the one-minute files `mm-ss-SSS` of a session.

A file's name is the time of the session at which it begins. Each minute has a film (`Video_Compressed`, 20 frames a
second) and a 6-channel wav of 48 kHz and 32 bits (`Glasses_Microphone_Array_Audio`: channels 0 to 3 in the frame of the
glasses, 4 and 5 at the ears), in folders `Session_N` beside each other. Redacted minutes have no files.
Source: README of facebookresearch/EasyComDataset, "Dataset Structure" and "File Naming Convention".

Two minutes meet when the later one begins at most one frame (0.05 s, and 1 ms for the names' rounding) after the
earlier one ends; in the real sessions most names lie 60.00 to 60.04 s apart. They form one span: the earlier minute's
last frame stands and silence fills until the later one begins. Anything longer is a gap. A minute that runs into the
next one is cut there.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from swift_plugin.errors import InputError
from swift_plugin.media.decoders import reader_class
from swift_plugin.media.film import TIME_TOLERANCE, Film, scan_film
from swift_plugin.media.film_reel import FilmPiece, FilmReel
from swift_plugin.media.session import Session, warn_of_lengths
from swift_plugin.media.sound import PlainSound, check_channel
from swift_plugin.media.stored_sound import JOIN_TOLERANCE, SoundPiece, store_sound

VIDEO_FOLDER = "Video_Compressed"
AUDIO_FOLDER = "Glasses_Microphone_Array_Audio"
FRAME_SECONDS = 1 / 20
_NAME = re.compile(r"(\d{2,})-([0-5]\d)-(\d{3})")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class _Minute:
    """One minute's files; `start` and `end` in seconds of the session, where it has picture and sound."""

    start: float
    end: float
    film: Film | None
    sound: PlainSound


def open_easycom_session(
    session_dir: Path, *, channel: int | str = "mix", with_film: bool = True, decoder: str = "pyav"
) -> Session:
    """Open one session of EasyCom with its gaps.

    Args:
        session_dir: `…/Session_N` in the folder of the films, of the sound or of the transcriptions; or the dataset's
            root where it holds a single session.
        channel: number of the microphone, from 0, or "mix" for the mean of all six.
        with_film: read the films; without them, sound alone is enough.
        decoder: "pyav", "torchcodec" or "decord".

    Raises:
        InputError: no such session; a file whose name is no time; no minute with all its files; what `open_session`
            refuses in a file.
    """
    check_channel(channel)
    reader_class(decoder)
    folder = _find_session(Path(session_dir))
    sounds = _minute_files(folder.parent.parent / AUDIO_FOLDER / folder.name, ".wav")
    films = _minute_files(folder.parent.parent / VIDEO_FOLDER / folder.name, ".mp4") if with_film else {}
    starts = sorted(set(films) & set(sounds) if with_film else sounds)
    if not starts:
        needed = f"{VIDEO_FOLDER} and {AUDIO_FOLDER}" if with_film else AUDIO_FOLDER
        raise InputError(f"{folder}: no minute has all its files; download {needed} of {folder.name}")
    if with_film:
        _warn_of_halves(films, sounds)

    minutes = [_open_minute(start, films.get(start), sounds[start], channel) for start in starts]
    groups = _join(minutes)
    spans = [(group[0].start, group[-1].end) for group in groups]
    stored = [store_sound([SoundPiece(minute.start, minute.sound) for minute in group]) for group in groups]
    reel = FilmReel([FilmPiece(m.start, m.film) for m in minutes], decoder=decoder) if with_film else None
    sources = [path for m in minutes for path in ([m.film.path] if m.film else []) + [m.sound.path]]
    return Session(
        spans=[(start, min(end, sound.end)) for (start, end), sound in zip(spans, stored)],
        sounds=stored,
        reel=reel,
        sources=sources,
        opening={"session_dir": folder, "channel": channel, "with_film": with_film},
    )


def _find_session(path: Path) -> Path:
    """The folder `…/<kind of data>/Session_N`."""
    if not path.is_dir():
        raise InputError(f"{path}: no such folder; give an EasyCom session, …/Main/{VIDEO_FOLDER}/Session_N")
    if (path.parent.parent / AUDIO_FOLDER).is_dir():
        return path
    for root in (path, path / "Main"):
        sessions = sorted((root / AUDIO_FOLDER).glob("*Session_*"))
        if len(sessions) == 1:
            return sessions[0]
        if sessions:
            raise InputError(f"{path}: holds {len(sessions)} sessions; give one, for example {sessions[0]}")
    raise InputError(f"{path}: has no {AUDIO_FOLDER} in it or beside it; give …/Main/{VIDEO_FOLDER}/Session_N")


def _minute_files(folder: Path, suffix: str) -> dict[float, Path]:
    """Seconds of the session -> the file that begins there."""
    files = {}
    for path in folder.glob(f"*{suffix}"):
        match = _NAME.fullmatch(path.stem)
        if match is None:
            raise InputError(f"{path}: the name is not a time mm-ss-SSS; rename it or move it out of the folder")
        minutes, seconds, milliseconds = map(int, match.groups())
        files[(60_000 * minutes + 1_000 * seconds + milliseconds) / 1_000] = path
    return files


def _warn_of_halves(films: dict[float, Path], sounds: dict[float, Path]) -> None:
    for start in sorted(set(films) ^ set(sounds)):
        there, missing = (films[start], "sound") if start in films else (sounds[start], "film")
        logger.warning("%s: has no %s beside it; its minute is a gap", there, missing)


def _open_minute(start: float, film_path: Path | None, sound_path: Path, channel: int | str) -> _Minute:
    sound = PlainSound(sound_path, channel)
    if film_path is None:
        return _Minute(start=start, end=start + sound.seconds, film=None, sound=sound)
    film = scan_film(film_path)
    if film.start > 0:
        raise InputError(f"{film_path}: its picture begins at {film.start:.3f} s of the file; download it again")
    warn_of_lengths(film_path, picture_end=film.end, sound_end=sound.seconds)
    return _Minute(start=start, end=start + min(film.end, sound.seconds), film=film, sound=sound)


def _join(minutes: list[_Minute]) -> list[list[_Minute]]:
    """Groups of minutes that meet."""
    groups = [[minutes[0]]]
    for minute in minutes[1:]:
        if minute.start - groups[-1][-1].end <= FRAME_SECONDS + JOIN_TOLERANCE + TIME_TOLERANCE:
            groups[-1].append(minute)
        else:
            groups.append([minute])
    return groups
