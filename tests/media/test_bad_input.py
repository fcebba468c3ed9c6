"""Every bad input ends in one line that names the file, or the value, and the remedy."""

from __future__ import annotations

import importlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import soundfile

from swift_plugin.errors import InputError
from swift_plugin.media.session import open_session

from .conftest import make_film, sine


def refusal(**options) -> str:
    with pytest.raises(InputError) as caught:
        open_session(**options)
    message = str(caught.value)
    assert "\n" not in message
    assert ";" in message  # what is wrong; what to do
    return message


@pytest.fixture
def wav(tmp_path: Path) -> Path:
    soundfile.write(tmp_path / "two.wav", np.zeros((16_000, 2)), 16_000)
    return tmp_path / "two.wav"


def test_nothing() -> None:
    assert "no media given" in refusal()


@pytest.mark.parametrize("kind", ["film", "audio"])
@pytest.mark.parametrize("name", ["gone.mp4", "gone.wav"])
def test_missing(tmp_path: Path, kind: str, name: str) -> None:
    assert refusal(**{kind: tmp_path / name}).startswith(f"{tmp_path / name}: no such file")


def test_a_folder(tmp_path: Path) -> None:
    assert refusal(film=tmp_path).startswith(f"{tmp_path}: is not a file")


@pytest.mark.parametrize("kind", ["film", "audio"])
@pytest.mark.parametrize("name", ["a.wav", "a.mp4", "a.mp3"])
def test_no_media_inside(tmp_path: Path, kind: str, name: str) -> None:
    path = tmp_path / name
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n")
    message = refusal(**{kind: path})
    assert message.startswith(f"{path}: ")


def test_cut_off_before_its_index(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mp4", range(100), time_base=Fraction(1, 25))
    path.write_bytes(path.read_bytes()[:3000])
    assert refusal(film=path).startswith(f"{path}: cannot be opened as media")


def test_sound_without_samples(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(0), 16_000)
    assert "a.wav: holds no sound" in refusal(audio=tmp_path / "a.wav")


def test_sound_as_the_film(wav: Path) -> None:
    assert refusal(film=wav).startswith(f"{wav}: has no picture track")


def test_film_without_sound_track(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mp4", range(5), time_base=Fraction(1, 25))
    assert refusal(film=path).startswith(f"{path}: has no sound track")
    assert refusal(audio=path).startswith(f"{path}: has no sound track")


def test_channel_out_of_range(wav: Path, plain_film: Path) -> None:
    assert refusal(audio=wav, channel=2) == f'{wav}: has 2 channel(s), no channel 2; use 0 to 1, or "mix"'
    assert refusal(film=plain_film, channel=1) == f'{plain_film}: has 1 channel(s), no channel 1; use 0 to 0, or "mix"'


@pytest.mark.parametrize("channel", [-1, "left", 1.0, True])
def test_a_channel_that_is_none(wav: Path, channel: object) -> None:
    assert repr(channel) in refusal(audio=wav, channel=channel)


def test_sound_that_is_not_finite(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([0, np.nan] * 100), 16_000, subtype="FLOAT")
    assert "a.wav: holds samples that are not finite" in refusal(audio=tmp_path / "a.wav")


def test_unknown_decoder(wav: Path) -> None:
    assert "'ffmpeg' is not known; use one of pyav, torchcodec, decord" in refusal(audio=wav, decoder="ffmpeg")


@pytest.mark.parametrize("decoder", ["torchcodec", "decord"])
def test_a_decoder_that_is_not_installed(plain_film: Path, decoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert f"pip install {decoder}" in refusal(film=plain_film, decoder=decoder)


def test_a_decoder_that_cannot_load(plain_film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise RuntimeError("Could not load libtorchcodec.\nA long list of reasons")

    monkeypatch.setattr(importlib, "import_module", broken)
    assert "(Could not load libtorchcodec.); install FFmpeg" in refusal(film=plain_film, decoder="torchcodec")


def test_a_window_outside(wav: Path) -> None:
    line = f"{wav}: no sound from .*; stay within one span of media: 0.000 to 1.000 s"
    with open_session(audio=wav) as session:
        for start, end in [(-0.1, 0.5), (0.5, 1.1), (2, 3), (0.5, 0.2)]:
            with pytest.raises(InputError, match=line):
                session.sound(start, end)


def test_frames_outside(plain_film: Path) -> None:
    with open_session(film=plain_film) as session:
        for seconds in (-0.1, 4.0, 100.0, float("nan")):
            with pytest.raises(InputError, match="no frame at"):
                session.frames([1.0, seconds])


def test_a_picture_after_the_end_of_the_sound(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mkv", range(2000, 3000, 40), sound=sine(1, 48_000))
    assert "its picture begins at 2.0" in refusal(film=path)
