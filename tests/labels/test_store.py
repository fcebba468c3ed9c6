from __future__ import annotations

import json
import os

import numpy as np
import pytest

from swift_plugin import __version__
from swift_plugin.errors import InputError
from swift_plugin.labels.rule import LabelRule
from swift_plugin.labels.store import load_targets, save_targets

NAN = float("nan")
ROWS = np.array([[1, 0, 0], [0, 1, 0], [0, 0.25, 0.75], [NAN, NAN, NAN]], dtype=np.float32)
FACTS = {"rule": LabelRule(overlap="soft"), "sources": ["talk.csv"], "source_format": "csv", "self_speaker": "ann"}


def test_round_trip(tmp_path):
    path = tmp_path / "a.npy"
    assert save_targets(path, ROWS, **FACTS) == tmp_path / "a.json"
    loaded = load_targets(path)
    np.testing.assert_array_equal(loaded.targets, ROWS)
    assert loaded.targets.dtype == np.float32
    sidecar = dict(loaded.sidecar)
    assert len(sidecar.pop("sha256")) == 64
    assert sidecar == {
        "source_format": "csv",
        "sources": ["talk.csv"],
        "recording": None,
        "reader_options": {},
        "rule": {"speech_share": 0.5, "overlap": "soft"},
        "self_speaker": "ann",
        "class_names": ["nobody", "self", "other"],
        "step_seconds": 0.2,
        "num_steps": 4,
        "class_steps": {"nobody": 1.0, "self": 1.25, "other": 0.75},
        "unknown_steps": 1,
        "plugin_version": __version__,
    }
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_a_bare_array_has_no_sidecar(tmp_path):
    np.save(tmp_path / "b.npy", ROWS)
    assert load_targets(tmp_path / "b.npy").sidecar is None


def test_existing_files_are_kept(tmp_path):
    path = tmp_path / "a.npy"
    save_targets(path, ROWS, **FACTS)
    before = path.read_bytes()
    with pytest.raises(InputError, match="a.npy: exists already; choose another name or add --overwrite"):
        save_targets(path, ROWS[:2], **FACTS)
    path.unlink()
    with pytest.raises(InputError, match="a.json: exists already"):
        save_targets(path, ROWS[:2], **FACTS)
    save_targets(path, ROWS[:2], **FACTS, overwrite=True)
    assert len(load_targets(path).targets) == 2 and path.read_bytes() != before


def test_a_write_that_fails_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    save_targets(path, ROWS, **FACTS)

    def refuse(source, target):
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        save_targets(path, ROWS[:2], **FACTS, overwrite=True)
    monkeypatch.undo()
    np.testing.assert_array_equal(load_targets(path).targets, ROWS)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.json", "a.npy"]


def test_places_that_are_refused(tmp_path):
    with pytest.raises(InputError, match="a.txt: targets are a .npy file"):
        save_targets(tmp_path / "a.txt", ROWS, **FACTS)
    with pytest.raises(InputError, match="the folder .*none does not exist; create it first"):
        save_targets(tmp_path / "none" / "a.npy", ROWS, **FACTS)
    source = tmp_path / "talk.json"
    source.write_text("{}")
    with pytest.raises(InputError, match="talk.npy: its sidecar talk.json would replace the annotations"):
        save_targets(tmp_path / "talk.npy", ROWS, **(FACTS | {"sources": [str(source)]}), overwrite=True)
    assert source.read_text() == "{}"


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (ROWS.astype(np.float64), r"bad.npy: has type float64; save it with .astype\('float32'\)"),
        (ROWS[:, :2], r"has shape \[4, 2\]; targets are \[T, 3\]"),
        (ROWS[0], r"has shape \[3\]"),
        (ROWS[:0], r"has shape \[0, 3\]"),
        (np.array([[1, 0, 0], [NAN, 0, 1]], np.float32), r"row 1 \[nan, 0.0, 1.0\] is NaN in part"),
        (np.array([[1, 0, 0], [0, 2, 0]], np.float32), r"row 1 \[0.0, 2.0, 0.0\] has a value outside \[0, 1\]"),
        (np.array([[1, -1, 0]], np.float32), r"row 0 \[1.0, -1.0, 0.0\] has a value outside"),
        (np.array([[np.inf, 0, 0]], np.float32), r"row 0 \[inf, 0.0, 0.0\] has a value outside"),
        (np.array([[1, 0, 0], [0, 0, 0]], np.float32), r"row 1 \[0.0, 0.0, 0.0\] is zero in all columns"),
    ],
)
def test_arrays_that_are_refused(tmp_path, array, message):
    np.save(tmp_path / "bad.npy", array)
    with pytest.raises(InputError, match=message):
        load_targets(tmp_path / "bad.npy")
    with pytest.raises(InputError):
        save_targets(tmp_path / "new.npy", array, **FACTS)
    assert not (tmp_path / "new.npy").exists()


class Bomb:
    def __reduce__(self):
        return (pytest.fail, ("unpickled",))


def test_files_that_are_no_plain_array(tmp_path):
    path = tmp_path / "bad.npy"
    with pytest.raises(InputError, match=r"bad.npy: cannot be read \(No such file"):
        load_targets(path)
    for content in (b"", b"hello", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(InputError, match="bad.npy: is not a plain .npy array"):
            load_targets(path)
    np.save(path, np.array([Bomb()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="bad.npy: is not a plain .npy array"):
        load_targets(path)
    with path.open("wb") as file:
        np.savez(file, a=ROWS)
    with pytest.raises(InputError, match="bad.npy: holds several arrays"):
        load_targets(path)


def test_sidecars_that_do_not_belong(tmp_path):
    path, sidecar = tmp_path / "a.npy", tmp_path / "a.json"
    save_targets(path, ROWS, **FACTS)
    np.save(path, ROWS[:2])
    with pytest.raises(InputError, match="a.json: describes another array than a.npy"):
        load_targets(path)
    for text in ("{", "[]", json.dumps({"labels": []})):
        sidecar.write_text(text)
        with pytest.raises(InputError, match="a.json: is not the sidecar of a.npy"):
            load_targets(path)
