"""Draws a film for a recorded conversation of two people: two faces whose mouths move while they speak.

A mouth is open by how loud the sound is while the turns say that its owner speaks. The film carries the sound, so it
is a recording by itself: 320 x 240, H.264 and AAC in MP4. The same input gives the same pictures.

    python examples/draw_film.py --audio output/conversation/sample.wav --turns output/conversation/sample.rttm \\
        --output output/conversation/film.mp4
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import soundfile
from PIL import Image, ImageDraw
from rich.progress import track

from swift_plugin.errors import InputError
from swift_plugin.files import refuse_existing, write_atomically
from swift_plugin.labels.rttm import read_rttm
from swift_plugin.labels.turns import Turn

WIDTH, HEIGHT = 320, 240
OVERSAMPLING = 2  # drawn larger and scaled down, for smooth edges
VIDEO_CODEC, AUDIO_CODEC = "libx264", "aac"

WALL, TABLE, MOUTH, TONGUE, EYE = "#dfe6ea", "#8a6a4f", "#4a1418", "#c25b5b", "#1f2430"
PEOPLE = (  # skin, shade of the nose, hair, shirt
    ("#f0c9a4", "#d9a47c", "#5b3a21", "#3f7f93"),
    ("#b9835a", "#9a6540", "#17141a", "#c9803b"),
)
CENTERS = ((80, 112), (240, 112))
BLINK_EVERY, BLINK_FOR = (3.1, 4.3), 0.15  # seconds, for each person


def read_sound(path: Path) -> tuple[np.ndarray, int]:
    """The sound as float32 [samples], channels averaged, and its sampling rate.

    Raises:
        InputError: the file cannot be read or is empty.
    """
    try:
        sound, sample_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except soundfile.LibsndfileError as error:
        raise InputError(f"{path}: cannot be read as sound ({error}); give a WAV or FLAC file") from None
    if not len(sound):
        raise InputError(f"{path}: holds no sample; give a recording with sound")
    return sound.mean(axis=1), sample_rate


def name_speakers(turns: Sequence[Turn], *, source: Path) -> list[str]:
    """The two speakers, the one who speaks first on the left.

    Raises:
        InputError: not two speakers.
    """
    speakers = list(dict.fromkeys(turn.speaker for turn in turns))
    if len(speakers) != len(PEOPLE):
        raise InputError(f"{source}: {len(speakers)} speakers ({', '.join(speakers)}); the film draws exactly two")
    return speakers


def mouth_openings(
    sound: np.ndarray, sample_rate: int, turns: Sequence[Turn], speakers: Sequence[str], *, fps: int
) -> np.ndarray:
    """How far each mouth is open in each frame, 0 (closed) to 1: float [frames, speakers].

    The opening follows the loudness of the frame's own time, as a share of the loudest 5 % of the frames, while the
    frame's middle lies in a turn of the speaker. The root of that share lets soft speech be seen.
    """
    num_frames = math.ceil(len(sound) * fps / sample_rate)
    borders = np.arange(num_frames + 1) * sample_rate // fps
    loudness = np.array([np.sqrt(np.mean(sound[a:b] ** 2)) for a, b in zip(borders, borders[1:])])  # [frames]
    opening = np.sqrt(loudness / max(np.quantile(loudness, 0.95), 1e-6)).clip(0, 1)
    middles = (np.arange(num_frames) + 0.5) / fps
    openings = np.zeros((num_frames, len(speakers)))
    for turn in turns:
        speaking = (turn.start <= middles) & (middles < turn.end)
        openings[speaking, speakers.index(turn.speaker)] = opening[speaking]
    return openings


def draw_person(canvas: ImageDraw.ImageDraw, person: int, *, opening: float, blinking: bool) -> None:
    """Draws person 0 (left) or 1 (right) onto a canvas of OVERSAMPLING times the film's size."""
    skin, nose, hair, shirt = PEOPLE[person]
    center_x, center_y = CENTERS[person]

    def ellipse(x: float, y: float, half_width: float, half_height: float, fill: str) -> None:
        box = (x - half_width, y - half_height, x + half_width, y + half_height)
        canvas.ellipse([OVERSAMPLING * value for value in box], fill=fill)

    ellipse(center_x, center_y + 122, 66, 62, shirt)
    ellipse(center_x, center_y + 58, 16, 22, skin)
    ellipse(center_x, center_y - 12, 53, 58, hair)
    ellipse(center_x, center_y + 4, 46, 56, skin)
    for side in (-1, 1):
        eye_x, eye_y = center_x + 17 * side, center_y - 8
        ellipse(eye_x, eye_y - 14, 9, 1.8, hair)
        if blinking:
            ellipse(eye_x, eye_y, 8, 1.2, hair)
        else:
            ellipse(eye_x, eye_y, 8.5, 6.5, "white")
            ellipse(eye_x, eye_y, 4, 4, EYE)
    ellipse(center_x, center_y + 10, 4, 6, nose)
    mouth_y = center_y + 34
    ellipse(center_x, mouth_y, 17 - 3 * opening, 1.6 + 12 * opening, MOUTH)
    if opening > 0.25:
        ellipse(center_x, mouth_y + 7 * opening, 8, 3.5 * opening, TONGUE)


def draw_frame(openings: Sequence[float], *, seconds: float) -> Image.Image:
    """The picture at `seconds` with both mouths open by `openings`, [speakers]."""
    picture = Image.new("RGB", (WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING), WALL)
    canvas = ImageDraw.Draw(picture)
    for person, opening in enumerate(openings):
        blinking = seconds % BLINK_EVERY[person] > BLINK_EVERY[person] - BLINK_FOR
        draw_person(canvas, person, opening=float(opening), blinking=blinking)
    canvas.rectangle([OVERSAMPLING * value for value in (0, 216, WIDTH, HEIGHT)], fill=TABLE)
    return picture.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)


def find_encoder(name: str) -> av.codec.Codec:
    """Raises:
    InputError: PyAV was built without that encoder.
    """
    try:
        return av.codec.Codec(name, "w")
    except av.codec.codec.UnknownCodecError:
        raise InputError(f"PyAV {av.__version__} has no encoder {name}; use its wheel: pip install av") from None


def write_film(path: Path, sound: np.ndarray, sample_rate: int, openings: np.ndarray, *, fps: int) -> None:
    """Encodes pictures and sound into the MP4 file `path`."""
    with av.open(path, "w", format="mp4") as film:
        video = film.add_stream(VIDEO_CODEC, rate=fps, width=WIDTH, height=HEIGHT, pix_fmt="yuv420p")
        video.options = {"crf": "20", "threads": "1"}  # more threads would encode the same pictures otherwise
        audio = film.add_stream(AUDIO_CODEC, rate=sample_rate, layout="mono", bit_rate=96_000)
        audio.codec_context.open()  # its frame size is known only then
        sent = 0
        for number in track(range(len(openings)), description="drawing", transient=True):
            picture = av.VideoFrame.from_image(draw_frame(openings[number], seconds=number / fps))
            picture.pts, picture.time_base = number, Fraction(1, fps)
            film.mux(video.encode(picture))
            while sent < len(sound) and sent * fps <= (number + 1) * sample_rate:  # both streams go on side by side
                piece = sound[sent : sent + audio.codec_context.frame_size]
                samples = av.AudioFrame.from_ndarray(piece[None], format="fltp", layout="mono")
                samples.sample_rate, samples.pts, samples.time_base = sample_rate, sent, Fraction(1, sample_rate)
                film.mux(audio.encode(samples))
                sent += len(piece)
        film.mux(video.encode())
        film.mux(audio.encode())


def draw_film(audio: Path, turns: Path, output: Path, *, fps: int = 20, overwrite: bool = False) -> Path:
    """Draws the film of the recording `audio` with the turns of an RTTM file and returns `output`.

    Raises:
        InputError: an unreadable input, not two speakers, no encoder, or `output` exists and may not be replaced.
    """
    refuse_existing(output, overwrite=overwrite)
    if fps < 1:
        raise InputError(f"fps={fps}: at least one frame a second is needed; use for example 20")
    find_encoder(VIDEO_CODEC)
    sound, sample_rate = read_sound(audio)
    if sample_rate not in (rates := find_encoder(AUDIO_CODEC).audio_rates):
        raise InputError(f"{audio}: {sample_rate} Hz is none of AAC's rates {sorted(rates)}; resample it, to 16000 say")
    spoken = read_rttm(turns)
    speakers = name_speakers(spoken, source=turns)
    openings = mouth_openings(sound, sample_rate, spoken, speakers, fps=fps)
    output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(output, lambda partial: write_film(partial, sound, sample_rate, openings, fps=fps))
    return output


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--audio", type=Path, required=True, help="sound of the conversation")
    parser.add_argument("--turns", type=Path, required=True, help="RTTM file with the turns of two speakers")
    parser.add_argument("--output", type=Path, required=True, help="MP4 file to write")
    parser.add_argument("--fps", type=int, default=20, help="frames a second (default: 20)")
    parser.add_argument("--overwrite", action="store_true", help="replace a film that is there")
    args = parser.parse_args()
    try:
        output = draw_film(**vars(args))
    except InputError as error:
        print(f"draw_film: {error}", file=sys.stderr)
        return 2
    print(output)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
