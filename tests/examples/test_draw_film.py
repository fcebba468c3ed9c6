"""The film is decoded again: its length, its sound, and where its pictures change."""

from __future__ import annotations

import av
import numpy as np
import pytest
import soundfile

from swift_plugin.errors import InputError

RATE = 16000
LEFT, RIGHT = slice(0, 160), slice(160, 320)
BELOW_THE_EYES = slice(120, 200)


@pytest.fixture(scope="module")
def example(load_example):
    return load_example("draw_film")


@pytest.fixture(scope="module")
def conversation(tmp_path_factory):
    """3 s: anna speaks in the first, nobody in the second (the sound goes on), ben in the third."""
    folder = tmp_path_factory.mktemp("conversation")
    times = np.arange(3 * RATE) / RATE
    chirp = 0.3 * np.sin(2 * np.pi * (200 + 50 * times) * times)
    soundfile.write(folder / "talk.wav", chirp.astype(np.float32), RATE, subtype="PCM_16")
    (folder / "talk.rttm").write_text(
        "SPEAKER talk 1 0.0 1.0 <NA> <NA> anna <NA> <NA>\nSPEAKER talk 1 2.0 1.0 <NA> <NA> ben <NA> <NA>\n"
    )
    return folder


@pytest.fixture(scope="module")
def film(example, conversation):
    return example.draw_film(conversation / "talk.wav", conversation / "talk.rttm", conversation / "film.mp4")


def read_pictures(path):
    with av.open(str(path)) as film:
        return [(frame.time, frame.to_ndarray(format="gray").astype(float)) for frame in film.decode(video=0)]


def test_format_and_duration(film):
    with av.open(str(film)) as opened:
        video, audio = opened.streams.video[0], opened.streams.audio[0]
        assert (video.codec_context.name, video.codec_context.pix_fmt) == ("h264", "yuv420p")
        assert (video.width, video.height, video.average_rate, video.frames) == (320, 240, 20, 60)
        assert (audio.codec_context.name, audio.rate, audio.channels) == ("aac", RATE, 1)
        assert opened.duration / av.time_base == pytest.approx(3.0, abs=0.001)
    assert [time for time, _ in read_pictures(film)] == pytest.approx([number / 20 for number in range(60)])


def test_a_mouth_is_open_only_while_its_owner_speaks(film):
    pictures = dict((round(time, 2), picture) for time, picture in read_pictures(film))

    def changed(first, second, half):
        difference = np.abs(pictures[first] - pictures[second])[BELOW_THE_EYES, half]
        return int((difference > 40).sum())

    assert changed(0.5, 1.5, LEFT) > 200 and changed(0.5, 1.5, RIGHT) == 0
    assert changed(2.5, 1.5, RIGHT) > 200 and changed(2.5, 1.5, LEFT) == 0
    assert changed(1.2, 1.5, LEFT) == changed(1.2, 1.5, RIGHT) == 0


def test_sound_track_is_the_recording_at_the_same_time(film, conversation):
    expected, _ = soundfile.read(conversation / "talk.wav")
    with av.open(str(film)) as opened:
        frames = [frame for frame in opened.decode(audio=0) if frame.pts >= 0]
    found = np.concatenate([frame.to_ndarray()[0] for frame in frames])[: len(expected)]
    assert frames[0].pts == 0
    assert np.corrcoef(found, expected)[0, 1] > 0.99


def test_same_input_same_file(example, film, conversation, tmp_path):
    again = example.draw_film(conversation / "talk.wav", conversation / "talk.rttm", tmp_path / "again.mp4")
    assert again.read_bytes() == film.read_bytes()


def test_opening_is_the_root_of_the_share_of_the_loudest(example):
    """Ten frames of 0.1 s at levels 0.5 and 0.125: the share is 1 and 1/4, its root 1 and 1/2."""
    sound = np.repeat([0.5] * 5 + [0.125] * 5, 10).astype(np.float32)
    turns = [example.Turn(0.0, 0.8, "anna"), example.Turn(0.6, 1.0, "ben")]
    openings = example.mouth_openings(sound, 100, turns, ["anna", "ben"], fps=10)
    assert openings[:, 0] == pytest.approx([1] * 5 + [0.5] * 3 + [0] * 2)
    assert openings[:, 1] == pytest.approx([0] * 6 + [0.5] * 4)


def test_a_silent_recording_keeps_mouths_closed(example):
    turns = [example.Turn(0.0, 1.0, "anna")]
    assert not example.mouth_openings(np.zeros(100, np.float32), 100, turns, ["anna"], fps=10).any()


def test_a_film_that_is_there_is_kept(example, conversation, film):
    before = film.read_bytes()
    with pytest.raises(InputError, match="film.mp4 exists"):
        example.draw_film(conversation / "talk.wav", conversation / "talk.rttm", film)
    assert film.read_bytes() == before


@pytest.mark.parametrize(
    ("rate", "turns", "fps", "told"),
    [
        (RATE, "SPEAKER a 1 0 1 <NA> <NA> anna <NA>", 20, r"1 speakers \(anna\)"),
        (12345, "SPEAKER a 1 0 1 <NA> <NA> anna <NA>\nSPEAKER a 1 1 1 <NA> <NA> ben <NA>", 20, "12345 Hz"),
        (RATE, "SPEAKER a 1 0 1 <NA> <NA> anna <NA>\nSPEAKER a 1 1 1 <NA> <NA> ben <NA>", 0, "fps=0"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(example, tmp_path, rate, turns, fps, told):
    soundfile.write(tmp_path / "a.wav", np.zeros(rate, np.float32), rate)
    (tmp_path / "a.rttm").write_text(turns + "\n")
    with pytest.raises(InputError, match=told):
        example.draw_film(tmp_path / "a.wav", tmp_path / "a.rttm", tmp_path / "a.mp4", fps=fps)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.rttm", "a.wav"]


def test_a_missing_encoder_is_no_reason_for_another_one(example, conversation, tmp_path, monkeypatch):
    monkeypatch.setattr(example, "VIDEO_CODEC", "libx999")
    with pytest.raises(InputError, match="no encoder libx999"):
        example.draw_film(conversation / "talk.wav", conversation / "talk.rttm", tmp_path / "film.mp4")


def test_no_sound_file_is_one_line(example, conversation, tmp_path, monkeypatch, capsys):
    turns, film = str(conversation / "talk.rttm"), str(tmp_path / "film.mp4")
    monkeypatch.setattr("sys.argv", ["draw_film.py", "--audio", turns, "--turns", turns, "--output", film])
    assert example.main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "talk.rttm: cannot be read as sound" in error
