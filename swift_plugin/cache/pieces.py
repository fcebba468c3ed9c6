"""Rows of a shard: where the embeddings of each piece of a block lie, and filling a layout with them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from swift_plugin.stream.layout import StreamLayout
from swift_plugin.stream.positions import distinct_grid_frames
from swift_plugin.stream.spec import StreamSpec, audio_tokens, piece_steps


@dataclass(frozen=True)
class BlockPieces:
    """All that the towers say about one block.

    Attributes:
        audio: `num_steps` -> embeddings of the sound of [block start, block start + 0.2 * num_steps), [5 * steps, H].
        video: (first frame, second frame) -> embeddings of that grid, [tokens per grid, H]. A pair of frames that a
            tail shares with its block stands here once.
    """

    audio: dict[int, torch.Tensor]
    video: dict[tuple[int, int], torch.Tensor]


@lru_cache(maxsize=256)
def audio_rows(num_steps: int, *, tails: bool = True) -> dict[int, slice]:
    """Rows of each piece's sound within a block of `num_steps` steps; see `piece_steps`."""
    rows, start = {}, 0
    for steps in piece_steps(num_steps, tails=tails):
        rows[steps] = slice(start, start + audio_tokens(steps))
        start = rows[steps].stop
    return rows


@lru_cache(maxsize=256)
def video_rows(
    spec: StreamSpec, num_steps: int, tokens_per_grid: int, *, tails: bool = True
) -> dict[tuple[int, int], slice]:
    """Rows of each pair of frames within a block of `num_steps` steps."""
    pairs = [] if spec.video_fps is None else distinct_grid_frames(spec, num_steps=num_steps, tails=tails)
    return {pair: slice(n * tokens_per_grid, (n + 1) * tokens_per_grid) for n, pair in enumerate(pairs)}


def row_count(rows: dict) -> int:
    return max((piece.stop for piece in rows.values()), default=0)


def fill(
    layout: StreamLayout,
    *,
    prefix: torch.Tensor,
    closure: torch.Tensor,
    pieces: dict[int, BlockPieces],
) -> torch.Tensor:
    """Put embeddings into a layout.

    Args:
        layout: from `stream_layout`.
        prefix, closure: embeddings of the text with the tokens that open and close the stream, [n, H].
        pieces: by block relative to the anchors' own, 0, -1, …. Without 0 the tails are left zero.

    Returns:
        [L, H] in the dtype of `prefix`.
    """
    out = torch.empty(len(layout), prefix.shape[1], dtype=prefix.dtype)
    position = 0
    for part in layout.parts:
        if part.kind == "prefix":
            source = prefix
        elif part.kind == "closure":
            source = closure
        elif part.block == 0 and 0 not in pieces:
            source = 0.0
        elif part.kind == "video":
            source = pieces[part.block].video[part.frames]
        else:
            source = pieces[part.block].audio[part.num_steps]
        out[position : position + part.length] = source
        position += part.length
    return out
