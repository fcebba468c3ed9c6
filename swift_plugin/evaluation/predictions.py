"""The predictions of a run: one row an anchor, kept as `.npz` or `.parquet`."""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from swift_plugin.errors import InputError
from swift_plugin.files import write_atomically
from swift_plugin.stream.spec import CLASS_NAMES, NUM_CLASSES, NUM_HORIZONS, STEP_SECONDS

SUFFIXES = (".npz", ".parquet")
HORIZON_NAMES = tuple(f"{(step + 1) * STEP_SECONDS:.1f}s" for step in range(NUM_HORIZONS))  # 0.2s .. 2.0s
SUM_TOLERANCE = 1e-3  # of a row's probabilities; a softmax in float32 is off by 1e-7, one in float16 by 1e-3

_ARRAYS = ("probabilities", "target_index", "session", "session_names", "targets")
_CELLS = [f"{name}_{horizon}" for horizon in HORIZON_NAMES for name in CLASS_NAMES]
_PROBABILITY_COLUMNS = [f"p_{cell}" for cell in _CELLS]
_TARGET_COLUMNS = [f"y_{cell}" for cell in _CELLS]
_NAMES_KEY = b"session_names"


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What a model said at each anchor, and what came.

    Attributes:
        probabilities: float32 [N, 10, 3], rows sum to one. As the model gave them, without a temperature.
        target_index: int64 [N], the anchor's step i; it has seen steps 0..i and predicts steps i+1..i+10.
        session: int32 [N], index into `session_names`.
        session_names: one name a session, all different.
        targets: float32 [N, 10, 3]; one-hot, multi-hot or soft; a row of NaN is unknown.

    Raises:
        InputError: a wrong shape, a probability or target outside 0..1, a row that does not sum to one, a row that is
            only partly NaN, an anchor that occurs twice.
    """

    probabilities: np.ndarray
    target_index: np.ndarray
    session: np.ndarray
    session_names: list[str]
    targets: np.ndarray

    def __post_init__(self) -> None:
        for name, dtype in (
            ("probabilities", np.float32),
            ("target_index", np.int64),
            ("session", np.int32),
            ("targets", np.float32),
        ):
            object.__setattr__(self, name, _as_array(name, getattr(self, name), dtype))
        object.__setattr__(self, "session_names", [str(name) for name in self.session_names])
        if len(set(self.session_names)) != len(self.session_names):
            raise InputError("a name occurs twice in session_names; give every session its own name")
        check_rows(self.probabilities, self.target_index, self.session, self.targets, len(self.session_names))
        check_unique(self.session, self.target_index, self.session_names)

    def __len__(self) -> int:
        return len(self.target_index)

    @property
    def time(self) -> np.ndarray:
        """float64 [N], the end of step i in seconds of the session: the moment at which the anchor predicts."""
        return (self.target_index + 1) * STEP_SECONDS

    @property
    def known(self) -> np.ndarray:
        """bool [N, 10], the rows with targets."""
        return ~np.isnan(self.targets[..., 0])

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all; the suffix chooses the format.

        `.npz` holds the five arrays under their names. `.parquet` has one row an anchor and the columns `session`
        (name), `target_index`, `time` (seconds), `p_<class>_<horizon>` and `y_<class>_<horizon>` with the classes
        nobody, self, other and the horizons 0.2s .. 2.0s, for example `p_self_0.4s`.
        """
        check_suffix(path)
        write_atomically(path, self._write_npz if path.suffix == ".npz" else self._write_parquet)

    @classmethod
    def load(cls, path: Path) -> Predictions:
        """Read a file that `save` or `PredictionWriter` wrote.

        Raises:
            InputError: no such file, another format, an array or column that is missing, values that are wrong.
        """
        check_suffix(path)
        if not path.is_file():
            raise InputError(f"{path}: no such file; make it with `swift-turn predict`")
        fields = _read_npz(path) if path.suffix == ".npz" else _read_parquet(path)
        try:
            return cls(**fields)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def _write_npz(self, partial: Path) -> None:
        with partial.open("wb") as file:  # given a path, numpy would append its own suffix
            np.savez(
                file,
                probabilities=self.probabilities,
                target_index=self.target_index,
                session=self.session,
                session_names=np.array(self.session_names, dtype=np.str_),
                targets=self.targets,
            )

    def _write_parquet(self, partial: Path) -> None:
        batch = to_record_batch(
            self.probabilities, self.target_index, self.session, self.targets, schema=parquet_schema(self.session_names)
        )
        pq.write_table(pa.Table.from_batches([batch]), partial)


def check_suffix(path: Path) -> None:
    if path.suffix not in SUFFIXES:
        raise InputError(f"{path}: unknown kind of file {path.suffix!r}; name it {' or '.join(SUFFIXES)}")


def check_rows(
    probabilities: np.ndarray, target_index: np.ndarray, session: np.ndarray, targets: np.ndarray, num_sessions: int
) -> None:
    """Refuse rows that cannot be predictions.

    Raises:
        InputError: see `Predictions`.
    """
    shape = (len(target_index), NUM_HORIZONS, NUM_CLASSES)
    for name, array, expected in (
        ("target_index", target_index, shape[:1]),
        ("session", session, shape[:1]),
        ("probabilities", probabilities, shape),
        ("targets", targets, shape),
    ):
        if array.shape != expected:
            raise InputError(f"{name} has shape {list(array.shape)}, {list(expected)} needed; predict again")
    _refuse(target_index < 0, target_index, "target_index", "steps count from 0")
    _refuse((session < 0) | (session >= num_sessions), session, "session", f"there are {num_sessions} session names")
    sums = probabilities.sum(axis=-1, dtype=np.float64)
    outside = ~((probabilities >= 0) & (probabilities <= 1))  # so that NaN is outside too
    _refuse(outside, probabilities, "probabilities", "pass softmax outputs, not logits")
    _refuse(np.abs(sums - 1) > SUM_TOLERANCE, sums, "the sum of a row of probabilities", "it has to be 1")
    unknown = np.isnan(targets)
    partly = unknown.any(axis=-1) != unknown.all(axis=-1)
    _refuse(partly, unknown.sum(axis=-1), "the number of NaN in a row of targets", "an unknown row is NaN throughout")
    _refuse(~unknown & ~((targets >= 0) & (targets <= 1)), targets, "targets", "they lie in 0..1")
    empty = ~unknown[..., 0] & (targets.sum(axis=-1) == 0)
    _refuse(empty, targets.sum(axis=-1), "the sum of a row of targets", "a known row has a class, an unknown one NaN")


def check_unique(session: np.ndarray, target_index: np.ndarray, session_names: list[str]) -> None:
    """Refuse an anchor that would count twice, as when padded batches of several ranks are joined.

    Raises:
        InputError: names the session and the step.
    """
    order = np.lexsort((target_index, session))
    session, target_index = session[order], target_index[order]
    twice = np.flatnonzero((np.diff(session) == 0) & (np.diff(target_index) == 0))
    if twice.size:
        raise InputError(
            f"target_index {target_index[twice[0]]} of session {session_names[session[twice[0]]]!r} occurs twice; "
            "predict each anchor once"
        )


def parquet_schema(session_names: list[str]) -> pa.Schema:
    cells = [pa.field(name, pa.float32()) for name in (*_PROBABILITY_COLUMNS, *_TARGET_COLUMNS)]
    return pa.schema(
        [
            pa.field("session", pa.dictionary(pa.int32(), pa.string())),
            pa.field("target_index", pa.int64()),
            pa.field("time", pa.float64()),
            *cells,
        ],
        metadata={_NAMES_KEY: json.dumps(session_names).encode()},
    )


def to_record_batch(
    probabilities: np.ndarray, target_index: np.ndarray, session: np.ndarray, targets: np.ndarray, *, schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of predictions as columns of `parquet_schema`."""
    names = json.loads(schema.metadata[_NAMES_KEY])
    cells = np.concatenate([probabilities.reshape(-1, len(_CELLS)), targets.reshape(-1, len(_CELLS))], axis=1)
    columns = [
        pa.DictionaryArray.from_arrays(pa.array(session, pa.int32()), pa.array(names, pa.string())),
        pa.array(target_index, pa.int64()),
        pa.array((target_index + 1) * STEP_SECONDS, pa.float64()),
        *(pa.array(np.ascontiguousarray(column), pa.float32()) for column in cells.T),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _read_npz(path: Path) -> dict[str, object]:
    try:
        with np.load(path, allow_pickle=False) as content:
            if missing := [name for name in _ARRAYS if name not in content]:
                raise InputError(f"{path}: {', '.join(missing)} missing; make the file with `swift-turn predict`")
            fields: dict[str, object] = {name: content[name] for name in _ARRAYS}
    except InputError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: not readable as .npz ({error}); predict again") from None
    fields["session_names"] = np.atleast_1d(fields["session_names"]).tolist()
    return fields


def _read_parquet(path: Path) -> dict[str, object]:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not readable as .parquet ({error}); predict again") from None
    with file:
        needed = ["session", "target_index", *_PROBABILITY_COLUMNS, *_TARGET_COLUMNS]
        if missing := [name for name in needed if name not in file.schema_arrow.names]:
            raise InputError(f"{path}: column {missing[0]} missing; make the file with `swift-turn predict`")
        metadata = file.schema_arrow.metadata or {}
        if _NAMES_KEY not in metadata:
            raise InputError(f"{path}: its metadata lacks session_names; make the file with `swift-turn predict`")
        names = json.loads(metadata[_NAMES_KEY])
        rows = file.metadata.num_rows
        target_index, session = np.empty(rows, np.int64), np.empty(rows, np.int32)
        cells = np.empty((rows, 2, NUM_HORIZONS, NUM_CLASSES), np.float32)
        numbers = {name: number for number, name in enumerate(names)}
        start = 0
        for batch in file.iter_batches(columns=needed):  # piece by piece, so that the file is never in memory twice
            stop = start + batch.num_rows
            session[start:stop] = [numbers.get(name, -1) for name in batch["session"].to_pylist()]
            target_index[start:stop] = batch["target_index"].to_numpy(zero_copy_only=False)
            flat = cells[start:stop].reshape(batch.num_rows, -1)
            for column, name in enumerate(needed[2:]):
                flat[:, column] = batch[name].to_numpy(zero_copy_only=False)
            start = stop
    return {
        "probabilities": np.ascontiguousarray(cells[:, 0]),
        "target_index": target_index,
        "session": session,
        "session_names": names,
        "targets": np.ascontiguousarray(cells[:, 1]),
    }


def _as_array(name: str, value: object, dtype: type) -> np.ndarray:
    array = np.asarray(value)
    if not np.can_cast(array.dtype, dtype, casting="same_kind"):
        raise InputError(f"{name} has dtype {array.dtype}, {np.dtype(dtype)} needed; convert it first")
    return array.astype(dtype, copy=False)


def _refuse(wrong: np.ndarray, values: np.ndarray, name: str, rule: str) -> None:
    if wrong.any():
        where = np.argwhere(wrong)[0]
        raise InputError(f"{name} is {values[tuple(where)]} at row {where[0]}; {rule}")
