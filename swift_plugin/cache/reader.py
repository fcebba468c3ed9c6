"""Reads a cache: pieces straight from memory-mapped shards, sequences for the anchors of a block.

Nothing is kept in memory here. The shards are mapped, so the pages that were read lie in the operating system's
cache, once for all workers and all ranks of a machine, and are given up when memory runs short.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, lru_cache
from pathlib import Path

import torch
from safetensors import safe_open

from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest, Shard
from swift_plugin.cache.pieces import BlockPieces, audio_rows, fill, row_count, video_rows
from swift_plugin.errors import InputError
from swift_plugin.stream.layout import StreamLayout, stream_layout
from swift_plugin.stream.spec import STEPS_PER_BLOCK

TEXT_NAME = "text.safetensors"
_OPEN_FILES = 64


class CacheReader:
    """One session's cache.

    Args:
        path: its `turn_manifest.json`, or the folder that holds it.

    Raises:
        InputError: as `Manifest.load`, or a shard that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path / MANIFEST_NAME if path.is_dir() else path
        self.folder = self.path.parent
        self.manifest = Manifest.load(self.path)
        self.blocks = self.manifest.blocks
        self._place = dict(self._places())
        text = next(shard for shard in self.manifest.shards if shard.file == TEXT_NAME)
        self.prefix = self._open(text).get_tensor("prefix")  # [prefix_text + 1 or 2, H]
        self.closure = self._open(text).get_tensor("closure")  # [closure_text + 1 or 2, H]

    def pieces(self, block: int) -> BlockPieces:
        """The embeddings of one block, as views of the mapped shard."""
        if block not in self._place:
            raise InputError(f"{self.path}: block {block} is not in the cache; build the cache again")
        shard, audio_start, video_start = self._place[block]
        audio, video = self._rows(block)
        file = self._open(shard)
        audio_all = file.get_slice("audio")[audio_start : audio_start + row_count(audio)]
        video_all = file.get_slice("video")[video_start : video_start + row_count(video)] if video else None
        return BlockPieces(
            audio={key: audio_all[rows] for key, rows in audio.items()},
            video={key: video_all[rows] for key, rows in video.items()},
        )

    def sequence(
        self, block: int, tails: tuple[int, ...], *, with_tail: bool = True
    ) -> tuple[torch.Tensor, StreamLayout]:
        """The sequence of some anchors of one block that share its history.

        Args:
            block: index of the block.
            tails: `tail_steps` of the anchors.
            with_tail: fill in the block itself; otherwise its rows are zero, for an online tail.

        Returns:
            Embeddings [L, H] in the cache's dtype, and their layout.

        Raises:
            InputError: a tail is asked for that this cache was built without.
        """
        if with_tail and not self.manifest.tails:
            raise InputError(f"{self.path}: built without tails; train with turn_online_tail, or build it again with them")
        history = self.blocks.history(block, self.manifest.spec)
        layout = stream_layout(self.manifest.shape, history=len(history), tails=tails)
        pieces = {other - block: self.pieces(other) for other in [*history, *([block] if with_tail else [])]}
        return fill(layout, prefix=self.prefix, closure=self.closure, pieces=pieces), layout

    @cached_property
    def longest_sequence(self) -> int:
        """Tokens of a block with a whole history and all ten anchors."""
        shape = self.manifest.shape
        return len(stream_layout(shape, history=shape.spec.memory_blocks, tails=tuple(range(1, STEPS_PER_BLOCK + 1))))

    def _places(self) -> Iterator[tuple[int, tuple[Shard, int, int]]]:
        """Each block with its shard and its first row of audio and of video there."""
        for shard in self.manifest.shards:
            audio_start = video_start = 0
            for block in shard.blocks:
                yield block, (shard, audio_start, video_start)
                audio, video = self._rows(block)
                audio_start += row_count(audio)
                video_start += row_count(video)

    def _rows(self, block: int) -> tuple[dict, dict]:
        steps, shape, tails = self.blocks.steps[block], self.manifest.shape, self.manifest.tails
        return audio_rows(steps, tails=tails), video_rows(shape.spec, steps, shape.tokens_per_grid, tails=tails)

    def _open(self, shard: Shard):
        return _open_file(self.folder / shard.file, shard.sha256)


@lru_cache(maxsize=_OPEN_FILES)
def _open_file(path: Path, checksum: str):
    """Map a file; `checksum` tells a cache that was built again at the same place from the one before."""
    try:
        return safe_open(path, framework="pt")
    except Exception as error:  # safetensors raises its own kinds for a file that is cut or is none of its own
        raise InputError(f"{path}: not readable ({error}); build the cache again") from None
