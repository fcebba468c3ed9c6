"""`swift-turn targets` from its command line to its files."""

from __future__ import annotations

import argparse
import json
import re

import numpy as np
import pytest

from swift_plugin.cli import main
from swift_plugin.labels import command
from swift_plugin.labels.source import READERS
from swift_plugin.labels.store import load_targets

TALK = "start,end,speaker\n0,0.4,ann\n0.4,0.7,bob\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talk.csv").write_text(TALK)
    info = "video_id,conversation_id,video_speaker_id\n7,talk,2\n"
    (tmp_path / "video_info.csv").write_text(info)
    (tmp_path / "ego.json").write_text(json.dumps({"talk": [1, 1, 2, -1]}))
    (tmp_path / "session").mkdir()
    (tmp_path / "session" / "00-00-000.json").write_text(
        json.dumps([{"Participant_ID": 2, "Start_Frame": 0, "End_Frame": 1200, "Transcription": "[L]"}])
    )
    return tmp_path


def targets(*words: str) -> int:
    return main(["targets", *words])


def test_csv(here, capsys):
    assert targets("--input", "talk.csv", "--self", "ann", "--output", "t.npy") == 0
    loaded = load_targets(here / "t.npy")
    assert loaded.targets.argmax(axis=1).tolist() == [1, 1, 2, 2]  # 0.7 s is rounded up to four steps
    assert loaded.sidecar["sources"] == ["talk.csv"] and loaded.sidecar["self_speaker"] == "ann"
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "csv, annotated to 0.7 s"
    assert printed[1].split() == ["ann", "0.40", "s", "self"] and printed[2].split() == ["bob", "0.30", "s", "other"]
    assert [text.split() for text in printed[4:7]] == [
        ["nobody", "0.00", "%"],
        ["self", "50.00", "%"],
        ["other", "50.00", "%"],
    ]


def test_duration_pads_with_nobody_or_cuts(here, capsys):
    targets("--input", "talk.csv", "--self", "ann", "--output", "long.npy", "--duration", "1")
    assert load_targets(here / "long.npy").targets.argmax(axis=1).tolist() == [1, 1, 2, 2, 0]
    assert "left out" not in capsys.readouterr().out
    targets("--input", "talk.csv", "--self", "ann", "--output", "short.npy", "--duration", "0.4")
    assert load_targets(here / "short.npy").targets.argmax(axis=1).tolist() == [1, 1]
    assert "what is annotated after 0.4 s is left out" in capsys.readouterr().out


def test_egocom_names_the_wearer(here):
    assert targets("--input", "ego.json", "--format", "egocom", "--recording", "7", "--output", "t.npy") == 0
    loaded = load_targets(here / "t.npy")
    assert loaded.targets.argmax(axis=1).tolist() == [2, 2, 2, 2, 2, 1, 1, 1, 0, 0]
    assert loaded.sidecar["self_speaker"] == "2"
    assert loaded.sidecar["sources"] == ["ego.json", "video_info.csv"]
    assert loaded.sidecar["reader_options"] == {"conversation": "talk", "label_window": 0.5}


def test_easycom_folder_with_a_longer_duration_is_unknown_there(here):
    words = ["--input", "session", "--self", "2", "--output", "t.npy", "--duration", "60.4", "--overlap", "multi"]
    assert targets(*words) == 0
    loaded = load_targets(here / "t.npy")
    assert (loaded.targets[:300, 1] == 1).all() and np.isnan(loaded.targets[300:]).all()
    assert loaded.sidecar["unknown_steps"] == 2
    assert loaded.sidecar["sources"] == ["session/00-00-000.json"]
    assert loaded.sidecar["reader_options"] == {"frame_base": 0, "skip_nonverbal": False}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--input talk.csv --self eve", "talk.csv: speaker 'eve' is not in it; give --self one of: ann, bob"),
        ("--input talk.csv", "talk.csv: does not name the wearer; add --self with one of: ann, bob"),
        ("--input ego.json --recording 7", "ego.json: .json does not tell the format; add --format, see --help"),
        ("--input ego.json --format egocom", "ego.json: holds many conversations; add --recording"),
        ("--input ego.json --format egocom --recording talk", "ego.json: does not name the wearer; add --self"),
        ("--input ego.json --format egocom --recording 8", "video_info.csv: video '8' is not in it"),
        ("--input ego.json --format egocom --recording 7 --self 1", "--self 1 is not the wearer of this video, 2"),
        (
            "--input ego.json --format egocom --recording talk --video-info video_info.csv --self 1",
            "recording 'talk' is a conversation; with video_info give a video's number",
        ),
        ("--input talk.csv --self ann --frame-base 1", "talk.csv: frame_base=1 is only for easycom, not for csv"),
        ("--input talk.csv --self ann --recording a", "recording=a is only for rttm and egocom, not for csv"),
        ("--input session --self 2 --skip-nonverbal", "session: speaker '2' is not in it; .* nobody speaks in it"),
        ("--input talk.csv --self ann --duration 0", "talk.csv: --duration 0.0 is not a length"),
        ("--input talk.csv --self ann --duration nan", "talk.csv: --duration nan is not a length"),
        ("--input talk.csv --self ann --speech-share 2", r"speech_share=2.0 is not in \(0, 1\]"),
        ("--input none.csv --self ann", r"none.csv: cannot be read \(No such file"),
    ],
)
def test_bad_words_end_with_one_line(here, capsys, words, message):
    before = sorted(here.iterdir())
    assert targets(*words.split(), "--output", "t.npy") == 2
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 1
    assert re.search(message, errors[0]), errors[0]
    assert sorted(here.iterdir()) == before


def test_overwrite(here, capsys):
    words = ["--input", "talk.csv", "--self", "ann", "--output", "t.npy"]
    assert targets(*words) == 0 and targets(*words) == 2
    assert "t.npy: exists already" in capsys.readouterr().err
    assert targets(*words, "--overwrite", "--duration", "1") == 0
    assert len(load_targets(here / "t.npy").targets) == 5


def test_every_format_on_the_command_line_has_a_reader():
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    choices = next(action.choices for action in parser._actions if action.dest == "format")
    assert set(choices) == {"auto", *READERS}


@pytest.mark.shared_data
def test_the_real_conversation_of_the_quick_start(shared_data, tmp_path):
    """Against pyannote.core: what of each step is covered, on the turns as they stand in the file."""
    from pyannote.core import Segment, Timeline

    source, output = shared_data / "pyannote" / "sample.rttm", tmp_path / "t.npy"
    assert targets("--input", str(source), "--self", "speaker90", "--duration", "30", "--output", str(output)) == 0
    lines = [text.split() for text in source.read_text().splitlines()]
    timelines = {
        speaker: Timeline(Segment(float(f[3]), float(f[3]) + float(f[4])) for f in lines if f[7] == speaker)
        for speaker in ("speaker90", "speaker91")
    }
    expected = []
    for step in range(150):
        own, other = (
            timelines[speaker].crop(Segment(step / 5, (step + 1) / 5)).duration() >= 0.1 - 1e-6
            for speaker in ("speaker90", "speaker91")
        )
        expected.append(1 if own else 2 if other else 0)
    assert load_targets(output).targets.argmax(axis=1).tolist() == expected
