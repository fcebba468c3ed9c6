"""The time line of one film file: the time stamp of every frame, without decoding them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.media.files import open_container, start_seconds
from swift_plugin.stream.spec import STEP_SECONDS

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

TIME_TOLERANCE = 1e-6  # seconds: times on our grid are sums in floating point


@dataclass(frozen=True, kw_only=True)
class Film:
    """What is known of a film before its frames are decoded.

    Attributes:
        path: the file.
        container: FFmpeg's name of its format, for example "mpegts".
        stamps: PTS of the frames in order of time, int64 [n], in units of `time_base`.
        keyframes: PTS of the frames that decoding can start at, in order, int64 [k].
        time_base: seconds of one unit.
        zero: the time stamp in seconds that counts as 0 s.
        end: seconds from 0 s to the end of the last frame.
        rotation: degrees, counter-clockwise, that bring a decoded frame upright: 0, 90, 180 or 270.
        coded_size: (height, width) of a decoded frame.
    """

    path: Path
    container: str
    stamps: np.ndarray
    keyframes: np.ndarray
    time_base: Fraction
    zero: float
    end: float
    rotation: int
    coded_size: tuple[int, int]

    @property
    def picture_size(self) -> tuple[int, int]:
        """(height, width) of an upright frame."""
        height, width = self.coded_size
        return (width, height) if self.rotation % 180 else (height, width)

    @property
    def start(self) -> float:
        """Seconds from which there is a picture.

        A film whose first frame comes within its own duration, or within the first step of 0.2 s, starts at 0: a step
        is looked at when it is over, and by then the frame is there. One that comes later starts the film there.
        """
        first = self.seconds(0)
        duration = self.seconds(1) - first if len(self.stamps) > 1 else self.end - first
        return 0.0 if first <= max(duration, STEP_SECONDS) + TIME_TOLERANCE else first

    def seconds(self, number: int) -> float:
        """When frame `number` in order of time appears."""
        return float(int(self.stamps[number]) * self.time_base) - self.zero

    def middle(self, stamp: int) -> float:
        """Half way from the frame at `stamp` to the next one in seconds: safe to ask by, however times are rounded."""
        number = int(np.searchsorted(self.stamps, stamp))
        following = self.seconds(number + 1) if number + 1 < len(self.stamps) else self.end
        return (self.seconds(number) + following) / 2

    def stamp_at(self, seconds: float) -> int:
        """PTS of the latest frame that has appeared by `seconds`; the first frame's before that."""
        limit = (seconds + self.zero + TIME_TOLERANCE) / float(self.time_base)
        return int(self.stamps[max(np.searchsorted(self.stamps, limit, side="right") - 1, 0)])


def scan_film(path: Path) -> Film:
    """Read a film's time stamps (its packets, not its pictures) and decode its first frame.

    Raises:
        InputError: not media; no picture track; nothing that can be decoded; a frame without a time stamp; a display
            matrix that mirrors the picture or turns it by something else than quarter turns.
    """
    with open_container(path) as container:
        stream = picture_stream(container, path)
        packets = [packet for packet in container.demux(stream) if packet.size and not packet.is_discard]
        if any(packet.pts is None for packet in packets):
            raise InputError(f"{path}: has frames without a time stamp; write it again as mp4 with ffmpeg")
        stamps = {packet.pts: packet.duration or 0 for packet in packets}
        keyframes = sorted(packet.pts for packet in packets if packet.is_keyframe)
        container_name = container.format.name
        time_base, zero = stream.time_base, start_seconds(container)
        frame_rate = stream.average_rate
        del packets

    first = _first_frame(path)
    order = sorted(stamp for stamp in stamps if stamp >= first.pts)  # a cut film can begin with undecodable packets
    last_duration = stamps[order[-1]]
    if not last_duration and len(order) > 1:
        last_duration = order[-1] - order[-2]
    elif not last_duration and frame_rate:
        last_duration = 1 / (frame_rate * time_base)
    return Film(
        path=path,
        container=container_name,
        stamps=np.array(order, dtype=np.int64),
        keyframes=np.array(keyframes, dtype=np.int64),
        time_base=time_base,
        zero=zero,
        end=float((order[-1] + last_duration) * time_base) - zero,
        rotation=_rotation(first, path),
        coded_size=(first.height, first.width),
    )


def picture_stream(container: InputContainer, path: Path) -> VideoStream:
    """The film's picture track.

    Raises:
        InputError: there is none; the cover of a sound file is no film.
    """
    import av

    stream = container.streams.best("video")
    if stream is None or stream.disposition & av.stream.Disposition.attached_pic:
        raise InputError(f"{path}: has no picture track; give it as the sound file, not as the film")
    return stream


def _first_frame(path: Path) -> VideoFrame:
    import av

    with open_container(path) as container:
        try:
            frame = next(container.decode(picture_stream(container, path)), None)
        except av.FFmpegError as error:
            raise InputError(f"{path}: its picture cannot be decoded ({error.strerror}); encode it again") from None
    if frame is None or frame.pts is None:
        raise InputError(f"{path}: holds no frame that can be decoded; encode it again")
    return frame


def _rotation(frame: VideoFrame, path: Path) -> int:
    """Quarter turns of the display matrix. Its layout: `libavutil/display.h` of FFmpeg."""
    from av.sidedata.sidedata import Type

    matrix = frame.side_data.get(Type.DISPLAYMATRIX)
    if matrix is None:
        return 0
    a, b, _, c, d = np.frombuffer(bytes(matrix), dtype=np.int32)[:5].astype(np.int64)
    if a * d - b * c < 0:
        raise InputError(f"{path}: its display matrix mirrors the picture; encode it again without")
    if frame.rotation % 90:
        raise InputError(f"{path}: is rotated by {frame.rotation} degrees; encode it again upright")
    return frame.rotation % 360
