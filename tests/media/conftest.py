"""Media made on the spot: films whose frames carry their number, sines, and an EasyCom session."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile

BITS = 8
HEIGHT, WIDTH = 48, 8 * BITS


def number_picture(number: int) -> np.ndarray:
    """`number` in black and white stripes, the lowest bit at the left; the lower third of the picture is grey."""
    stripes = np.repeat([255 * (number >> bit & 1) for bit in range(BITS)], WIDTH // BITS)
    picture = np.broadcast_to(stripes[None, :, None], (HEIGHT, WIDTH, 3)).astype(np.uint8)
    picture[2 * HEIGHT // 3 :] = 128
    return picture


def read_number(picture: np.ndarray) -> int:
    """The number that an upright frame carries."""
    means = picture[: HEIGHT // 2].reshape(HEIGHT // 2, BITS, WIDTH // BITS, 3).mean(axis=(0, 2, 3))
    return sum(int(mean > 128) << bit for bit, mean in enumerate(means))


def read_numbers(pictures: np.ndarray) -> list[int]:
    return [read_number(picture) for picture in pictures]


def sine(seconds: float, rate: int, *, hertz: float = 440.0, amplitude: float = 0.5, start: float = 0.0) -> np.ndarray:
    times = start + np.arange(round(seconds * rate)) / rate
    return amplitude * np.sin(2 * np.pi * hertz * times)


def make_film(
    path: Path,
    stamps: Sequence[int],
    *,
    time_base: Fraction = Fraction(1, 1000),
    gop: int = 12,
    sound: np.ndarray | None = None,
    sound_rate: int = 48_000,
    sound_start: float = 0.0,
    first_number: int = 0,
) -> Path:
    """A film with one numbered frame at each PTS of `stamps`, and `sound` from `sound_start` seconds on."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=1 / ((stamps[1] - stamps[0]) * time_base))
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        video.codec_context.time_base = time_base
        video.gop_size = gop
        video.options = {"crf": "10", "preset": "ultrafast", "bf": "2", "x264-params": "scenecut=0:bframes=2"}
        packets = []
        durations = np.diff(stamps, append=2 * stamps[-1] - stamps[-2])
        for number, (stamp, duration) in enumerate(zip(stamps, durations), start=first_number):
            frame = av.VideoFrame.from_ndarray(number_picture(number % 256), format="rgb24")
            frame.pts, frame.duration, frame.time_base = stamp, int(duration), time_base
            packets += video.encode(frame)
        packets += video.encode()
        if sound is not None:
            audio = container.add_stream("aac", rate=sound_rate, layout="mono")
            audio.bit_rate = 192_000  # at its default the encoder bends a sine
            packets += _encode_sound(audio, sound, sound_rate, sound_start)
        packets.sort(key=lambda packet: packet.dts * packet.time_base)
        container.mux(packets)
    return path


def _encode_sound(stream, sound: np.ndarray, rate: int, start: float) -> list:
    packets = []
    for first in range(0, len(sound), 1024):
        frame = av.AudioFrame.from_ndarray(sound[None, first : first + 1024].astype(np.float32), "fltp", "mono")
        frame.sample_rate, frame.time_base, frame.pts = rate, Fraction(1, rate), round(start * rate) + first
        packets += stream.encode(frame)
    return packets + stream.encode()


def rotate_by_matrix(path: Path, a: int, b: int, c: int, d: int) -> Path:
    """Write the display matrix of an mp4's track header: x' = a x + c y, y' = b x + d y (ISO/IEC 14496-12, 8.3.2)."""
    content = bytearray(path.read_bytes())
    at = content.index(b"tkhd") + 4 + 40
    values = (a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30)
    content[at : at + 36] = struct.pack(">9i", *values)
    path.write_bytes(content)
    return path


def make_easycom(root: Path, minutes: dict[str, float], *, session: str = "Session_1", gain: float = 0.1) -> Path:
    """Minutes by name -> seconds; frame numbers go on from one to the next, channel c is constant gain * (c + 1)."""
    films = root / "Main" / "Video_Compressed" / session
    sounds = root / "Main" / "Glasses_Microphone_Array_Audio" / session
    films.mkdir(parents=True)
    sounds.mkdir(parents=True)
    first = 0
    for name, seconds in minutes.items():
        frames = round(seconds * 20)
        make_film(films / f"{name}.mp4", range(frames), time_base=Fraction(1, 20), first_number=first)
        first += frames
        levels = np.tile(gain * (np.arange(6) + 1), (round(seconds * 48_000), 1))
        soundfile.write(sounds / f"{name}.wav", levels, 48_000, subtype="PCM_32")
    return root


@pytest.fixture
def plain_film(tmp_path: Path) -> Path:
    """4 s at 25 frames a second, with 4 s of a sine."""
    return make_film(
        tmp_path / "film.mp4", range(100), time_base=Fraction(1, 25), sound=sine(4, 48_000), sound_start=0.0
    )


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A file of `../shared/data` by its name; skips where it is absent. See the marker `shared_data`."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[3] / "shared" / "data" / name
        if not path.is_file():
            pytest.skip(f"../shared/data/{name} is not there")
        return path

    return find
