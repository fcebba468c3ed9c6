"""Writing predictions batch by batch, while a model makes them."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from swift_plugin.errors import InputError
from swift_plugin.evaluation.predictions import (
    Predictions,
    check_rows,
    check_suffix,
    check_unique,
    parquet_schema,
    to_record_batch,
)

ROWS_PER_GROUP = 16_384  # of a parquet file; 4 MB before compression


class PredictionWriter:
    """A context manager that takes batches and leaves one complete file, or none if the block raises.

    With `.parquet` about `ROWS_PER_GROUP` rows are held in memory, whatever the length of the run; `.npz` is written
    at the end from memory (240 bytes an anchor, 43 MB for ten hours).

    Args:
        path: the file to write, `.npz` or `.parquet`; an existing file is replaced when the block ends.
        session_names: the names that the session numbers of the batches count in.

    Raises:
        InputError: another suffix.
    """

    def __init__(self, path: Path, *, session_names: list[str]) -> None:
        check_suffix(path)
        self._path = path
        self._partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        self._session_names = list(session_names)
        self._schema = parquet_schema(self._session_names)
        self._rows: list[tuple[np.ndarray, ...]] = []
        self._anchors: list[tuple[np.ndarray, np.ndarray]] = []
        self._parquet: pq.ParquetWriter | None = None

    def __enter__(self) -> PredictionWriter:
        if self._path.suffix == ".parquet":
            self._parquet = pq.ParquetWriter(self._partial, self._schema)
        return self

    def add(
        self, probabilities: np.ndarray, target_index: np.ndarray, session: np.ndarray, targets: np.ndarray
    ) -> None:
        """Take the next anchors; the arrays are those of `Predictions`, with any number of rows.

        Raises:
            InputError: rows that cannot be predictions.
        """
        rows = (
            np.array(probabilities, np.float32),  # copies: the caller may reuse its buffers
            np.array(target_index, np.int64),
            np.array(session, np.int32),
            np.array(targets, np.float32),
        )
        try:
            check_rows(*rows, len(self._session_names))
        except InputError as error:
            raise InputError(f"{self._path}: {error}") from None
        self._rows.append(rows)
        self._anchors.append((rows[2], rows[1]))
        if self._parquet is not None and sum(len(part[1]) for part in self._rows) >= ROWS_PER_GROUP:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            if self._parquet is not None:
                self._parquet.close()
            self._partial.unlink(missing_ok=True)

    def _finish(self) -> None:
        if not self._anchors:
            raise InputError(f"{self._path}: no anchor was predicted; check the data")
        session, target_index = _join(self._anchors)
        try:
            check_unique(session, target_index, self._session_names)
        except InputError as error:
            raise InputError(f"{self._path}: {error}") from None
        if self._parquet is None:
            probabilities, target_index, session, targets = _join(self._rows)
            Predictions(
                probabilities=probabilities,
                target_index=target_index,
                session=session,
                session_names=self._session_names,
                targets=targets,
            ).save(self._path)
        else:
            self._flush()
            self._parquet.close()
            os.replace(self._partial, self._path)

    def _flush(self) -> None:
        if self._rows:
            batch = to_record_batch(*_join(self._rows), schema=self._schema)
            self._parquet.write_table(pa.Table.from_batches([batch]))
            self._rows.clear()


def _join(parts: list[tuple[np.ndarray, ...]]) -> list[np.ndarray]:
    return [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
