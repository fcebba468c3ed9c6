"""Sound keeps its scale, its pitch, its channel and its place in time, whatever file it comes from."""

from __future__ import annotations

import struct
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
import soxr
from scipy.io import wavfile

from swift_plugin.media.session import open_session
from swift_plugin.media.sound import BLOCK_FRAMES, open_sound

from .conftest import make_film, sine

EDGE = 400  # samples at 16 kHz that a resampling filter or a codec may bend at the ends


def read_all(path: Path, **options) -> np.ndarray:
    with open_session(audio=path, **options) as session:
        return session.sound(0, session.duration)


def write_integers(path: Path, width: int, values: list[int], *, repeats: int = 4000) -> Path:
    """A 16 kHz mono wav of `width` bytes a sample, packed by hand."""
    packed = b"".join(struct.pack("<i", value)[:width] for value in values)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(width)
        file.setframerate(16_000)
        file.writeframes(packed * repeats)
    return path


@pytest.mark.parametrize("width", [2, 3, 4])
def test_integers_of_every_width_have_full_scale_one(tmp_path: Path, width: int) -> None:
    half = 1 << (8 * width - 2)
    path = write_integers(tmp_path / "a.wav", width, [half, -half, 0, -2 * half])
    assert read_all(path)[:4].tolist() == [0.5, -0.5, 0.0, -1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_are_left_as_they_are(tmp_path: Path, dtype: type) -> None:
    wavfile.write(tmp_path / "a.wav", 16_000, np.array([0.5, -0.25, 1.5, -3.0] * 1000, dtype=dtype))
    assert read_all(tmp_path / "a.wav")[:4].tolist() == [0.5, -0.25, 1.5, -3.0]


@pytest.mark.parametrize("rate", [8_000, 11_025, 16_000, 22_050, 44_100, 48_000, 96_000])
def test_a_sine_keeps_pitch_amplitude_and_phase(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", sine(2, rate), rate, subtype="FLOAT")
    sound = read_all(tmp_path / "a.wav")
    assert sound.dtype == np.float32
    assert len(sound) == 32_000
    np.testing.assert_allclose(sound[EDGE:-EDGE], sine(2, 16_000)[EDGE:-EDGE], atol=1e-4)


def test_what_16_khz_cannot_hold_is_filtered_out(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(2, 48_000, hertz=10_000), 48_000, subtype="FLOAT")
    assert np.abs(read_all(tmp_path / "a.wav")[EDGE:-EDGE]).max() < 1e-4


def test_the_track_is_resampled_as_a_whole(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, 5 * 44_100).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", noise, 44_100, subtype="FLOAT")
    np.testing.assert_array_equal(read_all(tmp_path / "a.wav"), soxr.resample(noise, 44_100, 16_000, quality="HQ"))


def test_windows_agree_bit_by_bit(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).uniform(-0.5, 0.5, 5 * 44_100)
    soundfile.write(tmp_path / "a.wav", noise, 44_100)
    with open_session(audio=tmp_path / "a.wav") as session:
        whole = session.sound(0, 4)
        np.testing.assert_array_equal(whole, np.concatenate([session.sound(0, 2), session.sound(2, 4)]))
        steps = [session.sound(0.2 * step, 0.2 * (step + 1)) for step in reversed(range(20))]
        assert {len(step) for step in steps} == {3200}
        np.testing.assert_array_equal(whole, np.concatenate(steps[::-1]))


def test_sound_is_a_copy(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(1, 16_000), 16_000, subtype="FLOAT")
    with open_session(audio=tmp_path / "a.wav") as session:
        before = session.sound(0, 1)
        session.sound(0, 1)[:] = 7
        np.testing.assert_array_equal(session.sound(0, 1), before)


@pytest.mark.parametrize(("channel", "level"), [(0, 0.1), (1, 0.2), (2, -0.6), ("mix", -0.1)])
def test_channel_choice(tmp_path: Path, channel: int | str, level: float) -> None:
    soundfile.write(tmp_path / "a.wav", np.tile([0.1, 0.2, -0.6], (16_000, 1)), 16_000, subtype="FLOAT")
    np.testing.assert_allclose(read_all(tmp_path / "a.wav", channel=channel), level, atol=1e-6)


@pytest.mark.parametrize("channel", [0, 1, "mix"])
def test_channel_choice_in_a_film_track(tmp_path: Path, channel: int | str) -> None:
    left, right = sine(2, 48_000, amplitude=0.4), np.zeros(96_000)
    path = tmp_path / "a.mka"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=48_000, layout="stereo")
        samples = np.stack([left, right], axis=1).reshape(1, -1)
        frame = av.AudioFrame.from_ndarray((samples * 32768).astype(np.int16), "s16", "stereo")
        frame.sample_rate, frame.pts = 48_000, 0
        container.mux(stream.encode(frame) + stream.encode())
    expected = {0: 0.4, 1: 0.0, "mix": 0.2}[channel]
    np.testing.assert_allclose(
        read_all(path, channel=channel)[EDGE : 32_000 - EDGE],
        sine(2, 16_000, amplitude=expected)[EDGE : 32_000 - EDGE],
        atol=2e-4,
    )


@pytest.mark.parametrize(("suffix", "tolerance"), [(".flac", 1e-3), (".ogg", 0.03)])
def test_compressed_files_of_soundfile(tmp_path: Path, suffix: str, tolerance: float) -> None:
    soundfile.write(tmp_path / f"a{suffix}", sine(2, 48_000), 48_000)
    sound = read_all(tmp_path / f"a{suffix}")
    np.testing.assert_allclose(sound[EDGE:-EDGE], sine(2, 16_000)[EDGE:-EDGE], atol=tolerance)


@pytest.mark.parametrize(("suffix", "codec"), [(".m4a", "aac"), (".mp3", "libmp3lame")])
def test_compressed_files_of_pyav_keep_their_place(tmp_path: Path, suffix: str, codec: str) -> None:
    path = tmp_path / f"a{suffix}"
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=44_100, layout="mono")
        stream.bit_rate = 128_000
        samples = sine(2, 44_100).astype(np.float32)
        size = 1152
        for first in range(0, len(samples), size):
            frame = av.AudioFrame.from_ndarray(samples[None, first : first + size], "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 44_100, first, Fraction(1, 44_100)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    sound = read_all(path)
    middle = slice(4_000, 28_000)
    np.testing.assert_allclose(sound[middle], sine(2, 16_000)[middle], atol=0.03)


def test_a_film_whose_sound_starts_late_begins_with_silence(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mkv", range(0, 3000, 40), sound=sine(2.5, 48_000), sound_start=0.5)
    with open_session(film=path) as session:
        sound = session.sound(0, 2.8)
    assert np.abs(sound[: 8_000 - EDGE]).max() < 1e-4
    np.testing.assert_allclose(sound[10_000:44_000], sine(2.3, 16_000)[2_000:36_000], atol=0.02)


def make_pieces(path: Path, starts: list[float]) -> Path:
    """A sound track of pieces of one second that begin at `starts`, each a cut of the same long sine."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("pcm_s16le", rate=48_000, layout="mono")
        for start in starts:
            samples = sine(1, 48_000, start=start)[None]
            frame = av.AudioFrame.from_ndarray((samples * 32768).astype(np.int16), "s16", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48_000, round(48_000 * start), Fraction(1, 48_000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_pieces_that_overlap_are_laid_once(tmp_path: Path) -> None:
    sound = read_all(make_pieces(tmp_path / "a.mka", [0, 0.5]))
    assert len(sound) == 24_000
    np.testing.assert_allclose(sound[EDGE:-EDGE], sine(1.5, 16_000)[EDGE:-EDGE], atol=1e-3)


def test_a_hole_in_a_sound_track_is_silent_and_shifts_nothing(tmp_path: Path) -> None:
    sound = read_all(make_pieces(tmp_path / "a.mka", [0, 2]))
    assert len(sound) == 48_000
    expected = sine(3, 16_000)
    np.testing.assert_allclose(sound[EDGE : 16_000 - EDGE], expected[EDGE : 16_000 - EDGE], atol=1e-3)
    assert np.abs(sound[16_000 + EDGE : 32_000 - EDGE]).max() < 1e-4
    np.testing.assert_allclose(sound[32_000 + EDGE : -EDGE], expected[32_000 + EDGE : -EDGE], atol=1e-3)


def test_a_file_is_read_in_blocks(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", sine(4, 48_000), 48_000)
    sizes = [len(block) for block in open_sound(tmp_path / "a.wav", channel=0).blocks()]
    assert max(sizes) <= BLOCK_FRAMES < sum(sizes) == 192_000


@pytest.mark.shared_data
def test_a_real_recording_is_what_scipy_reads(shared_data) -> None:
    path = shared_data("pyannote/sample.wav")
    rate, samples = wavfile.read(path)
    assert (rate, samples.dtype) == (16_000, np.int16)
    np.testing.assert_array_equal(read_all(path), samples.astype(np.float32) / 32768)
