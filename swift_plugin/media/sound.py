"""One channel of sound from files of any kind, at its own rate, counted from the file's 0 s."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.files import check_file, open_container, start_seconds

if TYPE_CHECKING:
    from av.audio.frame import AudioFrame

SOUNDFILE_SUFFIXES = (".wav", ".flac", ".ogg")
BLOCK_FRAMES = 1 << 16
STAMP_TOLERANCE = 0.05  # seconds that sound may stray from its time stamps, which some formats round


class SoundFile(Protocol):
    """The sound of one file.

    Attributes:
        path: the file.
        rate: its samples a second.
    """

    path: Path
    rate: int

    def blocks(self) -> Iterator[np.ndarray]:
        """The channel from 0 s of the file's time line on, float32 [n] a piece, full scale 1.0.

        Raises:
            InputError: the file cannot be decoded to its end, or holds values that are not finite.
        """


def open_sound(path: Path, *, channel: int | str) -> SoundFile:
    """The sound of a file: wav, flac and ogg by soundfile, all others (films, mp3, m4a) by PyAV.

    Args:
        path: the file.
        channel: number of the channel, from 0, or "mix" for the mean of all.

    Raises:
        InputError: the file is missing or unreadable; it has no sound or no such channel.
    """
    check_channel(channel)
    if check_file(path).suffix.lower() in SOUNDFILE_SUFFIXES:
        return PlainSound(path, channel)
    return _TrackSound(path, channel)


def has_sound(path: Path) -> bool:
    """Whether a film has a sound track."""
    with open_container(path) as container:
        return bool(container.streams.audio)


def check_channel(channel: int | str) -> None:
    """Raises:
    InputError: neither a number from 0 nor "mix".
    """
    if channel != "mix" and (not isinstance(channel, int) or isinstance(channel, bool) or channel < 0):
        raise InputError(f'channel {channel!r} is neither a number from 0 nor "mix"; correct it')


class PlainSound:
    """A file that libsndfile reads: it scales integers of every width to 1.0 and leaves floats as they are.

    Attributes:
        path, rate: see `SoundFile`.
        seconds: its length.
    """

    def __init__(self, path: Path, channel: int | str) -> None:
        import soundfile

        self.path = path
        self._channel = channel
        try:
            info = soundfile.info(str(path))
        except soundfile.LibsndfileError as error:
            raise InputError(f"{path}: cannot be read as sound ({error.error_string}); check the file") from None
        self.rate = info.samplerate
        self.seconds = info.frames / info.samplerate
        _check_channel_exists(path, channel, info.channels)

    def blocks(self) -> Iterator[np.ndarray]:
        import soundfile

        try:
            with soundfile.SoundFile(str(self.path)) as file:
                for block in file.blocks(BLOCK_FRAMES, dtype="float32", always_2d=True):  # [n, channels]
                    yield _check_finite(_pick(block, self._channel), self.path)
        except soundfile.LibsndfileError as error:
            raise InputError(f"{self.path}: breaks off ({error.error_string}); copy or encode it again") from None


class _TrackSound:
    """A track that FFmpeg decodes, laid out by its time stamps: silence where there is a hole, no overlaps."""

    def __init__(self, path: Path, channel: int | str) -> None:
        self.path = path
        self._channel = channel
        first = self._first_frame()
        self.rate = first.sample_rate  # not that of the header: HE-AAC declares half of what it decodes to
        _check_channel_exists(path, channel, first.layout.nb_channels)

    def blocks(self) -> Iterator[np.ndarray]:
        import av

        position = 0  # samples given out so far, from 0 s on
        try:
            for start, samples in self._decoded():
                wanted = round(start * self.rate)
                if position == 0 or abs(wanted - position) > STAMP_TOLERANCE * self.rate:
                    yield from zeros(wanted - position)
                    samples = samples[max(position - wanted, 0) :]
                    position = max(position, wanted)
                position += len(samples)
                yield _check_finite(samples, self.path)
        except av.FFmpegError as error:
            raise InputError(f"{self.path}: its sound breaks off ({error.strerror}); encode it again") from None

    def _first_frame(self) -> AudioFrame:
        import av

        with open_container(self.path) as container:
            stream = container.streams.best("audio")
            if stream is None:
                raise InputError(
                    f"{self.path}: has no sound track; add a sound file, or take it as silent with --silence"
                )
            try:
                frame = next(container.decode(stream), None)
            except av.FFmpegError as error:
                raise InputError(
                    f"{self.path}: its sound cannot be decoded ({error.strerror}); encode it again"
                ) from None
        if frame is None:
            raise InputError(f"{self.path}: its sound track is empty; add a sound file")
        return frame

    def _decoded(self) -> Iterator[tuple[float, np.ndarray]]:
        """Pieces of the channel with the seconds at which each begins."""
        import av

        with open_container(self.path) as container:
            zero = start_seconds(container)
            to_float = av.AudioResampler(format="fltp")  # changes the format alone: no rate, no layout
            for frame in container.decode(container.streams.best("audio")):
                if frame.pts is None:
                    raise InputError(f"{self.path}: has sound without a time stamp; write it again with ffmpeg")
                if frame.sample_rate != self.rate:
                    raise InputError(
                        f"{self.path}: its sound changes from {self.rate} to {frame.sample_rate} Hz; encode it again"
                    )
                start = frame.time - zero
                for planes in to_float.resample(frame):
                    yield start, _pick(planes.to_ndarray().T, self._channel)


def _check_channel_exists(path: Path, channel: int | str, channels: int) -> None:
    if channel != "mix" and channel >= channels:
        raise InputError(f'{path}: has {channels} channel(s), no channel {channel}; use 0 to {channels - 1}, or "mix"')


def _pick(block: np.ndarray, channel: int | str) -> np.ndarray:
    """One channel of [n, channels], or their mean."""
    return block.mean(axis=1, dtype=np.float32) if channel == "mix" else block[:, channel]


def _check_finite(samples: np.ndarray, path: Path) -> np.ndarray:
    if not np.isfinite(samples).all():
        raise InputError(f"{path}: holds samples that are not finite numbers; export the sound again")
    return samples


def zeros(count: int) -> Iterator[np.ndarray]:
    """`count` samples of silence in blocks; none where `count` is not positive."""
    for start in range(0, count, BLOCK_FRAMES):
        yield np.zeros(min(BLOCK_FRAMES, count - start), dtype=np.float32)
