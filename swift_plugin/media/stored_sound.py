"""The sound of one span at 16 kHz, kept in a temporary file.

A span's sound is decoded and resampled once, from its start to its end, and read from the file afterwards. So a window
of it can never depend on where the window begins (a resampler's filter sees both neighbours), and hours of sound cost
230 MB of disk an hour instead of memory. The file has no name, lies in the folder that TMPDIR names, and is gone when
the session is closed or the process ends.
"""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.sound import SoundFile, zeros
from swift_plugin.stream.spec import SAMPLE_RATE

JOIN_TOLERANCE = 0.001  # seconds: names of files count milliseconds, so a smaller mismatch is no gap


@dataclass(frozen=True)
class SoundPiece:
    """A file's sound whose 0 s lies at `start` seconds of the session."""

    start: float
    file: SoundFile


@dataclass(frozen=True)
class StoredSound:
    """Sound at 16 kHz: float32 [n], its first sample at number `first_sample` of the session."""

    first_sample: int
    samples: np.ndarray

    @property
    def end(self) -> float:
        """Seconds of the session at which the sound ends."""
        return (self.first_sample + len(self.samples)) / SAMPLE_RATE

    def read(self, first: int, count: int) -> np.ndarray:
        """A copy of `count` samples from number `first` of the session on."""
        start = first - self.first_sample
        return np.array(self.samples[start : start + count])


def silent_sound(*, start: float, end: float) -> StoredSound:
    """Silence over [start, end) seconds, which takes no room."""
    first = round(start * SAMPLE_RATE)
    return StoredSound(first, np.broadcast_to(np.float32(0), round(end * SAMPLE_RATE) - first))


def store_sound(pieces: Sequence[SoundPiece]) -> StoredSound:
    """Lay pieces on the session's time line and resample them as one track.

    Each piece keeps its place: where one ends early, silence follows up to the next, and where it runs on into the
    next, it is cut. A mismatch of at most 1 ms is left alone.

    Args:
        pieces: at least one, in order of time, with one sample rate.

    Raises:
        InputError: different sample rates; a file that cannot be decoded to its end; no room for the temporary file.
    """
    import soxr

    rate = pieces[0].file.rate
    for piece in pieces:
        if piece.file.rate != rate:
            raise InputError(
                f"{piece.file.path}: has {piece.file.rate} Hz and {pieces[0].file.path.name} {rate} Hz; "
                "resample one of them"
            )
    resampler = soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
    file = tempfile.TemporaryFile(prefix="swift-turn-sound-")
    try:
        for block in _joined(pieces):
            file.write(resampler.resample_chunk(np.ascontiguousarray(block)).tobytes())
        file.write(resampler.resample_chunk(np.zeros(0, dtype=np.float32), last=True).tobytes())
        file.flush()
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise InputError(
            f"{pieces[0].file.path}: no room in {tempfile.gettempdir()} for its sound at 16 kHz; "
            "let TMPDIR name a folder with 230 MB an hour of sound"
        ) from None
    if not file.tell():
        raise InputError(f"{pieces[0].file.path}: holds no sound; give a longer recording")
    return StoredSound(round(pieces[0].start * SAMPLE_RATE), np.memmap(file, dtype=np.float32, mode="r"))


def _joined(pieces: Sequence[SoundPiece]) -> Iterator[np.ndarray]:
    """The pieces' samples at their own rate, each piece at its place."""
    rate = pieces[0].file.rate
    slack = round(JOIN_TOLERANCE * rate)
    position = 0
    for number, piece in enumerate(pieces):
        is_last = number + 1 == len(pieces)
        stop = None if is_last else round((pieces[number + 1].start - pieces[0].start) * rate)
        for block in piece.file.blocks():
            if stop is not None and position + len(block) > stop + slack:
                block = block[: max(stop - position, 0)]
                position += len(block)
                yield block
                break
            position += len(block)
            yield block
        if stop is not None and stop - position > slack:
            yield from zeros(stop - position)
            position = stop
