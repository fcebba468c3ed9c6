from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from swift_plugin.errors import InputError
from swift_plugin.labels.coverage import class_seconds
from swift_plugin.labels.egocom import egocom_known, egocom_video, read_egocom
from swift_plugin.labels.rule import LabelRule, turns_to_targets
from swift_plugin.labels.turns import Turn, speaker_seconds


@pytest.fixture
def labels(tmp_path):
    def write(content):
        path = tmp_path / "labels.json"
        path.write_text(json.dumps(content))
        return path

    return write


def test_labels_become_turns(labels):
    path = labels({"talk": [1, 1, -1, 2, 1]})
    assert read_egocom(path, conversation="talk") == [Turn(0.0, 1.0, "1"), Turn(1.5, 2.0, "2"), Turn(2.0, 2.5, "1")]
    assert egocom_known(path, conversation="talk") == [(0.0, 2.5)]


def test_the_window_of_a_label_moves_it_to_its_middle(labels):
    path = labels({"talk": [1, 1, -1, 2, 1]})
    turns = read_egocom(path, conversation="talk", label_window=1.0)
    assert turns == [Turn(0.25, 1.25, "1"), Turn(1.75, 2.25, "2"), Turn(2.25, 2.5, "1")]
    assert egocom_known(path, conversation="talk", label_window=1.0) == [(0.25, 2.5)]


def test_half_seconds_on_steps(labels):
    """A border of labels halves the step [0.4, 0.6): exactly half is speech, and self goes before other."""
    path = labels({"talk": [2, 1, -1, -1]})
    for wearer, expected in (("1", [2, 2, 1, 1, 1, 0]), ("2", [1, 1, 1, 2, 2, 0])):
        targets = turns_to_targets(
            read_egocom(path, conversation="talk"), num_steps=6, self_speaker=wearer, rule=LabelRule()
        )
        assert targets.argmax(axis=1).tolist() == expected


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ([1, 2], {}, "labels.json: is not an object of conversations"),
        ({"other": [1]}, {}, "conversation 'talk' is not in it; its 1 are other"),
        ({str(n): [1] for n in range(9)}, {}, "its 9 are 0, 1, 2, 3, …, 8"),
        ({"talk": []}, {}, "conversation 'talk' has no list of labels"),
        ({"talk": [1, "2"]}, {}, "label 1 of 'talk' is '2'"),
        ({"talk": [1, -2]}, {}, "label 1 of 'talk' is -2; use a speaker's number, or -1 for nobody"),
        ({"talk": [True]}, {}, "label 0 of 'talk' is True"),
        ({"talk": [1]}, {"label_window": 2.0}, "label_window=2.0 is not 0.5 or 1"),
    ],
)
def test_bad_labels(labels, content, options, message):
    with pytest.raises(InputError, match=message):
        read_egocom(labels(content), conversation="talk", **options)


def test_video_info(tmp_path):
    table = tmp_path / "video_info.csv"
    table.write_text("video_id,conversation_id,video_speaker_id\n7,talk,2\n")
    assert egocom_video(table, video_id="7") == ("talk", "2")
    with pytest.raises(InputError, match=r"video_info.csv: video '8' is not in it; its 1 videos are 7"):
        egocom_video(table, video_id="8")
    table.write_text("video_id,conversation_id\n7,talk\n")
    with pytest.raises(InputError, match=r"video_info.csv: lacks the columns video_speaker_id"):
        egocom_video(table, video_id="7")


@pytest.mark.shared_data
def test_all_real_videos(shared_data):
    """Speech of every conversation equals half a second a label, on turns and on steps, for every video's wearer."""
    path = shared_data / "egocom" / "rev_ground_truth_speaker_labels.json"
    info = shared_data / "egocom" / "video_info.csv"
    content = json.loads(path.read_text())
    with info.open() as file:
        rows = {row["video_id"]: row for row in csv.DictReader(file)}
    assert len(rows) == 175 and len(content) == 63
    for video_id, row in list(rows.items())[::7]:
        conversation, wearer = egocom_video(info, video_id=video_id)
        assert (conversation, wearer) == (row["conversation_id"], row["video_speaker_id"])
        numbers = np.array(content[conversation])
        # the labels tile the video: this is why one label stands for half a second
        assert len(numbers) == 2 * int(row["duration_seconds"])
        turns = read_egocom(path, conversation=conversation)
        counted = {str(n): 0.5 * (numbers == n).sum() for n in np.unique(numbers) if n != -1}
        assert speaker_seconds(turns) == pytest.approx(counted)
        num_steps = -(-5 * len(numbers) // 2)  # half a second is two and a half steps
        covered = class_seconds(turns, num_steps=num_steps, self_speaker=wearer).sum(axis=0)
        own = counted.get(wearer, 0.0)  # some say nothing in their own video
        assert covered[1] == pytest.approx(own)
        assert covered[2] == pytest.approx(sum(counted.values()) - own)
