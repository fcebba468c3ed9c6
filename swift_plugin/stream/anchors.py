"""Which blocks of a session can be cached, and which anchors they carry."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from swift_plugin.stream.spec import NUM_HORIZONS, STEPS_PER_BLOCK, StreamSpec

_SECONDS_PER_STEP_TOLERANCE = 1e-6  # of a step: spans come from time stamps in floating point


@dataclass(frozen=True)
class Anchor:
    """One prediction: it has seen steps 0..`target_index` and predicts the next ten.

    Attributes:
        target_index: the last step seen, counted from the start of the session.
        block_index: the block that this step lies in.
        tail_steps: steps of that block seen so far, 1..10.
        has_future_target: all ten predicted steps have targets and media, without a gap between.
    """

    target_index: int
    block_index: int
    tail_steps: int
    has_future_target: bool


@dataclass(frozen=True)
class SessionBlocks:
    """The blocks of one session that have media from their first step on.

    Attributes:
        steps: block index -> steps of the block that have media, 1..10, counted from its start.
        last_step: block index -> the first step after the span of media that the block lies in.
        first_block: block index -> the first block of that span.
    """

    steps: dict[int, int]
    last_step: dict[int, int]
    first_block: dict[int, int]

    def history(self, block_index: int, spec: StreamSpec) -> range:
        """The complete blocks before `block_index` that its anchors keep; never across a gap."""
        first = max(block_index - spec.memory_blocks, self.first_block[block_index])
        return range(first, block_index)


def session_blocks(spans: Sequence[tuple[float, float]]) -> SessionBlocks:
    """Lay the 2 s grid of the session over its spans of media, [start, end) in seconds.

    A span that begins inside a block leaves that block out: its first step is missing, and a live stream
    that starts there would start at the next block.
    """
    steps, last_step, first_block = {}, {}, {}
    for start, end in spans:
        first = _ceil_div(_first_step(start), STEPS_PER_BLOCK)
        stop = _last_step(end)
        for block in range(first, _ceil_div(stop, STEPS_PER_BLOCK)):
            steps[block] = min(stop - block * STEPS_PER_BLOCK, STEPS_PER_BLOCK)
            last_step[block] = stop
            first_block[block] = first
    return SessionBlocks(steps=steps, last_step=last_step, first_block=first_block)


def clip_spans(
    spans: Sequence[tuple[float, float]], *, start: float, end: float | None
) -> list[tuple[float, float]]:
    """The part of the spans that lies in [start, end) seconds; up to the last with `end=None`."""
    stop = float("inf") if end is None else end
    clipped = [(max(first, start), min(last, stop)) for first, last in spans]
    return [(first, last) for first, last in clipped if first < last]


def list_anchors(blocks: SessionBlocks, *, target_steps: int) -> list[Anchor]:
    """Every anchor of a session in order of time.

    Args:
        blocks: from `session_blocks`.
        target_steps: T, the number of rows of the session's targets.
    """
    anchors = []
    for block_index in sorted(blocks.steps):
        for tail_steps in range(1, blocks.steps[block_index] + 1):
            target_index = block_index * STEPS_PER_BLOCK + tail_steps - 1
            future_end = target_index + NUM_HORIZONS + 1
            anchors.append(
                Anchor(
                    target_index=target_index,
                    block_index=block_index,
                    tail_steps=tail_steps,
                    has_future_target=future_end <= min(target_steps, blocks.last_step[block_index]),
                )
            )
    return anchors


def _first_step(seconds: float) -> int:
    """The first whole step that begins at or after `seconds`."""
    steps = seconds * 5
    return round(steps) if abs(steps - round(steps)) < _SECONDS_PER_STEP_TOLERANCE else int(steps) + 1


def _last_step(seconds: float) -> int:
    """The number of whole steps that end at or before `seconds`."""
    steps = seconds * 5
    return round(steps) if abs(steps - round(steps)) < _SECONDS_PER_STEP_TOLERANCE else int(steps)


def _ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)
