"""The online tail, first half: what the collator does in worker processes, from media to inputs of the towers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence

from swift_plugin.cache.encode import PieceRequest, RawPieces, log_mels, read_pieces
from swift_plugin.cache.features import PieceFeatures
from swift_plugin.media.session import Session
from swift_plugin.stream.layout import Part, StreamLayout
from swift_plugin.stream.spec import StreamSpec

TAIL = "tail"  # the batch's key of what `TailInputs` gives


@dataclass(frozen=True)
class OpenTail:
    """A sequence of a batch whose tails are still to be filled in.

    Attributes:
        manifest: path of the session's manifest.
        block: the anchors' block.
        spec: the session's time grid.
        layout: of the sequence.
        first_row: where the sequence begins when the batch's rows, [B, L, H], are counted through.
    """

    manifest: Path
    block: int
    spec: StreamSpec
    layout: StreamLayout
    first_row: int


class TailInputs:
    """Reads the tails of a batch and prepares them for the towers.

    Args:
        sessions: by the resolved path of their manifest. Open them before worker processes are forked.
        features: of the checkpoint. With its `audio_feature_device` on the CPU log-mels are computed here, otherwise
            beside the towers.
    """

    def __init__(self, sessions: Mapping[Path, Session], features: PieceFeatures) -> None:
        self.sessions = sessions
        self.features = features

    def __call__(self, tails: Sequence[OpenTail]) -> dict[str, torch.Tensor]:
        """
        Returns:
            `sound` [pieces, longest, mel bins], log-mels, or samples [pieces, longest], and `sound_lengths` [pieces];
            with video `patches` and `grids` as `PieceFeatures.patches` gives them. The towers' audio tokens, piece after
            piece, go from rows `audio_from` to rows `audio_to` of the batch, those of video from `video_from` to
            `video_to`.
        """
        requests = [_request(tail) for tail in tails]
        raws = [read_pieces(self.sessions[tail.manifest], tail.spec, [request]) for tail, request in zip(tails, requests)]
        batch = self._sound([sound for raw in raws for sound in raw.sounds])
        batch["audio_from"], batch["audio_to"] = _moves(tails, requests, kind="audio")
        if any(raw.frames is not None for raw in raws):
            batch["patches"], batch["grids"] = self._patches(raws)
            batch["video_from"], batch["video_to"] = _moves(tails, requests, kind="video")
        return batch

    def _sound(self, sounds: list) -> dict[str, torch.Tensor]:
        if self.features.audio_feature_device == "cpu":
            pieces = [mel.T for mel in log_mels(self.features, sounds)]
        else:
            pieces = [torch.from_numpy(sound) for sound in sounds]
        return {
            "sound": pad_sequence(pieces, batch_first=True),
            "sound_lengths": torch.tensor([len(piece) for piece in pieces]),
        }

    def _patches(self, raws: Sequence[RawPieces]) -> tuple[torch.Tensor, torch.Tensor]:
        patches, grids = zip(*(self.features.patches(raw.frames, raw.pairs) for raw in raws if raw.frames is not None))
        return torch.cat(patches), torch.cat(grids)


def _request(tail: OpenTail) -> PieceRequest:
    parts = _tail_parts(tail.layout)
    steps = {part.num_steps for _, part in parts if part.kind == "audio"}
    pairs = {part.frames for _, part in parts if part.kind == "video"}
    return PieceRequest(tail.block, tuple(sorted(steps)), tuple(sorted(pairs)))


def _tail_parts(layout: StreamLayout) -> list[tuple[int, Part]]:
    """The runs of tokens that belong to the anchors' own block, each with its first row in the sequence."""
    found, row = [], 0
    for part in layout.parts:
        if part.kind in ("audio", "video") and part.block == 0:
            found.append((row, part))
        row += part.length
    return found


def _moves(
    tails: Sequence[OpenTail], requests: Sequence[PieceRequest], *, kind: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of the towers' output, all pieces behind each other, and rows of the batch, both int64 [tokens]."""
    sources, destinations, start = [], [], 0
    for tail, request in zip(tails, requests):
        parts = [(row, part) for row, part in _tail_parts(tail.layout) if part.kind == kind]
        lengths = {_key(part): part.length for _, part in parts}
        first = {}
        for key in request.steps if kind == "audio" else request.pairs:
            first[key] = start
            start += lengths[key]
        for row, part in parts:
            tokens = torch.arange(part.length)
            sources.append(tokens + first[_key(part)])
            destinations.append(tokens + tail.first_row + row)
    return torch.cat(sources), torch.cat(destinations)


def _key(part: Part) -> int | tuple[int, int]:
    return part.num_steps if part.kind == "audio" else part.frames
