"""Three libraries that decode a film's frames, behind one small interface."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.film import Film, picture_stream
from swift_plugin.media.files import open_container

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

SEEK_AHEAD_SECONDS = 2.0  # a keyframe at least this far ahead is worth a seek; nearer, decoding forward is cheaper


# Formats that PyAV, torchcodec and decord were seen to agree in. In MPEG-TS, which has no index, torchcodec 0.17 and
# decord 0.6 give frames that are whole groups of pictures off their own time stamps.
_INDEXED_CONTAINERS = ("mov,mp4,m4a,3gp,3g2,mj2", "matroska,webm")


class FrameReader(Protocol):
    """Decodes frames of one film. Opened in the process that reads from it, used by one thread."""

    def __init__(self, film: Film) -> None: ...

    def read(self, stamps: Sequence[int]) -> list[np.ndarray]:
        """The upright frame of each PTS in `stamps` (ascending), uint8 [height, width, 3], RGB.

        Raises:
            InputError: the film cannot be decoded there.
        """

    def close(self) -> None: ...


class PyAVReader:
    """Decodes forward with PyAV; seeks only for a jump backward or to a far keyframe.

    A frame that its packet promised but that does not decode is replaced by the one before it, which is what a player
    would go on showing.
    """

    def __init__(self, film: Film) -> None:
        self._film = film
        self._open()

    def read(self, stamps: Sequence[int]) -> list[np.ndarray]:
        import av

        frames = []
        for stamp in stamps:
            try:
                frames.append(self._frame(stamp))
            except av.FFmpegError as error:
                seconds = float(stamp * self._film.time_base) - self._film.zero
                raise InputError(
                    f"{self._film.path}: cannot be decoded at {seconds:.3f} s ({error.strerror}); encode it again"
                ) from None
        return frames

    def close(self) -> None:
        self._container.close()

    def _open(self) -> None:
        self._container = open_container(self._film.path)
        self._stream = picture_stream(self._container, self._film.path)
        self._stream.thread_type = "AUTO"
        self._restart()

    def _restart(self) -> None:
        self._decoded = self._container.decode(self._stream)
        self._shown: VideoFrame | None = None  # the latest frame at or before the stamp asked for
        self._pending: VideoFrame | None = None  # decoded already, but later than that stamp

    def _frame(self, stamp: int) -> np.ndarray:
        keyframe = self._keyframe_before(stamp)
        position = int(self._film.stamps[0]) if self._shown is None else self._shown.pts
        if stamp < position or (keyframe - position) * self._film.time_base > SEEK_AHEAD_SECONDS:
            self._container.seek(keyframe, stream=self._stream)
            self._restart()
        self._decode_up_to(stamp)
        if self._shown is None:  # the file cannot be sought, or its seek ended too late
            self.close()
            self._open()
            self._decode_up_to(stamp)
        if self._shown is None:
            raise InputError(f"{self._film.path}: changed while it was read; open it again")
        return self._upright(self._shown)

    def _keyframe_before(self, stamp: int) -> int:
        number = np.searchsorted(self._film.keyframes, stamp, side="right") - 1
        return int(self._film.keyframes[number] if number >= 0 else self._film.stamps[0])

    def _decode_up_to(self, stamp: int) -> None:
        while self._shown is None or self._shown.pts < stamp:
            frame = self._pending or next(self._decoded, None)
            self._pending = None
            if frame is None:
                return
            if frame.pts > stamp:
                self._pending = frame
                return
            self._shown = frame

    def _upright(self, frame: VideoFrame) -> np.ndarray:
        if (frame.height, frame.width) != self._film.coded_size:
            height, width = self._film.coded_size
            raise InputError(
                f"{self._film.path}: changes from {width}x{height} to {frame.width}x{frame.height} pixels at "
                f"{frame.time - self._film.zero:.3f} s; encode it again with one size"
            )
        picture = frame.to_ndarray(format="rgb24")  # [height, width, 3]
        return np.ascontiguousarray(np.rot90(picture, self._film.rotation // 90))


class TorchCodecReader:
    """Decodes with torchcodec, which finds frames by time and turns them upright itself."""

    def __init__(self, film: Film) -> None:
        from torchcodec.decoders import VideoDecoder

        _check_container(film, "torchcodec")
        self._film = film
        try:
            self._decoder = VideoDecoder(str(film.path), dimension_order="NHWC", seek_mode="exact")
        except (RuntimeError, ValueError) as error:
            raise InputError(
                f"{film.path}: torchcodec cannot open it ({_one_line(error)}); use the decoder pyav"
            ) from None

    def read(self, stamps: Sequence[int]) -> list[np.ndarray]:
        times = [self._film.middle(stamp) + self._film.zero for stamp in stamps]
        try:
            frames = self._decoder.get_frames_played_at(times).data  # [n, height, width, 3]
        except (RuntimeError, IndexError) as error:
            raise InputError(
                f"{self._film.path}: torchcodec cannot decode it ({_one_line(error)}); use the decoder pyav"
            ) from None
        return list(frames.numpy())

    def close(self) -> None:
        del self._decoder


class DecordReader:
    """Decodes with decord, which counts time from the first frame and turns frames upright itself.

    decord takes frame numbers only; they are looked up in its own table of time stamps. A film that a quarter turn
    brings upright is refused: decord 0.6 makes pictures of four channels of it.
    """

    def __init__(self, film: Film) -> None:
        import decord

        _check_container(film, "decord")
        if film.rotation % 180:
            raise InputError(
                f"{film.path}: decord cannot turn a film by {film.rotation} degrees; use the decoder pyav"
            )
        self._film = film
        try:
            self._reader = decord.VideoReader(str(film.path))
            self._starts = self._reader.get_frame_timestamp(np.arange(len(self._reader)))[:, 0]  # seconds
        except (RuntimeError, decord.DECORDError) as error:
            raise InputError(f"{film.path}: decord cannot open it ({_one_line(error)}); use the decoder pyav") from None

    def read(self, stamps: Sequence[int]) -> list[np.ndarray]:
        import decord

        times = np.array([self._film.middle(stamp) - self._film.seconds(0) for stamp in stamps])
        numbers = np.searchsorted(self._starts, times + self._starts[0], side="right") - 1
        try:
            return list(self._reader.get_batch(numbers).asnumpy())
        except (RuntimeError, decord.DECORDError) as error:
            raise InputError(
                f"{self._film.path}: decord cannot decode it ({_one_line(error)}); use the decoder pyav"
            ) from None

    def close(self) -> None:
        del self._reader


_READERS = {
    "pyav": (PyAVReader, "av"),
    "torchcodec": (TorchCodecReader, "torchcodec"),
    "decord": (DecordReader, "decord"),
}


def reader_class(name: str) -> type[FrameReader]:
    """The reader called `name`, whose library is loaded now.

    Raises:
        InputError: no such decoder; its library is not installed or cannot be loaded.
    """
    if name not in _READERS:
        raise InputError(f"decoder {name!r} is not known; use one of {', '.join(_READERS)}")
    reader, package = _READERS[name]
    try:
        importlib.import_module(package)
    except ImportError:
        raise InputError(f"decoder {name!r} needs a package that is missing; pip install {package}") from None
    except (RuntimeError, OSError) as error:  # torchcodec without FFmpeg's libraries
        raise InputError(
            f"decoder {name!r} cannot be loaded ({_one_line(error)}); install FFmpeg, or use the decoder pyav"
        ) from None
    return reader


def _check_container(film: Film, name: str) -> None:
    if film.container not in _INDEXED_CONTAINERS:
        raise InputError(
            f"{film.path}: {name} is not known to find the right frames in {film.container}; use the decoder pyav"
        )


def _one_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
