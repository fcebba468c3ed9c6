"""From manifests to rows: `--dataset caches/session_1/turn_manifest.json#500`.

A row is light: which session, which block, which of its anchors, and their targets. The embeddings stay on disk until
the collator needs them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from datasets import Dataset
from swift.dataset import DatasetMeta
from swift.dataset.dataset_meta import BaseDatasetLoader
from swift.dataset.utils import sample_dataset

from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest
from swift_plugin.config import TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.labels.store import load_targets
from swift_plugin.stream.spec import NUM_HORIZONS, STEPS_PER_BLOCK


class TurnDatasetLoader(BaseDatasetLoader):
    """ms-swift gives it the path of a manifest, and the number behind `#`, which counts anchors."""

    def __init__(self, *, streaming: bool = False, **unused) -> None:
        # The other arguments concern text columns, hubs and copies on disk, of which there are none.
        if streaming:
            raise InputError("--streaming true: rows of this task are light and always fit; drop it")

    def load(self, dataset_syntax, dataset_meta: DatasetMeta, *, use_hf: bool | None = None) -> Dataset:
        return anchor_rows(Path(dataset_syntax.dataset))

    @staticmethod
    def post_process(
        train_dataset: Dataset,
        *,
        dataset_sample: int | None = None,
        split_dataset_ratio: float = 0.0,
        streaming: bool = False,
        shuffle: bool = True,
        random_state: np.random.RandomState | None = None,
    ) -> tuple[Dataset | None, Dataset | None]:
        """Sample anchors, then group them by block.

        Raises:
            InputError: a random split, whose two parts would share sound and film.
        """
        if split_dataset_ratio not in (0, 1):  # 1 is how ms-swift marks a `--val_dataset`
            raise InputError(
                f"--split_dataset_ratio {split_dataset_ratio}: anchors of one session overlap in time, so a random split "
                "leaks; pass other sessions with --val_dataset"
            )
        if dataset_sample is not None and dataset_sample < 1:
            raise InputError(f"#{dataset_sample} samples no anchor; use a positive number")
        rows = sample_dataset(train_dataset, dataset_sample, shuffle, random_state)
        rows = group_by_block(rows) if TurnOptions.from_environment().sampling == "block" else single_anchors(rows)
        return (None, rows) if split_dataset_ratio == 1 else (rows, None)


def anchor_rows(path: Path, *, require_future: bool = True) -> Dataset:
    """One row an anchor: `manifest`, `block_index`, `tail_steps`, `targets` [11, 3] (its own step, then ten horizons).

    Args:
        path: the manifest.
        require_future: leave out anchors without ten future steps; otherwise their targets are unknown, NaN, so that
            measuring predictions counts the anchors that evaluation in training counts.
    """
    manifest = Manifest.load(path)
    targets = session_targets(path, manifest)
    unknown = np.full((NUM_HORIZONS + 1, 3), np.nan, np.float32)
    anchors = [anchor for anchor in manifest.anchors if anchor.has_future_target or not require_future]
    if not anchors:
        raise InputError(f"{path}: no anchor has ten future target steps; cache a longer session")
    windows = [
        targets[anchor.target_index : anchor.target_index + NUM_HORIZONS + 1] if anchor.has_future_target else unknown
        for anchor in anchors
    ]
    return Dataset.from_dict(
        {
            "manifest": [str(path)] * len(anchors),
            "block_index": [anchor.block_index for anchor in anchors],
            "tail_steps": [anchor.tail_steps for anchor in anchors],
            "targets": [window.tolist() for window in windows],
        }
    )


def session_targets(path: Path, manifest: Manifest) -> np.ndarray:
    """The targets of a session, float32 [T, 3], from `turn_target` or from where the manifest says.

    Raises:
        InputError: targets of another length than those the cache was made for.
    """
    override = TurnOptions.from_environment().target
    target_path = Path(override) if override else path.parent / manifest.target_path
    targets = load_targets(target_path).targets
    if len(targets) != manifest.target_steps:
        raise InputError(
            f"{target_path}: {len(targets)} steps, but {path} was made for {manifest.target_steps}; "
            "use the session's own targets"
        )
    return targets


def group_by_block(rows: Dataset) -> Dataset:
    """Merge anchors of one block into one row: `tails` and `targets` [n, 11, 3] in order of time.

    An anchor that was sampled more than once stands in as many rows.
    """
    groups: dict[tuple, list[int]] = {}
    times_seen: dict[tuple, int] = {}
    blocks, tails, manifests = rows["block_index"][:], rows["tail_steps"][:], rows["manifest"][:]
    for index, key in enumerate(zip(manifests, blocks, tails)):
        repetition = times_seen[key] = times_seen.get(key, -1) + 1
        groups.setdefault((key[0], key[1], repetition), []).append(index)
    members = [sorted(group, key=lambda index: tails[index]) for group in groups.values()]
    return _merge(rows, members)


def single_anchors(rows: Dataset) -> Dataset:
    """The same columns with one anchor a row."""
    return _merge(rows, [[index] for index in range(len(rows))])


def _merge(rows: Dataset, members: list[list[int]]) -> Dataset:
    targets, tails = rows["targets"][:], rows["tail_steps"][:]
    first = [group[0] for group in members]
    merged = rows.select(first).remove_columns(["targets", "tail_steps"])
    merged = merged.add_column("tails", [[tails[index] for index in group] for group in members])
    return merged.add_column("targets", [[targets[index] for index in group] for group in members])


def dataset_meta() -> DatasetMeta:
    return DatasetMeta(dataset_path=MANIFEST_NAME, loader=TurnDatasetLoader, help="a cache of swift_plugin")


def target_index(block_index: int, tail_steps: int) -> int:
    return block_index * STEPS_PER_BLOCK + tail_steps - 1
