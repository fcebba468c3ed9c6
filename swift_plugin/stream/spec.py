"""The time grid that every other room counts in: steps, blocks, horizons, frames."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from swift_plugin.errors import InputError

STEP_SECONDS = 0.2
BLOCK_SECONDS = 2.0
STEPS_PER_BLOCK = 10
NUM_HORIZONS = 10
CLASS_NAMES = ("nobody", "self", "other")
NUM_CLASSES = len(CLASS_NAMES)

SAMPLE_RATE = 16_000
SAMPLES_PER_STEP = 3_200
MEL_HOP_SAMPLES = 160
MEL_FRAMES_PER_STEP = SAMPLES_PER_STEP // MEL_HOP_SAMPLES  # 20
AUDIO_TOKENS_PER_STEP = 5  # 25 a second: the mel is halved by a convolution and again by the pooling
POSITIONS_PER_SECOND = 25
POSITIONS_PER_BLOCK = 50
FRAMES_PER_GRID = 2  # temporal_patch_size of the vision tower


def audio_tokens(num_steps: int) -> int:
    """Audio tokens of a piece of `num_steps` steps (1..10) that begins with its block.

    The formula is `_get_feat_extract_output_lengths` of transformers' Qwen2_5OmniAudioEncoder.
    """
    mel_frames = num_steps * MEL_FRAMES_PER_STEP
    return ((mel_frames - 1) // 2 + 1 - 2) // 2 + 1


def piece_steps(num_steps: int, *, tails: bool) -> range:
    """For each piece that a block of `num_steps` steps is cached as, the steps that it covers from the block's start.

    With tails every number of steps seen is a piece. Without them a complete block has one, the one that stands in a
    history, and an incomplete block has none.
    """
    return range(1 if tails else STEPS_PER_BLOCK, num_steps + 1)


@dataclass(frozen=True, kw_only=True)
class StreamSpec:
    """How a session is cut into pieces.

    Args:
        memory_seconds: the longest history of an anchor; whole blocks, so a multiple of 2 s (0 keeps none).
        video_fps: frames sampled a second, a multiple of 0.5 and at least 1; `None` for sound only.

    Raises:
        InputError: a value that does not fit the 2 s grid.
    """

    memory_seconds: float = 20.0
    video_fps: float | None = 2.0

    def __post_init__(self) -> None:
        blocks = Fraction(str(self.memory_seconds)) / 2
        if blocks < 0 or blocks.denominator != 1:
            raise InputError(
                f"memory_seconds={self.memory_seconds} is not a whole number of 2 s blocks; use for example 20"
            )
        if self.video_fps is None:
            return
        frames = Fraction(str(self.video_fps)) * 2
        if self.video_fps < 1 or frames.denominator != 1:
            raise InputError(
                f"video_fps={self.video_fps} does not put a whole number of frames, at least two, into a 2 s block; "
                "use a multiple of 0.5 from 1 on"
            )

    @property
    def memory_blocks(self) -> int:
        return int(Fraction(str(self.memory_seconds)) / 2)

    @property
    def frames_per_block(self) -> int:
        """Frames sampled in one block; 0 for sound only."""
        return 0 if self.video_fps is None else int(Fraction(str(self.video_fps)) * 2)

    @property
    def seconds_per_grid(self) -> float:
        """`second_per_grid_ts` of the native processor: the time between two temporal grids of video tokens."""
        if self.video_fps is None:
            raise ValueError("a stream of sound only has no video grid")
        return FRAMES_PER_GRID / self.video_fps

    def frame_offset(self, frame: int) -> float:
        """Seconds from the start of a block to its sampled frame number `frame` (0 .. frames_per_block-1)."""
        return frame / self.video_fps

    def frames_seen(self, num_steps: int) -> int:
        """Frames of a block that lie in its first `num_steps` steps, [0, 0.2 * num_steps) seconds."""
        if self.video_fps is None:
            return 0
        seen = Fraction(num_steps, 5) * Fraction(str(self.video_fps))
        return min(-(-seen.numerator // seen.denominator), self.frames_per_block)
