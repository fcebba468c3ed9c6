"""TMRoPE positions of an open stream, piece by piece.

The yardstick is `get_rope_index` of transformers' Qwen2_5OmniThinkerForConditionalGeneration, called with
`use_audio_in_video=True` on the same token ids; the comments name the lines of it that a rule comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch

from swift_plugin.errors import InputError
from swift_plugin.stream.spec import POSITIONS_PER_BLOCK, POSITIONS_PER_SECOND, StreamSpec, audio_tokens, piece_steps


@dataclass(frozen=True)
class VideoGrid:
    """One temporal grid of video tokens: two frames of a block, or its newest frame twice.

    Attributes:
        index: number of the grid in the stream, counted from the stream's first block.
        first, second: numbers of the two frames within the block.
    """

    index: int
    first: int
    second: int


def video_grids(spec: StreamSpec, *, slot: int, num_steps: int) -> list[VideoGrid]:
    """The grids of the block in place `slot` of the stream when `num_steps` of its steps have been seen.

    Frames are paired from the start of the stream, as the native processor pairs the frames of one film. With an
    odd number of frames a block, the last frame of every other block has no partner yet when its block is complete
    and stands twice, as the processor pads a film with an odd number of frames; its partner to be is skipped.
    """
    offset = slot * spec.frames_per_block
    seen = spec.frames_seen(num_steps)
    grids = []
    index = -(-offset // 2)
    while (first := 2 * index - offset) < seen:
        grids.append(VideoGrid(index=index, first=first, second=min(first + 1, seen - 1)))
        index += 1
    return grids


def distinct_grid_frames(spec: StreamSpec, *, num_steps: int, tails: bool = True) -> list[tuple[int, int]]:
    """All pairs of frames that the pieces of a block need in any place of a stream, sorted; see `piece_steps`."""
    slots = (0, 1) if spec.frames_per_block % 2 else (0,)
    return sorted(
        {
            (grid.first, grid.second)
            for slot in slots
            for steps in piece_steps(num_steps, tails=tails)
            for grid in video_grids(spec, slot=slot, num_steps=steps)
        }
    )


@lru_cache(maxsize=64)
def grid_times(spec: StreamSpec, count: int) -> torch.Tensor:
    """Temporal positions of the first `count` grids of a stream, int64 [count].

    The same float32 product, cut to integers in the same place, as `t_index` in `get_rope_index`: with 0.4 s a grid
    a float64 product would differ.

    Raises:
        InputError: a rate whose float32 product leaves a grid in another block than its frames.
    """
    seconds_per_grid = torch.tensor(spec.seconds_per_grid)
    times = (torch.arange(count) * seconds_per_grid.float() * POSITIONS_PER_SECOND).long()
    block_of_frame = torch.arange(count) * 2 // spec.frames_per_block
    if not torch.equal(times // POSITIONS_PER_BLOCK, block_of_frame):
        raise InputError(
            f"video_fps={spec.video_fps} puts a grid of the first {count} into the wrong 2 s block by float32 rounding; "
            "use a rate such as 1, 2 or 5"
        )
    return times


def prefix_positions(num_text: int, spec: StreamSpec) -> torch.Tensor:
    """Text before the stream, then the tokens that open it, int64 [3, num_text + 1 or 2].

    `vision_bos` and `audio_bos` stand at one position: `get_rope_index` adds both at the same `st_idx`.
    """
    opening = [num_text] if spec.video_fps is None else [num_text, num_text]
    return torch.tensor([*range(num_text), *opening]).expand(3, -1)


def stream_start(num_text: int) -> int:
    """The position of the first token of the stream."""
    return num_text + 1


def grid_positions(time: int, grid_height: int, grid_width: int) -> torch.Tensor:
    """Positions of one grid of video tokens relative to the stream's start, int64 [3, grid_height * grid_width].

    Height and width count from the start of the stream, not of the block (`get_llm_pos_ids_for_vision`).
    """
    height = torch.arange(grid_height).repeat_interleave(grid_width)
    width = torch.arange(grid_width).repeat(grid_height)
    return torch.stack([torch.full_like(height, time), height, width])


def audio_positions(slot: int, num_steps: int) -> torch.Tensor:
    """Positions of a piece's audio tokens relative to the stream's start, int64 [3, 5 * num_steps]."""
    return (torch.arange(audio_tokens(num_steps)) + slot * POSITIONS_PER_BLOCK).expand(3, -1)


def closure_positions(slot: int, num_steps: int, num_text: int, spec: StreamSpec) -> torch.Tensor:
    """Positions of the tokens that close the stream and the text after, relative to the stream's start.

    `audio_eos` and `vision_eos` stand at one position, one behind the last audio token: `get_rope_index` goes on
    from the chunk that was added last, and that is always the tail's audio.
    """
    end = slot * POSITIONS_PER_BLOCK + audio_tokens(num_steps)
    closing = [end] if spec.video_fps is None else [end, end]
    return torch.tensor([*closing, *range(end + 1, end + 1 + num_text)]).expand(3, -1)
