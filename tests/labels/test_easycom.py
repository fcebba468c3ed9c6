"""EasyCom sessions, written here in the shape that the dataset's README describes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.labels.easycom import easycom_files, easycom_known, read_easycom
from swift_plugin.labels.rule import LabelRule, turns_to_targets
from swift_plugin.labels.turns import Turn


def entry(participant, first, last, words="hello"):
    return {
        "Participant_ID": participant,
        "Start_Frame": first,
        "End_Frame": last,
        "Transcription": words,
        "Target_of_Speech": "[Group]",
    }


@pytest.fixture
def session(tmp_path):
    def write(**minutes):
        for name, entries in minutes.items():
            (tmp_path / f"{name[1:].replace('_', '-')}.json").write_text(json.dumps(entries))
        return tmp_path

    return write


def test_minutes_make_one_time_line(session):
    # the names are those of Session_10 of the dataset, whose third minute is redacted
    folder = session(
        _03_00_332=[entry(4, 0, 20)],
        _00_00_000=[entry(2, 100, 130), entry(4, 1190, 1200)],
        _01_00_304=[],
    )
    assert read_easycom(folder) == [Turn(5.0, 6.5, "2"), Turn(59.5, 60.0, "4"), Turn(180.332, 181.332, "4")]
    assert easycom_known(easycom_files(folder)) == [(0.0, 60.0), (60.304, 120.304), (180.332, 240.332)]


def test_gaps_are_unknown_and_silent_minutes_are_not(session):
    folder = session(_00_00_000=[entry(2, 0, 1200)], _01_00_304=[], _03_00_332=[])
    targets = turns_to_targets(
        read_easycom(folder),
        num_steps=1000,
        self_speaker="2",
        rule=LabelRule(),
        known=easycom_known(easycom_files(folder)),
    )
    unknown = np.flatnonzero(np.isnan(targets[:, 0]))
    # between the minutes 60.0 .. 60.304, the redacted minute 120.304 .. 180.332; step 601 = [120.2, 120.4) is cut by it
    assert unknown.tolist() == [300, 301, *range(601, 902)]
    assert (targets[:300, 1] == 1).all() and (targets[302:601, 0] == 1).all()


def test_frame_base_shifts_and_changes_targets(session):
    folder = session(_00_00_000=[entry(2, 2, 6)])
    zero, one = read_easycom(folder), read_easycom(folder, frame_base=1)
    assert zero == [Turn(0.1, 0.3, "2")] and one == [Turn(0.05, 0.25, "2")]
    rows = [
        turns_to_targets(turns, num_steps=2, self_speaker="2", rule=LabelRule())[:, 1].tolist() for turns in (zero, one)
    ]
    assert rows == [[1, 1], [1, 0]]  # half and half of the two steps; three quarters and a quarter


def test_nonverbal_entries_count_unless_left_out(session):
    folder = session(
        _00_00_000=[
            entry(2, 0, 20, "[L]"),
            entry(2, 40, 60, " [C] [T]. "),
            entry(2, 80, 100, "[L] yes"),
            entry(2, 120, 140, "[U]"),  # unintelligible speech is speech, so is a hesitation
            entry(2, 160, 180, "[H]"),
            entry(2, 200, 220, ""),
        ]
    )
    assert [turn.start for turn in read_easycom(folder)] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    assert [turn.start for turn in read_easycom(folder, skip_nonverbal=True)] == [4.0, 6.0, 8.0, 10.0]


def test_one_file_keeps_its_time(session):
    folder = session(_01_00_304=[entry(2, 0, 20)])
    assert read_easycom(folder / "01-00-304.json") == [Turn(60.304, 61.304, "2")]


def test_what_runs_past_its_minute_is_cut(session):
    assert read_easycom(session(_00_00_000=[entry(2, 1190, 1206)])) == [Turn(59.5, 60.0, "2")]


@pytest.mark.parametrize(
    ("entries", "options", "message"),
    [
        ({"Participants": []}, {}, "00-00-000.json: is a JSON dict, not a list"),
        ([entry(2, 0, 1), 5], {}, "00-00-000.json, entry 1: 5 is not an object"),
        ([{"Participant_ID": 2, "Start_Frame": 1}], {}, "entry 0: End_Frame=None is not a frame number"),
        ([entry(2, "1", 2)], {}, "entry 0: Start_Frame='1' is not a frame number"),
        ([entry(2, 1, float("nan"))], {}, "entry 0: End_Frame=nan is not a frame number"),
        ([entry(None, 1, 2)], {}, "entry 0: Participant_ID=None is not a participant's number"),
        ([entry(2, 9, 8)], {}, "entry 0: end=0.4 is before start=0.45"),
        ([entry(2, 0, 8)], {"frame_base": 1}, "Start_Frame=0 is before the first frame, 1; use --frame_base 0"),
        ([entry(2, -1, 8)], {}, "Start_Frame=-1 is before the first frame, 0"),
        ([entry(2, 1300, 1310)], {}, "Start_Frame=1300 is past the minute's 60 s; count from each file's start"),
        ([], {"frame_base": 2}, "frame_base=2 is not 0 or 1"),
    ],
)
def test_bad_entries(session, entries, options, message):
    with pytest.raises(InputError, match=message) as error:
        read_easycom(session(_00_00_000=entries), **options)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["notes", "1-00-000", "00-60-000", "00-00-000_Participant_ID_4"])
def test_names_that_are_no_time(session, name):
    folder = session(_00_00_000=[])
    (folder / f"{name}.json").write_text("[]")
    with pytest.raises(InputError, match=f"{name}.json: the name is not a time mm-ss-SSS"):
        read_easycom(folder)


def test_folders_without_minutes_and_pointers(session, tmp_path):
    with pytest.raises(InputError, match=r"holds no mm-ss-SSS.json; give one Session_N folder"):
        read_easycom(tmp_path)
    (tmp_path / "00-00-000.json").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(InputError, match=r"00-00-000.json, line 1: is not JSON .*; .* a Git LFS pointer"):
        read_easycom(tmp_path)
