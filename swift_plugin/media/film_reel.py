"""The films of a session, one after another, and the frame that stands at a time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.decoders import FrameReader, reader_class
from swift_plugin.media.film import TIME_TOLERANCE, Film

CACHE_BYTES = 128 * 2**20  # 20 frames of 1920x1080: enough for a block that is asked for step by step


@dataclass(frozen=True)
class FilmPiece:
    """A film whose 0 s lies at `start` seconds of the session."""

    start: float
    film: Film


class FilmReel:
    """Frames by time. Keeps one decoder open, and the last frames in a cache of bounded size.

    The decoder is opened by the first frame that is asked for, so a reel may be made before a process is forked and
    read in the child. One thread at a time.

    Args:
        pieces: at least one, in order of time.
        decoder: "pyav", "torchcodec" or "decord".

    Raises:
        InputError: no such decoder; films of different size.
    """

    def __init__(self, pieces: Sequence[FilmPiece], *, decoder: str) -> None:
        self._reader_class = reader_class(decoder)
        self._pieces = list(pieces)
        self._starts = np.array([piece.start for piece in pieces])
        self.picture_size = pieces[0].film.picture_size
        for piece in pieces:
            if piece.film.picture_size != self.picture_size:
                raise InputError(
                    f"{piece.film.path}: its picture (height, width) is {piece.film.picture_size}, that of "
                    f"{pieces[0].film.path.name} {self.picture_size}; encode them again with one size"
                )
        self._capacity = max(CACHE_BYTES // (3 * self.picture_size[0] * self.picture_size[1]), 1)
        self._cache: OrderedDict[tuple[int, int], np.ndarray] = OrderedDict()
        self._reader: FrameReader | None = None
        self._open_piece = -1

    def frames(self, times: Sequence[float]) -> np.ndarray:
        """The latest frame at each time: uint8 [n, height, width, 3]. The times lie in the session's spans."""
        out = np.empty((len(times), *self.picture_size, 3), dtype=np.uint8)
        wanted: dict[tuple[int, int], list[int]] = {}
        for row, seconds in enumerate(times):
            wanted.setdefault(self._key(seconds), []).append(row)
        missing: dict[int, list[int]] = {}
        for key, rows in wanted.items():
            if key in self._cache:
                self._cache.move_to_end(key)
                out[rows] = self._cache[key]
            else:
                missing.setdefault(key[0], []).append(key[1])
        for number in sorted(missing):
            stamps = sorted(missing[number])
            for stamp, frame in zip(stamps, self._reader_of(number).read(stamps)):
                out[wanted[number, stamp]] = frame
                self._remember((number, stamp), frame)
        return out

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader, self._open_piece = None, -1
        self._cache.clear()

    def _key(self, seconds: float) -> tuple[int, int]:
        number = max(int(np.searchsorted(self._starts, seconds + TIME_TOLERANCE, side="right")) - 1, 0)
        piece = self._pieces[number]
        return number, piece.film.stamp_at(seconds - piece.start)

    def _reader_of(self, number: int) -> FrameReader:
        if number != self._open_piece:
            if self._reader is not None:
                self._reader.close()
            self._reader = None
            self._reader = self._reader_class(self._pieces[number].film)
            self._open_piece = number
        return self._reader

    def _remember(self, key: tuple[int, int], frame: np.ndarray) -> None:
        self._cache[key] = frame
        while len(self._cache) > self._capacity:
            self._cache.popitem(last=False)
