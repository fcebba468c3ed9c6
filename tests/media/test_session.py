"""Spans: where a recording has picture and sound."""

from __future__ import annotations

import logging
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import soundfile

from swift_plugin.errors import InputError
from swift_plugin.media.session import open_session

from .conftest import HEIGHT, WIDTH, make_film, read_numbers, sine


def test_a_film_with_its_sound(plain_film: Path, caplog: pytest.LogCaptureFixture) -> None:
    with open_session(film=plain_film) as session:
        assert session.spans == [(0.0, 4.0)]
        assert session.duration == 4.0
        assert session.has_film
        assert session.picture_size == (HEIGHT, WIDTH)
        assert session.sources == [plain_film]
        np.testing.assert_allclose(session.sound(1, 3), sine(2, 16_000, start=1.0), atol=0.02)
        assert read_numbers(session.frames([1.0, 3.0])) == [25, 75]
    assert not caplog.records


def test_a_film_with_another_sound(plain_film: Path, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.full(64_000, 0.25), 16_000, subtype="FLOAT")
    with open_session(film=plain_film, audio=tmp_path / "a.wav") as session:
        assert session.spans == [(0.0, 4.0)]
        assert session.sources == [plain_film, tmp_path / "a.wav"]
        assert set(session.sound(0, 4)) == {np.float32(0.25)}


def test_sound_alone(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(20_000), 16_000)
    with open_session(audio=tmp_path / "a.wav") as session:
        assert session.spans == [(0.0, 1.25)]
        assert not session.has_film
        assert session.picture_size is None
        with pytest.raises(InputError, match="a.wav: has no picture"):
            session.frames([0.0])


def test_a_film_without_sound_is_silent_on_request(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mp4", range(50), time_base=Fraction(1, 25))
    with pytest.raises(InputError, match="a.mp4: has no sound track; .*--silence"):
        open_session(film=path)
    with open_session(film=path, silence=True) as session:
        assert session.spans == [(0.0, 2.0)]
        sound = session.sound(0.5, 2.0)
        assert sound.shape == (24_000,) and not sound.any()


def test_silence_does_not_replace_sound_that_is_there(plain_film: Path) -> None:
    with open_session(film=plain_film, silence=True) as session:
        assert session.sound(0, 4).std() > 0.3


@pytest.mark.parametrize(("seconds", "end"), [(3.0, 3.0), (5.0, 4.0)])
def test_the_shorter_one_ends_the_span(
    plain_film: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, seconds: float, end: float
) -> None:
    soundfile.write(tmp_path / "a.wav", sine(seconds, 16_000), 16_000)
    with caplog.at_level(logging.WARNING):
        session = open_session(film=plain_film, audio=tmp_path / "a.wav")
    with session:
        assert session.spans == [(0.0, end)]
        session.sound(0, end)
        session.frames([end - 0.001])
        with pytest.raises(InputError):
            session.sound(0, end + 0.1)
        with pytest.raises(InputError):
            session.frames([end])
    (record,) = caplog.records
    assert record.getMessage() == (
        f"{plain_film}: its picture ends at 4.000 s, its sound at {seconds:.3f} s; only what both have is used"
    )


def test_a_picture_within_the_first_step_counts_from_zero(tmp_path: Path) -> None:
    path = make_film(tmp_path / "a.mkv", range(160, 2160, 40), sound=sine(2.2, 48_000))
    with open_session(film=path) as session:
        assert session.spans[0][0] == 0.0
        assert read_numbers(session.frames([0.0, 0.17, 0.21])) == [0, 0, 1]


def test_a_picture_that_comes_later_begins_the_span(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = make_film(tmp_path / "a.mkv", range(800, 2800, 40), sound=sine(2.8, 48_000))
    with caplog.at_level(logging.WARNING), open_session(film=path) as session:
        assert session.spans[0][0] == pytest.approx(0.8, abs=1e-3)
        assert read_numbers(session.frames([0.81, 1.81])) == [0, 25]
        np.testing.assert_allclose(session.sound(1, 2), sine(1, 16_000, start=1.0), atol=0.02)
        with pytest.raises(InputError, match="no frame at 0.500 s; stay within one span of media: 0.8"):
            session.frames([0.5])
    assert "its picture begins at 0.8" in caplog.text


@pytest.mark.shared_data
def test_a_real_film(shared_data) -> None:
    """Its time stamps, as `ffprobe` shows them: picture 0.834 to 35.102 s, sound 0 to 1544192 samples of 44.1 kHz."""
    with open_session(film=shared_data("video/googlework_short.mp4")) as session:
        ((start, end),) = session.spans
        assert start == pytest.approx(0.834)
        assert end == pytest.approx(1_544_192 / 44_100, abs=1e-4)
        assert session.picture_size == (180, 320)
        assert session.sound(22, 24).std() > 0.01  # people talk from 21.6 s on
        np.testing.assert_array_equal(
            session.sound(20, 24), np.concatenate([session.sound(20, 22), session.sound(22, 24)])
        )
        assert session.frames([2.0, 2.5, 34.9]).shape == (3, 180, 320, 3)
