"""`OpenStreamCollator`: reads pieces from the cache and rebuilds the sequences of a batch."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from swift_plugin.cache.reader import CacheReader
from swift_plugin.errors import InputError
from swift_plugin.stream.layout import StreamLayout, split_anchors
from swift_plugin.stream.masks import PADDING, arrangement
from swift_plugin.stream.spec import NUM_HORIZONS, STEPS_PER_BLOCK
from swift_plugin.task.tail_inputs import TAIL, OpenTail, TailInputs

_OPEN_SESSIONS = 64
_LENGTH_MULTIPLE = 64  # of a packed row


class OpenStreamCollator:
    """Rows of the dataset in, tensors for `TurnPredictor.forward` out.

    Args:
        shared: the anchors of a block share one history; otherwise each is a sequence of its own.
        packed: all sequences of a batch stand in one row, as flex attention likes it; otherwise one row each, padded.
        tail_inputs: makes the tails from the media; otherwise they come from the cache.
    """

    def __init__(self, *, shared: bool = True, packed: bool = False, tail_inputs: TailInputs | None = None) -> None:
        self.shared = shared
        self.packed = packed
        self.tail_inputs = tail_inputs

    def __call__(self, rows: list[dict[str, Any]], padding_to: int | None = None) -> dict[str, torch.Tensor]:
        """
        Args:
            rows: with `manifest`, `block_index`, `tails`, `targets` [n, 11, 3].

        Returns:
            `inputs_embeds` [B, L, H], `position_ids` [3, B, L], `document` and `branch` [B, L], `readout_rows` and
            `readout_indices` [N] in the order of the rows and of their tails; `labels` [len(rows), 10, 11, 3], the
            targets of each row, and `present` [len(rows), 10], which of them are there: a row has up to ten anchors. With
            an online tail also `tail`, see `TailInputs`, for `OnlineTail.fill`.
        """
        readers = [_reader(Path(row["manifest"])) for row in rows]
        sequences, owners = [], []
        for row, reader in zip(rows, readers):
            for tails in split_anchors(row["tails"], shared=self.shared):
                sequences.append(reader.sequence(row["block_index"], tails, with_tail=self.tail_inputs is None))
                owners.append((reader, row["block_index"]))
        if self.packed:
            batch = _pack(sequences, full=sum(reader.longest_sequence for reader in readers))
        else:
            batch = _pad(sequences)
        batch["arrangement"] = arrangement(batch["document"], batch["branch"])
        labels = torch.full((len(rows), STEPS_PER_BLOCK, NUM_HORIZONS + 1, 3), float("nan"))
        present = torch.zeros(len(rows), STEPS_PER_BLOCK, dtype=torch.bool)
        for number, row in enumerate(rows):
            labels[number, : len(row["tails"])] = torch.tensor(row["targets"], dtype=torch.float32)
            present[number, : len(row["tails"])] = True
        batch = {**batch, "labels": labels, "present": present}
        if self.tail_inputs is not None:
            batch[TAIL] = self.tail_inputs(self._open_tails(batch, sequences, owners))
        return batch

    def _open_tails(self, batch: dict, sequences: list, owners: list[tuple[CacheReader, int]]) -> list[OpenTail]:
        """Where each sequence lies: behind each other in one row, or at the beginning of a row of its own."""
        length, first_row, tails = batch["inputs_embeds"].shape[1], 0, []
        for (_, layout), (reader, block) in zip(sequences, owners):
            tails.append(OpenTail(reader.path.resolve(), block, reader.manifest.spec, layout, first_row))
            first_row += len(layout) if self.packed else length
        return tails


def _pad(sequences: list[tuple[torch.Tensor, StreamLayout]]) -> dict[str, torch.Tensor]:
    """One row a sequence, padded on the right."""
    count, length = len(sequences), max(len(layout) for _, layout in sequences)
    hidden_size, dtype = sequences[0][0].shape[1], sequences[0][0].dtype
    batch = _empty(count, length, hidden_size, dtype)
    rows, indices = [], []
    for row, (embeddings, layout) in enumerate(sequences):
        _place(batch, row, slice(0, len(layout)), embeddings, layout, document=0)
        rows.append(torch.full_like(layout.readout_indices, row))
        indices.append(layout.readout_indices)
    return {**batch, "readout_rows": torch.cat(rows), "readout_indices": torch.cat(indices)}


def _pack(sequences: list[tuple[torch.Tensor, StreamLayout]], *, full: int) -> dict[str, torch.Tensor]:
    """All sequences behind each other in one row."""
    length = bucket_length(sum(len(layout) for _, layout in sequences), full)
    hidden_size, dtype = sequences[0][0].shape[1], sequences[0][0].dtype
    batch = _empty(1, length, hidden_size, dtype)
    indices, start = [], 0
    for document, (embeddings, layout) in enumerate(sequences):
        _place(batch, 0, slice(start, start + len(layout)), embeddings, layout, document=document)
        indices.append(layout.readout_indices + start)
        start += len(layout)
    readout_indices = torch.cat(indices)
    return {**batch, "readout_rows": torch.zeros_like(readout_indices), "readout_indices": readout_indices}


def bucket_length(length: int, full: int) -> int:
    """Where a packed row of `length` tokens ends, so that compiled graphs are few: eight at most for one batch size.

    Args:
        length: tokens of the batch.
        full: tokens of a batch of as many blocks with whole histories and all ten anchors, the steady state of a long
            session: it is filled up by less than 64 tokens. Shorter batches end at multiples of its eighth part.
    """
    step = -(-full // (8 * _LENGTH_MULTIPLE)) * _LENGTH_MULTIPLE
    largest = -(-full // _LENGTH_MULTIPLE) * _LENGTH_MULTIPLE
    return min(-(-length // step) * step, largest) if length <= largest else -(-length // step) * step


def _empty(rows: int, length: int, hidden_size: int, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {
        "inputs_embeds": torch.zeros(rows, length, hidden_size, dtype=dtype),
        "position_ids": torch.zeros(3, rows, length, dtype=torch.long),
        "document": torch.full((rows, length), PADDING, dtype=torch.int32),
        "branch": torch.zeros(rows, length, dtype=torch.int32),
    }


def _place(batch: dict, row: int, place: slice, embeddings: torch.Tensor, layout: StreamLayout, *, document: int) -> None:
    batch["inputs_embeds"][row, place] = embeddings
    batch["position_ids"][:, row, place] = layout.position_ids
    batch["branch"][row, place] = layout.branch
    batch["document"][row, place] = document


@lru_cache(maxsize=_OPEN_SESSIONS)
def _reader(path: Path) -> CacheReader:
    """The reader of a session; each worker process opens its own."""
    try:
        return CacheReader(path)
    except OSError as error:
        raise InputError(f"{path}: {error}; check the path") from None
