"""Files of predictions: what is written is read, and what is wrong is refused by name."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest

from swift_plugin.errors import InputError
from swift_plugin.evaluation.prediction_writer import ROWS_PER_GROUP, PredictionWriter
from swift_plugin.evaluation.predictions import Predictions


def make_fields(rows: int = 7, seed: int = 0) -> dict:
    random = np.random.default_rng(seed)
    targets = np.eye(3, dtype=np.float32)[random.integers(0, 3, (rows, 10))]
    targets[-1, 4:] = np.nan
    return {
        "probabilities": random.dirichlet(np.ones(3), (rows, 10)).astype(np.float32),
        "target_index": np.arange(rows) + 3,
        "session": (np.arange(rows) % 2).astype(np.int32),
        "session_names": ["kitchen", "garden", "no anchor here"],
        "targets": targets,
    }


def assert_equal(found: Predictions, expected: Predictions) -> None:
    for name in ("probabilities", "target_index", "session", "targets"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
        assert getattr(found, name).dtype == getattr(expected, name).dtype
    assert found.session_names == expected.session_names


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_what_is_saved_is_loaded(tmp_path, suffix):
    predictions = Predictions(**make_fields())
    predictions.save(tmp_path / f"run{suffix}")
    assert_equal(Predictions.load(tmp_path / f"run{suffix}"), predictions)
    assert [path.name for path in tmp_path.iterdir()] == [f"run{suffix}"]


def test_time_is_the_end_of_the_last_step_seen():
    np.testing.assert_allclose(Predictions(**make_fields()).time[:2], [0.8, 1.0])


def test_parquet_columns_read_without_this_package(tmp_path):
    fields = make_fields()
    Predictions(**fields).save(tmp_path / "run.parquet")
    table = pq.read_table(tmp_path / "run.parquet").to_pandas()
    np.testing.assert_array_equal(table["p_self_0.4s"], fields["probabilities"][:, 1, 1])
    np.testing.assert_array_equal(table["y_other_2.0s"], fields["targets"][:, 9, 2])
    assert list(table["session"][:2]) == ["kitchen", "garden"]


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_writer_gives_the_file_of_one_save(tmp_path, suffix):
    fields = make_fields(rows=ROWS_PER_GROUP + 2000)
    path = tmp_path / f"run{suffix}"
    with PredictionWriter(path, session_names=fields["session_names"]) as writer:
        for start in range(0, ROWS_PER_GROUP + 2000, 999):
            part = slice(start, start + 999)
            writer.add(*(fields[name][part] for name in ("probabilities", "target_index", "session", "targets")))
            assert not path.exists()
    assert_equal(Predictions.load(path), Predictions(**fields))
    if suffix == ".parquet":
        assert pq.ParquetFile(path).num_row_groups == 2


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_a_run_that_fails_leaves_the_old_file_and_no_rest(tmp_path, suffix):
    fields = make_fields()
    rows = [fields[name] for name in ("probabilities", "target_index", "session", "targets")]
    path = tmp_path / f"run{suffix}"
    path.write_bytes(b"old")
    with pytest.raises(KeyError), PredictionWriter(path, session_names=fields["session_names"]) as writer:
        writer.add(*rows)
        raise KeyError
    with pytest.raises(InputError, match="occurs twice"):
        with PredictionWriter(path, session_names=fields["session_names"]) as writer:
            writer.add(*rows)
            writer.add(*rows)
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_writer_copies_what_it_is_given(tmp_path):
    fields = make_fields()
    rows = [fields[name].copy() for name in ("probabilities", "target_index", "session", "targets")]
    with PredictionWriter(tmp_path / "run.parquet", session_names=fields["session_names"]) as writer:
        writer.add(*rows)
        rows[0][:] = 1 / 3
    assert_equal(Predictions.load(tmp_path / "run.parquet"), Predictions(**fields))


def _logits(fields):
    fields["probabilities"][2, 3] = [-1.0, 1.0, 1.0]


def _not_normal(fields):
    fields["probabilities"][2, 3] = [0.2, 0.2, 0.2]


def _nan(fields):
    fields["probabilities"][2, 3, 0] = np.nan


def _shape(fields):
    fields["targets"] = fields["targets"][:, :9]


def _twice(fields):
    fields["target_index"][2] = fields["target_index"][0]


def _session(fields):
    fields["session"][0] = 3


def _half_unknown(fields):
    fields["targets"][1, 1, 2] = np.nan


def _no_class(fields):
    fields["targets"][1, 1] = 0


def _before_start(fields):
    fields["target_index"][0] = -1


def _same_names(fields):
    fields["session_names"] = ["a", "a", "b"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_logits, "probabilities is -1.0 at row 2; pass softmax outputs"),
        (_not_normal, "sum of a row of probabilities is 0.6.* at row 2"),
        (_nan, "probabilities is nan at row 2"),
        (_shape, r"targets has shape \[7, 9, 3\], \[7, 10, 3\] needed"),
        (_twice, "target_index 3 of session 'kitchen' occurs twice"),
        (_session, "session is 3 at row 0; there are 3 session names"),
        (_half_unknown, "number of NaN in a row of targets is 1 at row 1"),
        (_no_class, "sum of a row of targets is 0.0 at row 1"),
        (_before_start, "target_index is -1 at row 0"),
        (_same_names, "occurs twice in session_names"),
    ],
)
def test_wrong_values_are_refused_by_name(tmp_path, spoil, message):
    fields = make_fields()
    spoil(fields)
    with pytest.raises(InputError, match=message):
        Predictions(**fields)
    np.savez(tmp_path / "run.npz", **fields)
    with pytest.raises(InputError, match=f"run.npz: .*{message}") as error:
        Predictions.load(tmp_path / "run.npz")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["run.npz", "run.parquet", "run.csv"])
def test_files_that_are_not_predictions(tmp_path, name):
    with pytest.raises(InputError, match=name):
        Predictions.load(tmp_path / name)
    (tmp_path / name).write_bytes(b"not a file of this kind")
    with pytest.raises(InputError, match=name):
        Predictions.load(tmp_path / name)


def test_a_pickle_inside_is_not_loaded(tmp_path):
    fields = make_fields()
    fields["session_names"] = np.array([{"a": 1}], dtype=object)
    np.savez(tmp_path / "run.npz", **fields)
    with pytest.raises(InputError, match="run.npz: not readable"):
        Predictions.load(tmp_path / "run.npz")


def test_missing_array(tmp_path):
    fields = make_fields()
    del fields["targets"]
    np.savez(tmp_path / "run.npz", **fields)
    with pytest.raises(InputError, match="targets missing"):
        Predictions.load(tmp_path / "run.npz")
