"""Positions against `get_rope_index` of transformers on the same tokens, integer by integer."""

import pytest
import torch

from swift_plugin.errors import InputError
from swift_plugin.stream.layout import StreamShape, stream_layout
from swift_plugin.stream.positions import VideoGrid, distinct_grid_frames, grid_times, video_grids
from swift_plugin.stream.spec import STEPS_PER_BLOCK, StreamSpec, audio_tokens


def native_positions(thinker, shape: StreamShape, *, history: int, tail_steps: int) -> torch.Tensor:
    """The tokens of one anchor, as ids in the layout's order, through the model's own position code: [3, L]."""
    config = thinker.config
    layout = stream_layout(shape, history=history, tails=(tail_steps,))
    text = 7  # any id that is no special token
    video = shape.spec.video_fps is not None
    opening = [config.vision_start_token_id, config.audio_start_token_id] if video else [config.audio_start_token_id]
    closing = [config.audio_end_token_id] + ([text] if video else [])
    ids, grids = [], 0
    for part in layout.parts:
        if part.kind == "prefix":
            ids += [text] * shape.prefix_text + opening
        elif part.kind == "closure":
            ids += closing + [text] * shape.closure_text
        else:
            ids += [config.video_token_id if part.kind == "video" else config.audio_token_id] * part.length
            grids += part.kind == "video"
    ids = torch.tensor([ids])
    mel_frames = torch.tensor([(history * STEPS_PER_BLOCK + tail_steps) * 20])
    merge = thinker.spatial_merge_size
    grid_thw = torch.tensor([[grids, shape.grid_height * merge, shape.grid_width * merge]]) if video else None
    positions, _ = thinker.get_rope_index(
        ids,
        video_grid_thw=grid_thw,
        attention_mask=torch.ones_like(ids),
        use_audio_in_video=video,
        audio_seqlens=mel_frames,
        second_per_grids=torch.tensor([shape.spec.seconds_per_grid]) if video else None,
    )
    return positions[:, 0]


@pytest.mark.parametrize("fps", [1, 2, 2.5, 5])
@pytest.mark.parametrize("grid", [(4, 5), (7, 12), (1, 1)])
def test_positions_equal_get_rope_index(tiny_thinker, fps, grid):
    shape = StreamShape(StreamSpec(video_fps=fps), *grid, prefix_text=11, closure_text=6)
    for history in range(6):
        for tail_steps in range(1, 11):
            ours = stream_layout(shape, history=history, tails=(tail_steps,)).position_ids
            theirs = native_positions(tiny_thinker, shape, history=history, tail_steps=tail_steps)
            assert torch.equal(ours, theirs), (history, tail_steps)


def test_positions_of_sound_only_equal_get_rope_index(tiny_thinker):
    shape = StreamShape(StreamSpec(video_fps=None), 0, 0, prefix_text=11, closure_text=6)
    for history in range(6):
        for tail_steps in range(1, 11):
            ours = stream_layout(shape, history=history, tails=(tail_steps,)).position_ids
            theirs = native_positions(tiny_thinker, shape, history=history, tail_steps=tail_steps)
            assert torch.equal(ours, theirs), (history, tail_steps)


def test_long_streams_keep_every_grid_in_its_block():
    """Half an hour without a closure, where float32 rounding has had time to bite."""
    for fps in (1, 2, 2.5, 5):
        spec = StreamSpec(video_fps=fps)
        count = int(1800 * fps) // 2
        times = grid_times(spec, count)
        assert times[-1] == int((count - 1) * 50 / fps + 1e-6)


def test_a_rate_that_float32_rounds_into_the_wrong_block_is_refused():
    """At 41 frames a second, 2/41 · 41 · 25 is 49.99… in float32: the native code puts a grid a block early."""
    with pytest.raises(InputError, match="video_fps=41 puts a grid of the first 60 into the wrong"):
        grid_times(StreamSpec(video_fps=41), 60)


def test_frames_are_paired_from_the_start_of_the_stream():
    spec = StreamSpec(video_fps=2.5)  # five frames a block: every other block has no partner for its last frame
    assert video_grids(spec, slot=0, num_steps=10) == [VideoGrid(0, 0, 1), VideoGrid(1, 2, 3), VideoGrid(2, 4, 4)]
    assert video_grids(spec, slot=1, num_steps=10) == [VideoGrid(3, 1, 2), VideoGrid(4, 3, 4)]
    assert video_grids(spec, slot=1, num_steps=1) == []
    assert video_grids(spec, slot=0, num_steps=1) == [VideoGrid(0, 0, 0)]


def test_a_tail_never_uses_a_frame_that_is_still_to_come():
    for fps in (1, 2, 2.5, 5):
        spec = StreamSpec(video_fps=fps)
        for slot in range(4):
            for steps in range(1, 11):
                for grid in video_grids(spec, slot=slot, num_steps=steps):
                    assert spec.frame_offset(grid.second) < steps * 0.2 - 1e-9


def test_what_tails_share_with_their_block_is_stored_once():
    assert distinct_grid_frames(StreamSpec(video_fps=2), num_steps=10) == [(0, 0), (0, 1), (2, 2), (2, 3)]
    assert distinct_grid_frames(StreamSpec(video_fps=2), num_steps=2) == [(0, 0)]


def test_audio_tokens_are_five_a_step(tiny_thinker):
    for steps in range(1, 11):
        _, length = tiny_thinker.audio_tower._get_feat_extract_output_lengths(torch.tensor(steps * 20))
        assert audio_tokens(steps) == length == 5 * steps
