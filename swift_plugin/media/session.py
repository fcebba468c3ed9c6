"""One recording on one time line: its sound and its frames, asked for by seconds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np


class Session:
    """Sound and frames by time. Open one with `open_session` or `open_easycom_session`, and close it.

    Attributes:
        spans: intervals [start, end) in seconds in which there is media, in order; gaps lie between them.
        duration: end of the last span, in seconds.
        has_film: whether there are frames.
        picture_size: (height, width) of a frame after rotation; `None` without a film.
        sources: the files, in order of time.
    """

    spans: list[tuple[float, float]]
    duration: float
    has_film: bool
    picture_size: tuple[int, int] | None
    sources: list[Path]

    def sound(self, start: float, end: float) -> np.ndarray:
        """Mono sound at 16 kHz of [start, end): float32 [round((end - start) * 16000)].

        It does not depend on the window: neighbouring windows join bit by bit.

        Raises:
            InputError: the interval does not lie in one span.
        """
        raise NotImplementedError

    def frames(self, times: Sequence[float]) -> np.ndarray:
        """For each time the latest frame that was shown by then: uint8 [n, height, width, 3], RGB.

        Raises:
            InputError: a time outside every span; the session has no film.
        """
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(
    *,
    film: Path | None = None,
    audio: Path | None = None,
    channel: int | str = "mix",
    silence: bool = False,
    decoder: str = "pyav",
) -> Session:
    """Open a film with its sound, a film and a sound file, or a sound file alone, as one span from 0 s on.

    Args:
        film: film file. Its own sound track is used unless `audio` is given.
        audio: sound file.
        channel: number of the channel, from 0, or "mix" for the mean of all.
        silence: take a film without a sound track as silent instead of refusing it.
        decoder: "pyav", "torchcodec" or "decord".

    Raises:
        InputError: neither is given; a file is missing or unreadable; no sound; no such channel or decoder.
    """
    raise NotImplementedError
