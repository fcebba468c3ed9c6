"""One recording on one time line: its sound and its frames, asked for by seconds.

0 s is the earliest time stamp of the film's tracks, as in players, or the first sample of a sound file. A span is where
there is picture and sound: it ends with the shorter of the two. Sound that begins after the picture is preceded by
silence; a picture that begins more than a step of 0.2 s after the sound begins the span later (see `Film.start`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.decoders import reader_class
from swift_plugin.media.film import TIME_TOLERANCE, scan_film
from swift_plugin.media.film_reel import FilmPiece, FilmReel
from swift_plugin.media.sound import check_channel, has_sound, open_sound
from swift_plugin.media.stored_sound import SoundPiece, StoredSound, silent_sound, store_sound
from swift_plugin.stream.spec import SAMPLE_RATE, STEP_SECONDS

logger = logging.getLogger(__name__)


class Session:
    """Sound and frames by time. Open one with `open_session` or `open_easycom_session`, and close it.

    The sound is decoded and resampled when the session is opened; frames are decoded as they are asked for, fastest in
    order of time. A session may be opened before a process is forked, and is read by one thread at a time.

    Attributes:
        spans: intervals [start, end) in seconds in which there is media, in order; gaps lie between them.
        duration: end of the last span, in seconds.
        has_film: whether there are frames.
        picture_size: (height, width) of a frame after rotation; `None` without a film.
        sources: the files, in order of time.
        opening: what opens the same session again, see below.

    Args:
        spans: at least one.
        sounds: the sound of each span, which covers it.
        reel: the films, which cover the spans; `None` for sound only.
        sources: as above.
        opening: the arguments of `open_session` or `open_easycom_session` that opened it, without the decoder.
    """

    def __init__(
        self,
        *,
        spans: Sequence[tuple[float, float]],
        sounds: Sequence[StoredSound],
        reel: FilmReel | None,
        sources: Sequence[Path],
        opening: dict[str, Any],
    ) -> None:
        self.spans = list(spans)
        self.duration = self.spans[-1][1]
        self.has_film = reel is not None
        self.picture_size = None if reel is None else reel.picture_size
        self.sources = list(sources)
        self.opening = opening
        self._sounds = list(sounds)
        self._reel = reel

    def sound(self, start: float, end: float) -> np.ndarray:
        """Mono sound at 16 kHz of [start, end): float32 [round((end - start) * 16000)].

        It does not depend on the window: neighbouring windows join bit by bit.

        Raises:
            InputError: the interval does not lie in one span.
        """
        first, count = round(start * SAMPLE_RATE), round((end - start) * SAMPLE_RATE)
        for span, sound in zip(self.spans, self._sounds):
            inside = round(span[0] * SAMPLE_RATE) <= first and first + count <= round(span[1] * SAMPLE_RATE)
            if inside and count >= 0:
                return sound.read(first, count)
        raise InputError(f"{self._name()}: no sound from {start:.3f} to {end:.3f} s; {self._spans_in_words()}")

    def frames(self, times: Sequence[float]) -> np.ndarray:
        """For each time the latest frame that was shown by then: uint8 [n, height, width, 3], RGB.

        The frame is found by its time stamp. The last one stands until the span's end, the first one from its start.

        Raises:
            InputError: a time outside every span; the session has no film; the film cannot be decoded there.
        """
        if self._reel is None:
            raise InputError(f"{self._name()}: has no picture; ask for its sound alone")
        for seconds in times:
            if not any(start - TIME_TOLERANCE <= seconds < end for start, end in self.spans):
                raise InputError(f"{self._name()}: no frame at {seconds:.3f} s; {self._spans_in_words()}")
        return self._reel.frames(times)

    def close(self) -> None:
        """Close the decoder and give the temporary file of the sound back."""
        if self._reel is not None:
            self._reel.close()
        self._sounds.clear()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _name(self) -> str:
        return str(self.sources[0] if len(self.spans) == 1 else self.sources[0].parent)

    def _spans_in_words(self) -> str:
        words = ", ".join(f"{start:.3f} to {end:.3f}" for start, end in self.spans[:4])
        return f"stay within one span of media: {words}{', …' if len(self.spans) > 4 else ''} s"


def open_session(
    *,
    film: Path | None = None,
    audio: Path | None = None,
    channel: int | str = "mix",
    silence: bool = False,
    decoder: str = "pyav",
) -> Session:
    """Open a film with its sound, a film and a sound file, or a sound file alone, as one span.

    Args:
        film: film file. Its own sound track is used unless `audio` is given.
        audio: sound file; its first sample lies at 0 s of the film.
        channel: number of the channel, from 0, or "mix" for the mean of all.
        silence: take a film without a sound track as silent instead of refusing it.
        decoder: "pyav", "torchcodec" or "decord".

    Raises:
        InputError: neither is given; a file is missing or unreadable; no picture or no sound in it; no such channel or
            decoder; no time that has both picture and sound.
    """
    check_channel(channel)
    reader_class(decoder)
    if film is None and audio is None:
        raise InputError("no media given; name a film, a sound file or both")
    opening = {"film": film, "audio": audio, "channel": channel, "silence": silence}
    if film is None:
        sound = _stored(Path(audio), channel)
        return Session(spans=[(0.0, sound.end)], sounds=[sound], reel=None, sources=[Path(audio)], opening=opening)

    film = Path(film)
    index = scan_film(film)
    reel = FilmReel([FilmPiece(0.0, index)], decoder=decoder)
    if audio is None and silence and not has_sound(film):
        sound = silent_sound(start=0.0, end=index.end)
    else:
        sound = _stored(film if audio is None else Path(audio), channel)
        warn_of_lengths(film, picture_end=index.end, sound_end=sound.end)
    span = (index.start, min(index.end, sound.end))
    if span[0] >= span[1]:
        raise InputError(
            f"{film}: its picture begins at {span[0]:.3f} s, its sound ends at {sound.end:.3f} s; "
            "give the sound of this film"
        )
    if span[0] > 0:
        logger.warning("%s: its picture begins at %.3f s; what comes before is left out", film, span[0])
    sources = [film] if audio is None else [film, Path(audio)]
    return Session(spans=[span], sounds=[sound], reel=reel, sources=sources, opening=opening)


def warn_of_lengths(film: Path, *, picture_end: float, sound_end: float) -> None:
    """Say in one line that picture and sound end more than a step apart."""
    if abs(picture_end - sound_end) > STEP_SECONDS:
        logger.warning(
            "%s: its picture ends at %.3f s, its sound at %.3f s; only what both have is used",
            film,
            picture_end,
            sound_end,
        )


def _stored(path: Path, channel: int | str) -> StoredSound:
    return store_sound([SoundPiece(0.0, open_sound(path, channel=channel))])
