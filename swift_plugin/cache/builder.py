"""Runs the frozen towers over a session, shard by shard, and goes on where it was stopped."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from swift_plugin.cache.conversation import Conversation
from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest, Shard
from swift_plugin.cache.pieces import audio_rows, video_rows
from swift_plugin.cache.reader import TEXT_NAME
from swift_plugin.cache.towers import PieceEncoder
from swift_plugin.errors import InputError
from swift_plugin.files import read_json, sha256, write_atomically, write_json
from swift_plugin.media.session import Session
from swift_plugin.stream.anchors import SessionBlocks, list_anchors, session_blocks
from swift_plugin.stream.spec import BLOCK_SECONDS, SAMPLES_PER_STEP, STEP_SECONDS, StreamSpec

PLAN_NAME = "build_plan.json"  # what an unfinished cache was started with; gone when it is finished
BLOCKS_PER_SHARD = 32


@dataclass(frozen=True, kw_only=True)
class CacheContract:
    """What is asked of a cache, besides the media.

    Attributes:
        model_id, weights_fingerprint: the checkpoint whose towers are run.
        spec: the time grid.
        video_min_pixels, video_max_pixels: bounds of a frame's size after resizing.
        system, question: the words around the stream.
        target_path: as written into the manifest, relative to it where it can be.
        target_steps: T.
        label_rule: the sidecar of the targets.
    """

    model_id: str
    weights_fingerprint: str
    spec: StreamSpec
    video_min_pixels: int
    video_max_pixels: int
    system: str
    question: str
    target_path: str
    target_steps: int
    label_rule: dict[str, Any] | None


def build_cache(
    folder: Path,
    *,
    session: Session,
    encoder: PieceEncoder,
    conversation: Conversation,
    contract: CacheContract,
    spans: Sequence[tuple[float, float]] | None = None,
    batch_blocks: int = 8,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Build the cache of one session.

    Args:
        folder: made where needed. Shards of an earlier run with the same plan are kept.
        session: its media.
        encoder: its dtype is that of the cache.
        conversation: the tokens around the stream.
        contract: see `CacheContract`.
        spans: intervals of the session to cache, in seconds; all of its media by default.
        batch_blocks: blocks that go through the towers together.
        on_progress: called with the blocks done and their total.

    Raises:
        InputError: an unfinished cache with another plan lies in `folder`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spans = [list(span) for span in (session.spans if spans is None else spans)]
    blocks = session_blocks(spans)
    if not blocks.steps:
        raise InputError(f"{session.sources[0]}: shorter than one step of {STEP_SECONDS} s; record a longer session")
    grid_height, grid_width = _grid_size(session, spans[0][0], encoder, contract.spec)
    plan = _plan(contract, encoder, session, spans, (grid_height, grid_width))
    _start_or_continue(folder, plan)

    shards = [_write_text(folder, encoder, conversation)]
    done, total = 0, len(blocks.steps)
    for number, members in enumerate(_chunks(sorted(blocks.steps), BLOCKS_PER_SHARD)):
        path = folder / f"shard-{number:05d}.safetensors"
        if not path.is_file():
            shard_tensors = _encode_blocks(session, encoder, contract.spec, blocks, members, batch_blocks)
            write_atomically(path, lambda partial, tensors=shard_tensors: save_file(tensors, partial))
        shards.append(Shard(file=path.name, blocks=members, bytes=path.stat().st_size, sha256=sha256(path)))
        done += len(members)
        on_progress(done, total)

    manifest = Manifest(
        **{name: value for name, value in plan.items() if name != "blocks_per_shard"},
        prefix_ids=conversation.prefix_ids,
        closure_ids=conversation.closure_ids,
        cached_end_seconds=max(end for _, end in spans),
        shards=shards,
        anchors=list_anchors(blocks, target_steps=contract.target_steps),
    )
    manifest.save(folder)
    (folder / PLAN_NAME).unlink()
    return manifest


def remove_cache(folder: Path) -> None:
    """Take away a cache, finished or not, and nothing else.

    Raises:
        InputError: the folder holds something that is no part of a cache.
    """
    known = {MANIFEST_NAME, PLAN_NAME, TEXT_NAME}
    strange = [p.name for p in folder.iterdir() if p.name not in known and not p.name.lstrip(".").startswith("shard-")]
    if strange:
        raise InputError(f"{folder}: holds {strange[0]}, which is no part of a cache; choose another --output")
    shutil.rmtree(folder)


def _plan(
    contract: CacheContract, encoder: PieceEncoder, session: Session, spans: list[list[float]], grid: tuple[int, int]
) -> dict[str, Any]:
    """Everything that decides the bytes of the shards, as fields of the manifest."""
    return {
        "model_id": contract.model_id,
        "weights_fingerprint": contract.weights_fingerprint,
        "dtype": str(encoder.towers.dtype).removeprefix("torch."),
        "memory_seconds": contract.spec.memory_seconds,
        "video_fps": contract.spec.video_fps,
        "video_min_pixels": contract.video_min_pixels,
        "video_max_pixels": contract.video_max_pixels,
        "cap_pixels_per_frame": bool(encoder.video_kwargs.get("cap_pixels_per_frame", False)),
        "hidden_size": encoder.hidden_size,
        "grid_height": grid[0],
        "grid_width": grid[1],
        "system": contract.system,
        "question": contract.question,
        "target_path": contract.target_path,
        "target_steps": contract.target_steps,
        "label_rule": contract.label_rule,
        "media": {"sources": [{"file": path.name, "bytes": path.stat().st_size} for path in session.sources]},
        "cached_spans": spans,
        "library_versions": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "av", "soxr")},
        "blocks_per_shard": BLOCKS_PER_SHARD,
    }


def _start_or_continue(folder: Path, plan: dict[str, Any]) -> None:
    path = folder / PLAN_NAME
    if not path.is_file():
        if any(folder.glob("shard-*")):
            raise InputError(f"{folder}: holds shards without {PLAN_NAME}; add --overwrite to build them again")
        write_json(path, plan)
        return
    before = read_json(path)
    for name, value in plan.items():
        if before.get(name) != value:
            raise InputError(
                f"{path}: an unfinished cache with {name} {before.get(name)!r} instead of {value!r}; "
                "go on with the same options, or add --overwrite"
            )


def _grid_size(session: Session, time: float, encoder: PieceEncoder, spec: StreamSpec) -> tuple[int, int]:
    """Video tokens of one grid in each direction, from the frame at `time`."""
    if spec.video_fps is None:
        return 0, 0
    frame = session.frames([time])  # [1, height, width, 3]
    _, height, width = encoder.encode_frames(np.stack([frame, frame], axis=1))
    return height, width


def _write_text(folder: Path, encoder: PieceEncoder, conversation: Conversation) -> Shard:
    prefix = encoder.encode_tokens([*conversation.prefix_ids, *conversation.opening_ids])
    closure = encoder.encode_tokens([*conversation.closing_ids, *conversation.closure_ids])
    path = folder / TEXT_NAME
    tensors = {"prefix": prefix.cpu().contiguous(), "closure": closure.cpu().contiguous()}
    write_atomically(path, lambda partial: save_file(tensors, partial))
    return Shard(file=path.name, blocks=[], bytes=path.stat().st_size, sha256=sha256(path))


def _encode_blocks(
    session: Session,
    encoder: PieceEncoder,
    spec: StreamSpec,
    blocks: SessionBlocks,
    members: Sequence[int],
    batch_blocks: int,
) -> dict[str, torch.Tensor]:
    """The tensors of one shard, rows in the order of `audio_rows` and `video_rows`, block after block."""
    audio, video = [], []
    for batch in _chunks(members, batch_blocks):
        steps = [blocks.steps[block] for block in batch]
        audio += encode_audio(session, encoder, batch, steps)
        if spec.video_fps is not None:
            video += encode_video(session, encoder, spec, batch, steps)
    tensors = {"audio": torch.cat(audio).cpu().contiguous()}
    if video:
        tensors["video"] = torch.cat(video).cpu().contiguous()
    return tensors


def encode_audio(
    session: Session, encoder: PieceEncoder, batch: Sequence[int], steps: Sequence[int]
) -> list[torch.Tensor]:
    """Each block's audio rows, [sum of its pieces' tokens, H]: one piece for each number of steps seen."""
    sounds = [
        session.sound(block * BLOCK_SECONDS, block * BLOCK_SECONDS + count * STEP_SECONDS)
        for block, count in zip(batch, steps)
    ]
    pieces: list[dict[int, torch.Tensor]] = [{} for _ in batch]
    for num_steps in range(1, max(steps) + 1):
        members = [index for index, count in enumerate(steps) if count >= num_steps]
        encoded = encoder.encode_sound([sounds[index][: num_steps * SAMPLES_PER_STEP] for index in members])
        for index, embeddings in zip(members, encoded):
            pieces[index][num_steps] = embeddings
    return [torch.cat([own[key] for key in audio_rows(count)]) for own, count in zip(pieces, steps)]


def encode_video(
    session: Session, encoder: PieceEncoder, spec: StreamSpec, batch: Sequence[int], steps: Sequence[int]
) -> list[torch.Tensor]:
    """Each block's video rows, [pairs of frames * tokens per grid, H]."""
    pairs, counts = [], []
    for block, count in zip(batch, steps):
        seen = spec.frames_seen(count)
        frames = session.frames([block * BLOCK_SECONDS + spec.frame_offset(frame) for frame in range(seen)])
        own = list(video_rows(spec, count, 1))
        pairs += [np.stack([frames[first], frames[second]]) for first, second in own]
        counts.append(len(own))
    embeddings, _, _ = encoder.encode_frames(np.stack(pairs))
    return [own.flatten(0, 1) for own in embeddings.split(counts)]


def _chunks(items: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
