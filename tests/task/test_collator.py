"""Lengths of packed batches, and what a batch holds."""

import pytest
import torch
from helpers import make_cache

from swift_plugin.cache.reader import CacheReader
from swift_plugin.stream.masks import CAUSAL, PADDING
from swift_plugin.task.collator import OpenStreamCollator, bucket_length


def test_packed_lengths_are_few_and_the_steady_state_is_hardly_filled_up():
    full = 4 * 2989
    lengths = {bucket_length(length, full) for length in range(1, full + 1)}
    assert len(lengths) <= 8
    assert bucket_length(full, full) - full < 64
    assert all(bucket_length(length, full) >= length for length in range(1, full + 1))


@pytest.fixture(scope="module")
def manifest_path(tiny_checkpoint, tmp_path_factory):
    return make_cache(tmp_path_factory.mktemp("cache") / "s", tiny_checkpoint, spans=[(0, 13)], memory_seconds=4)


def rows(path, blocks, tails=(2, 5, 10)) -> list[dict]:
    targets = torch.randn(len(tails), 11, 3).tolist()
    return [{"manifest": str(path), "block_index": b, "tails": list(tails), "targets": targets} for b in blocks]


def test_packed_and_padded_hold_the_same_tokens(manifest_path):
    items = rows(manifest_path, [0, 3, 4])
    packed, padded = OpenStreamCollator(packed=True)(items), OpenStreamCollator()(items)
    for row in range(3):
        inside_packed = packed["document"][0] == row
        inside_padded = padded["document"][row] == 0
        for name in ("inputs_embeds", "branch"):
            assert torch.equal(packed[name][0, inside_packed], padded[name][row, inside_padded])
        assert torch.equal(packed["position_ids"][:, 0, inside_packed], padded["position_ids"][:, row, inside_padded])
    assert (packed["document"] == PADDING).sum() < packed["document"].numel() / 4
    readouts = packed["inputs_embeds"][packed["readout_rows"], packed["readout_indices"]]
    assert torch.equal(readouts, padded["inputs_embeds"][padded["readout_rows"], padded["readout_indices"]])


def test_rows_of_single_anchors_need_no_mask(manifest_path):
    assert OpenStreamCollator(shared=False)(rows(manifest_path, [2, 3]))["arrangement"] == CAUSAL
    assert OpenStreamCollator(shared=True)(rows(manifest_path, [2, 3]))["arrangement"] != CAUSAL


def test_a_row_with_fewer_than_ten_anchors_says_which(manifest_path):
    batch = OpenStreamCollator()(rows(manifest_path, [3, 4], tails=(1, 7)))
    assert batch["present"].sum(dim=1).tolist() == [2, 2]
    assert batch["labels"][~batch["present"]].isnan().all()
    assert len(batch["readout_indices"]) == 4


def test_reading_keeps_nothing_in_memory(manifest_path):
    """Embeddings are views of the mapped shard, so workers share the system's page cache and hold no copies."""
    reader = CacheReader(manifest_path)
    before = {name for name in vars(reader)}
    first = reader.pieces(4).audio[10]
    for block in reader.blocks.steps:
        reader.sequence(block, tuple(range(1, 1 + reader.blocks.steps[block])))
    assert torch.equal(reader.pieces(4).audio[10], first)
    assert {name for name in vars(reader)} - before <= {"longest_sequence"}
