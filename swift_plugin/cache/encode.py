"""From media to embeddings of pieces, in three steps that can run beside each other.

    read_pieces   sound and frames out of a session      one thread a session
    piece_inputs  log-mels and patches                   any process or thread
    encode_pieces the towers                             where the weights are

The builder of the cache and the online tail both go this way, so they agree by construction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from swift_plugin.cache.features import PieceFeatures
from swift_plugin.cache.pieces import BlockPieces, audio_rows, video_rows
from swift_plugin.cache.towers import PieceEncoder
from swift_plugin.media.session import Session
from swift_plugin.stream.spec import BLOCK_SECONDS, SAMPLES_PER_STEP, STEP_SECONDS, StreamSpec


@dataclass(frozen=True)
class PieceRequest:
    """The pieces of one block that are wanted.

    Attributes:
        block: its index.
        steps: for each piece of sound the steps that it covers from the block's start.
        pairs: for each grid of video its two frames, numbered within the block.
    """

    block: int
    steps: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]

    @classmethod
    def cached(cls, block: int, num_steps: int, spec: StreamSpec, *, tails: bool) -> PieceRequest:
        """All pieces of a block of `num_steps` steps that a cache holds, in the order of its rows."""
        audio, video = audio_rows(num_steps, tails=tails), video_rows(spec, num_steps, 1, tails=tails)
        return cls(block, tuple(audio), tuple(video))


@dataclass(frozen=True)
class RawPieces:
    """
    Attributes:
        sounds: each piece, float32 [3200 * steps], request after request.
        frames: the frames of all requests, uint8 [n, height, width, 3]; `None` without video.
        pairs: rows of `frames`, int [number of pairs, 2], request after request.
    """

    sounds: list[np.ndarray]
    frames: np.ndarray | None
    pairs: np.ndarray


@dataclass(frozen=True)
class PieceInputs:
    """
    Attributes:
        mels: each piece of sound, float32 [mel bins, 20 * steps].
        patches, grids: as `PieceFeatures.patches` gives them; `None` without video.
    """

    mels: list[torch.Tensor]
    patches: torch.Tensor | None
    grids: torch.Tensor | None


def read_pieces(session: Session, spec: StreamSpec, requests: Sequence[PieceRequest]) -> RawPieces:
    """Read the media of some blocks of one session."""
    sounds, frames, pairs, count = [], [], [], 0
    for request in requests:
        start = request.block * BLOCK_SECONDS
        if request.steps:
            longest = session.sound(start, start + max(request.steps) * STEP_SECONDS)
            sounds += [longest[: steps * SAMPLES_PER_STEP] for steps in request.steps]
        numbers = sorted({frame for pair in request.pairs for frame in pair})
        if numbers:
            frames.append(session.frames([start + spec.frame_offset(number) for number in numbers]))
            pairs += [[count + numbers.index(frame) for frame in pair] for pair in request.pairs]
            count += len(numbers)
    return RawPieces(sounds, np.concatenate(frames) if frames else None, np.array(pairs, dtype=np.int64))


def piece_inputs(features: PieceFeatures, raw: RawPieces) -> PieceInputs:
    """Log-mels of all pieces, and patches of all pairs."""
    patches, grids = (None, None) if raw.frames is None else features.patches(raw.frames, raw.pairs)
    return PieceInputs(log_mels(features, raw.sounds), patches, grids)


def log_mels(features: PieceFeatures, sounds: Sequence[np.ndarray]) -> list[torch.Tensor]:
    """The log-mel of each piece, [mel bins, 20 * steps]; pieces of one length are computed together."""
    mels: dict[int, torch.Tensor] = {}
    for length in sorted({len(sound) for sound in sounds}):
        members = [index for index, sound in enumerate(sounds) if len(sound) == length]
        mels.update(zip(members, features.log_mel([sounds[index] for index in members])))
    return [mels[index] for index in range(len(sounds))]


def encode_pieces(
    encoder: PieceEncoder, inputs: PieceInputs, requests: Sequence[PieceRequest]
) -> list[BlockPieces]:
    """Run the towers; the embeddings lie on their device."""
    sounds = iter(encoder.encode_mels(inputs.mels) if inputs.mels else [])
    videos = iter(() if inputs.patches is None else encoder.encode_patches(inputs.patches, inputs.grids))
    return [
        BlockPieces(
            audio={steps: next(sounds) for steps in request.steps},
            video={pair: next(videos) for pair in request.pairs},
        )
        for request in requests
    ]


def encode_from_media(
    session: Session, encoder: PieceEncoder, spec: StreamSpec, requests: Sequence[PieceRequest]
) -> list[BlockPieces]:
    """All three steps, one after another."""
    return encode_pieces(encoder, piece_inputs(encoder.features, read_pieces(session, spec, requests)), requests)
