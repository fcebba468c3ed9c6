"""An EasyCom session made up of short minutes: joins, gaps, and what is missing."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.media.easycom import open_easycom_session

from .conftest import make_easycom, read_numbers

EDGE = 400


def films(root: Path) -> Path:
    return root / "Main" / "Video_Compressed" / "Session_1"


def sounds(root: Path) -> Path:
    return root / "Main" / "Glasses_Microphone_Array_Audio" / "Session_1"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Frames 0..39, 40..79 after 30 ms, 80..99 after a gap."""
    return make_easycom(tmp_path, {"00-00-000": 2.0, "00-02-030": 2.0, "01-00-288": 1.0})


def test_minutes_that_meet_form_one_span(root: Path) -> None:
    with open_easycom_session(films(root)) as session:
        assert session.spans == [(0.0, pytest.approx(4.03)), (60.288, pytest.approx(61.288))]
        assert session.duration == pytest.approx(61.288)
        assert session.has_film
        assert [path.name for path in session.sources] == [
            f"{stem}.{kind}" for stem in ("00-00-000", "00-02-030", "01-00-288") for kind in ("mp4", "wav")
        ]


def test_frames_count_from_each_files_name(root: Path) -> None:
    times = [0.0, 1.95, 2.01, 2.029, 2.03, 2.08, 4.02, 60.288, 60.338, 61.28]
    with open_easycom_session(films(root)) as session:
        assert read_numbers(session.frames(times)) == [0, 39, 39, 39, 40, 41, 79, 80, 81, 99]
        assert read_numbers(session.frames(times[::-1])) == [99, 81, 80, 79, 41, 40, 39, 39, 39, 0]


@pytest.mark.parametrize(("channel", "level"), [(0, 0.1), (5, 0.6), ("mix", 0.35)])
def test_sound_lies_where_the_names_say(root: Path, channel: int | str, level: float) -> None:
    with open_easycom_session(films(root), channel=channel) as session:
        joined = session.sound(0, 4.03)
        np.testing.assert_allclose(joined[EDGE : 32_000 - EDGE], level, atol=1e-3)
        assert np.abs(joined[32_200:32_280]).max() < 0.02 * level  # the 480 samples that no file has
        np.testing.assert_allclose(joined[32_480 + EDGE : -EDGE], level, atol=1e-3)
        np.testing.assert_array_equal(joined[16_000:48_000], session.sound(1, 3))
        np.testing.assert_allclose(session.sound(60.3, 61.2), level, atol=1e-3)


def test_nothing_crosses_a_gap(root: Path) -> None:
    with open_easycom_session(films(root)) as session:
        for start, end in [(3, 5), (4.1, 4.2), (60, 61), (61, 62), (0, 61)]:
            with pytest.raises(InputError, match="stay within one span of media: 0.000 to 4.030, 60.288 to 61.288 s"):
                session.sound(start, end)
        with pytest.raises(InputError, match="no frame at 30.000 s"):
            session.frames([1.0, 30.0])


@pytest.mark.parametrize(("name", "spans"), [("00-02-051", 1), ("00-02-052", 2)])
def test_one_frame_and_a_millisecond_is_the_widest_join(tmp_path: Path, name: str, spans: int) -> None:
    root = make_easycom(tmp_path, {"00-00-000": 2.0, name: 1.0})
    with open_easycom_session(films(root)) as session:
        assert len(session.spans) == spans


def test_a_minute_that_runs_into_the_next_is_cut(tmp_path: Path) -> None:
    root = make_easycom(tmp_path, {"00-00-000": 2.0, "00-01-900": 1.0})
    with open_easycom_session(films(root)) as session:
        assert session.spans == [(0.0, pytest.approx(2.9))]
        assert read_numbers(session.frames([1.89, 1.9, 1.95])) == [37, 40, 41]
        assert len(session.sound(0, 2.9)) == 46_400


def test_a_mismatch_below_a_millisecond_leaves_the_sound_alone(tmp_path: Path) -> None:
    root = make_easycom(tmp_path, {"00-00-000": 2.0, "00-02-001": 1.0})
    with open_easycom_session(films(root), channel=0) as session:
        np.testing.assert_allclose(session.sound(0, 3)[EDGE:-EDGE], 0.1, atol=1e-4)


@pytest.mark.parametrize("kind", ["Video_Compressed", "Glasses_Microphone_Array_Audio", "Speech_Transcriptions"])
def test_any_folder_of_the_session_names_it(root: Path, kind: str) -> None:
    folder = root / "Main" / kind / "Session_1"
    folder.mkdir(parents=True, exist_ok=True)
    with open_easycom_session(folder) as session:
        assert len(session.spans) == 2


def test_the_root_of_a_single_session(root: Path) -> None:
    for folder in (root, root / "Main"):
        with open_easycom_session(folder) as session:
            assert len(session.spans) == 2
    make_easycom(root, {"00-00-000": 1.0}, session="Session_2")
    with pytest.raises(InputError, match="holds 2 sessions; give one, for example .*Session_1"):
        open_easycom_session(root)


def test_half_a_minute_is_a_gap(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    (sounds(root) / "00-02-030.wav").unlink()
    with caplog.at_level(logging.WARNING), open_easycom_session(films(root)) as session:
        assert session.spans == [(0.0, 2.0), (60.288, pytest.approx(61.288))]
    assert "00-02-030.mp4: has no sound beside it; its minute is a gap" in caplog.text


def test_sound_alone_needs_no_films(root: Path) -> None:
    for path in films(root).iterdir():
        path.unlink()
    with open_easycom_session(sounds(root), with_film=False) as session:
        assert not session.has_film
        assert len(session.spans) == 2
    with pytest.raises(InputError, match="no minute has all its files; download Video_Compressed"):
        open_easycom_session(sounds(root))


def test_a_name_that_is_no_time(root: Path) -> None:
    (films(root) / "00-00-000.mp4").rename(films(root) / "copy of 00-00-000.mp4")
    with pytest.raises(InputError, match="copy of 00-00-000.mp4: the name is not a time"):
        open_easycom_session(films(root))


def test_a_folder_that_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        open_easycom_session(tmp_path / "nowhere")
    with pytest.raises(InputError, match="has no Glasses_Microphone_Array_Audio"):
        open_easycom_session(tmp_path)
