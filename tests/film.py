"""A short real film, and its cache, for tests that need media behind a manifest."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from helpers import cache_arguments

from swift_plugin.cache.builder import build_cache
from swift_plugin.cache.manifest import MANIFEST_NAME
from swift_plugin.media.session import open_session


def write_film(path: Path, *, seconds: float, seed: int = 0, rate: int = 10, size: tuple[int, int] = (96, 64)) -> Path:
    """Noise that moves, with a tone that changes: H.264 and AAC in MP4."""
    width, height = size
    random = np.random.default_rng(seed)
    picture = random.integers(0, 255, (height // 8, width // 8, 3), np.uint8).repeat(8, 0).repeat(8, 1)
    times = np.arange(round(seconds * 16_000)) / 16_000
    tone = 0.3 * np.sin(2 * np.pi * (200 + 150 * (times // 1.3 % 4) + 30 * seed) * times)
    sound = (tone + 0.01 * random.standard_normal(len(times))).astype(np.float32)
    with av.open(str(path), "w") as film:
        video = film.add_stream("libx264", rate=rate, options={"crf": "20", "preset": "ultrafast"})
        video.width, video.height, video.pix_fmt = width, height, "yuv420p"
        audio = film.add_stream("aac", rate=16_000, layout="mono")
        for number in range(round(seconds * rate)):
            frame = av.VideoFrame.from_ndarray(np.roll(picture, 5 * number, axis=1), format="rgb24")
            frame.pts, frame.time_base = number, Fraction(1, rate)
            film.mux(video.encode(frame))
        for start in range(0, len(sound), 1_024):
            frame = av.AudioFrame.from_ndarray(sound[None, start : start + 1_024], format="fltp", layout="mono")
            frame.sample_rate, frame.pts = 16_000, start
            film.mux(audio.encode(frame))
        film.mux(video.encode())
        film.mux(audio.encode())
    return path


def make_film_cache(folder: Path, checkpoint: Path, *, seconds: float, decoder: str = "pyav", **options) -> Path:
    """The cache of a film that lies beside it; returns the path of the manifest."""
    arguments = cache_arguments(folder, checkpoint, spans=[(0.0, seconds)], **options)
    film = write_film(folder / "film.mp4", seconds=seconds, seed=options.get("seed", 0))
    with open_session(film=film, decoder=decoder) as session:
        build_cache(**{**arguments, "session": session})
    return arguments["folder"] / MANIFEST_NAME

