"""EgoCom: who speaks, twice a second, in `rev_ground_truth_speaker_labels.json`, and who wears the camera.

The labels are a JSON object, conversation -> list of speaker numbers, -1 for nobody; label k is at t = 0.5 k s.
`video_info.csv` tells for each video its conversation and the number of the person who wears the camera.

What label k covers. The dataset's own code that writes such labels (`create_gt_speaker_labels` in
`speaker_recognition.ipynb`, window 0.5 s) takes the speaker of the last word that ends in (t, t + 0.5]: the labels
tile the time, and 2 labels a second times the duration is their number. Its turn-taking script says of its features
that "the label for time 0 corresponds to the average speaker from 0s to 1s". Here a label stands for the half second
in the middle of its window: [t, t + 0.5) for the window of 0.5 s, which is the default, and [t + 0.25, t + 0.75) for
a window of 1 s.

Half seconds do not fit steps of 0.2 s: every fifth border of steps is one of labels, and the step [0.4, 0.6) is half
under label 0, half under label 1. The label rule decides it: half a step counts as speech with a share of 0.5.
"""

from __future__ import annotations

import csv
import io
from itertools import groupby
from pathlib import Path

from swift_plugin.errors import InputError
from swift_plugin.labels.files import read_json, read_text
from swift_plugin.labels.turns import Turn

HOP_SECONDS = 0.5
NOBODY = -1


def read_egocom(path: str | Path, *, conversation: str, label_window: float = 0.5) -> list[Turn]:
    """Read one conversation; consecutive equal labels make one turn.

    Args:
        conversation: its name, such as `day_1__con_1__part1`.
        label_window: what a label summarises, 0.5 or 1 s from its time on; see the module's text.

    Returns:
        Turns in order of time; speakers are their numbers as text.

    Raises:
        InputError: an unreadable file, a conversation that is not there, a label that is no speaker's number.
    """
    labels, shift = _labels(Path(path), conversation), _shift(label_window)
    turns, begin = [], 0
    for label, run in groupby(labels):
        end = begin + len(list(run))
        if label != NOBODY:
            # the last label cannot reach past the end of the recording
            stop = min(end * HOP_SECONDS + shift, len(labels) * HOP_SECONDS)
            turns.append(Turn(begin * HOP_SECONDS + shift, stop, str(label)))
        begin = end
    return turns


def egocom_known(path: str | Path, *, conversation: str, label_window: float = 0.5) -> list[tuple[float, float]]:
    """Which seconds are annotated: up to half a second for each label."""
    return [(_shift(label_window), len(_labels(Path(path), conversation)) * HOP_SECONDS)]


def egocom_video(video_info: str | Path, *, video_id: str) -> tuple[str, str]:
    """The conversation and the wearer's number of one video.

    Raises:
        InputError: an unreadable table, a missing column, a video that is not in it.
    """
    path = Path(video_info)
    table = csv.DictReader(io.StringIO(read_text(path), newline=""))
    columns = ("video_id", "conversation_id", "video_speaker_id")
    missing = [name for name in columns if name not in (table.fieldnames or ())]
    if missing:
        raise InputError(f"{path}: lacks the columns {', '.join(missing)}; give EgoCom's video_info.csv")
    videos = {row["video_id"]: (row["conversation_id"], row["video_speaker_id"]) for row in table}
    if video_id not in videos:
        raise InputError(f"{path}: video {video_id!r} is not in it; its {len(videos)} videos are {_shorten(videos)}")
    return videos[video_id]


def _shift(label_window: float) -> float:
    if label_window not in (0.5, 1.0):
        raise InputError(f"label_window={label_window} is not 0.5 or 1; say what an EgoCom label summarises")
    return (label_window - HOP_SECONDS) / 2


def _labels(path: Path, conversation: str) -> list[int]:
    conversations = read_json(path)
    if not isinstance(conversations, dict):
        raise InputError(f"{path}: is not an object of conversations; give rev_ground_truth_speaker_labels.json")
    if conversation not in conversations:
        raise InputError(
            f"{path}: conversation {conversation!r} is not in it; "
            f"its {len(conversations)} are {_shorten(conversations)}"
        )
    labels = conversations[conversation]
    if not isinstance(labels, list) or not labels:
        raise InputError(f"{path}: conversation {conversation!r} has no list of labels; download the file again")
    for index, label in enumerate(labels):
        if type(label) is not int or (label < 0 and label != NOBODY):
            raise InputError(
                f"{path}: label {index} of {conversation!r} is {label!r}; use a speaker's number, or -1 for nobody"
            )
    return labels


def _shorten(names: dict[str, object]) -> str:
    """The first and the last names of a long list."""
    names = list(names)
    return ", ".join(names if len(names) <= 6 else [*names[:4], "…", names[-1]])
