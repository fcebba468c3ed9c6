"""How the pieces of a session become a sequence: one trunk of history, one branch for each anchor of a block.

    trunk = prefix · history          branches = (tail_1 · closure) … (tail_10 · closure)

A token of a branch sees the trunk and its own branch, never a sibling. A layout with one branch is the plain
sequence of one anchor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from swift_plugin.stream.positions import (
    audio_positions,
    closure_positions,
    grid_positions,
    grid_times,
    prefix_positions,
    stream_start,
    video_grids,
)
from swift_plugin.stream.spec import StreamSpec, audio_tokens

TRUNK = 0  # branch number of the tokens that every branch sees


@dataclass(frozen=True)
class StreamShape:
    """What the length of a sequence depends on besides its anchors.

    Attributes:
        spec: the time grid.
        grid_height, grid_width: video tokens of one grid in each direction, after merging; 0 for sound only.
        prefix_text: tokens before the ones that open the stream.
        closure_text: tokens after the ones that close it.
    """

    spec: StreamSpec
    grid_height: int
    grid_width: int
    prefix_text: int
    closure_text: int

    @property
    def tokens_per_grid(self) -> int:
        return self.grid_height * self.grid_width


@dataclass(frozen=True)
class Part:
    """A run of tokens whose embeddings come from one place.

    Attributes:
        kind: "prefix", "video", "audio" or "closure".
        length: number of tokens.
        block: for video and audio, the block relative to the anchors' own: 0, or -1, -2, … in the history.
        frames: for video, the two frames within the block.
        num_steps: for audio, the steps of the block that the sound covers.
    """

    kind: str
    length: int
    block: int = 0
    frames: tuple[int, int] = (0, 0)
    num_steps: int = 0


@dataclass(frozen=True)
class StreamLayout:
    """One sequence, ready to be filled with embeddings.

    Attributes:
        parts: where each run of tokens comes from, in order.
        position_ids: TMRoPE positions, int64 [3, L].
        branch: 0 for the trunk, n for the n-th branch, int32 [L].
        readout_indices: the last closure token of each branch, int64 [number of branches].
    """

    parts: tuple[Part, ...]
    position_ids: torch.Tensor
    branch: torch.Tensor
    readout_indices: torch.Tensor

    def __len__(self) -> int:
        return self.branch.shape[0]


@lru_cache(maxsize=4096)
def stream_layout(shape: StreamShape, *, history: int, tails: tuple[int, ...]) -> StreamLayout:
    """Lay out the anchors of one block.

    Args:
        shape: sizes that the session fixes.
        history: number of complete blocks before the anchors' block.
        tails: `tail_steps` of each anchor, in the order of the branches; at least one.
    """
    spec = shape.spec
    builder = _Builder(shape)
    builder.add(
        Part("prefix", shape.prefix_text + (1 if spec.video_fps is None else 2)),
        prefix_positions(shape.prefix_text, spec),
        TRUNK,
    )
    for slot in range(history):
        builder.add_piece(slot=slot, block=slot - history, num_steps=10, branch=TRUNK)
    readouts = []
    for branch, tail_steps in enumerate(tails, start=1):
        builder.add_piece(slot=history, block=0, num_steps=tail_steps, branch=branch)
        positions = closure_positions(history, tail_steps, shape.closure_text, spec)
        builder.add(Part("closure", positions.shape[1]), positions + builder.start, branch)
        readouts.append(builder.length - 1)
    return StreamLayout(
        parts=tuple(builder.parts),
        position_ids=torch.cat(builder.positions, dim=1),
        branch=torch.cat(builder.branches),
        readout_indices=torch.tensor(readouts),
    )


class _Builder:
    """Collects parts, positions and branch numbers of one layout."""

    def __init__(self, shape: StreamShape) -> None:
        self.shape = shape
        self.start = stream_start(shape.prefix_text)
        self.parts: list[Part] = []
        self.positions: list[torch.Tensor] = []
        self.branches: list[torch.Tensor] = []
        self.length = 0

    def add(self, part: Part, positions: torch.Tensor, branch: int) -> None:
        self.parts.append(part)
        self.positions.append(positions)
        self.branches.append(torch.full((part.length,), branch, dtype=torch.int32))
        self.length += part.length

    def add_piece(self, *, slot: int, block: int, num_steps: int, branch: int) -> None:
        """The video tokens of a block, then its audio tokens, as the processor interleaves a chunk of 2 s."""
        shape = self.shape
        if shape.spec.video_fps is not None:
            for grid in video_grids(shape.spec, slot=slot, num_steps=num_steps):
                time = int(grid_times(shape.spec, grid.index + 1)[-1])
                positions = grid_positions(time, shape.grid_height, shape.grid_width) + self.start
                part = Part("video", shape.tokens_per_grid, block=block, frames=(grid.first, grid.second))
                self.add(part, positions, branch)
        positions = audio_positions(slot, num_steps) + self.start
        self.add(Part("audio", audio_tokens(num_steps), block=block, num_steps=num_steps), positions, branch)


def split_anchors(tails: Sequence[int], *, shared: bool) -> list[tuple[int, ...]]:
    """Group the anchors of one block into layouts: one for all that share the history, or one each."""
    return [tuple(tails)] if shared else [(tail,) for tail in tails]
