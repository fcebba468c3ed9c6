from __future__ import annotations

from collections import defaultdict

import pytest
from pyannote.core import Annotation, Segment

from swift_plugin.errors import InputError
from swift_plugin.labels.coverage import class_seconds, steps_until
from swift_plugin.labels.rttm import read_rttm
from swift_plugin.labels.turns import Turn, speaker_seconds


def line(start, duration, speaker, recording="talk"):
    return f"SPEAKER {recording} 1 {start} {duration} <NA> <NA> {speaker} <NA> <NA>\n"


@pytest.fixture
def rttm(tmp_path):
    def write(text: str):
        path = tmp_path / "other_name.rttm"
        path.write_text(text)
        return path

    return write


def test_overlaps_of_one_speaker_count_once(rttm):
    path = rttm(line(1, 2, "a") + line(2.5, 1, "a") + line(2, 1, "b") + line(9, 0, "c"))
    assert read_rttm(path) == [Turn(1.0, 3.5, "a"), Turn(2.0, 3.0, "b")]


def test_nine_fields_comments_and_other_types(rttm):
    text = ";; a comment\n\nSPKR-INFO talk 1 <NA> <NA> <NA> adult_male a <NA> <NA>\n"
    assert read_rttm(rttm(text + "SPEAKER talk 1 0.5 0.25 <NA> <NA> a <NA>\n")) == [Turn(0.5, 0.75, "a")]


def test_recording_is_chosen(rttm):
    path = rttm(line(0, 1, "a", "one") + line(0, 2, "b", "two"))
    assert read_rttm(path, recording="two") == [Turn(0.0, 2.0, "b")]


@pytest.mark.parametrize(
    ("text", "recording", "message"),
    [
        ("", None, "other_name.rttm: holds no SPEAKER line"),
        (line(0, 1, "a") + "SPEAKER talk 1 0 1\n", None, "line 2: 5 fields instead of 9 or 10"),
        (line("x", 1, "a"), None, "line 1: start 'x', duration '1' are not numbers"),
        (line(5, -1, "a"), None, "line 1: duration -1 is negative"),
        (line(-5, 1, "a"), None, "line 1: start=-5.0 is negative"),
        (line("nan", 1, "a"), None, "line 1: start=nan end=nan are not both finite"),
        (line(0, 1, "<NA>"), None, "line 1: the speaker is <NA>"),
        ("0,1,a\n", None, "line 1: type '0,1,a' is not one of RTTM"),
        (line(0, 1, "a", "one") + line(0, 1, "a", "two"), None, "holds 2 recordings; choose one .*: one, two$"),
        (line(0, 1, "a", "one"), "two", "recording 'two' is not in it; choose .* from: one$"),
    ],
)
def test_bad_files(rttm, text, recording, message):
    with pytest.raises(InputError, match=message) as error:
        read_rttm(rttm(text), recording=recording)
    assert "\n" not in str(error.value)


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(InputError, match=r"none.rttm: cannot be read \(No such file"):
        read_rttm(tmp_path / "none.rttm")
    (tmp_path / "a.rttm").write_bytes(b"SPEAKER \xff")
    with pytest.raises(InputError, match="a.rttm: byte 8 is not UTF-8"):
        read_rttm(tmp_path / "a.rttm")


@pytest.mark.shared_data
def test_ami_equals_pyannote(shared_data):
    """The speech of every speaker in all 18 meetings, by pyannote.core from the same lines and on our steps."""
    path = shared_data / "ami" / "dev.rttm"
    meetings = defaultdict(Annotation)
    for number, text in enumerate(path.read_text().splitlines()):
        _, meeting, _, start, duration, _, _, speaker, *_ = text.split()
        meetings[meeting][Segment(float(start), float(start) + float(duration)), number] = speaker
    assert len(meetings) == 18
    for meeting, annotation in meetings.items():
        turns = read_rttm(path, recording=meeting)
        assert speaker_seconds(turns) == pytest.approx(dict(annotation.chart()), abs=1e-6)
        num_steps = steps_until(max(turn.end for turn in turns))
        for speaker, seconds in annotation.chart():
            covered = class_seconds(turns, num_steps=num_steps, self_speaker=speaker)
            assert covered[:, 1].sum() == pytest.approx(seconds, abs=1e-4)
            others = annotation.subset([speaker], invert=True).get_timeline().support().duration()
            assert covered[:, 2].sum() == pytest.approx(others, abs=1e-4)
