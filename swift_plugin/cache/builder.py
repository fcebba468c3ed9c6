"""Runs the frozen towers over a session, shard by shard, and goes on where it was stopped."""

from __future__ import annotations

import importlib.metadata
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file

from swift_plugin.cache.conversation import Conversation
from swift_plugin.cache.encode import PieceRequest, encode_pieces, piece_inputs, read_pieces
from swift_plugin.cache.manifest import MANIFEST_NAME, Manifest, Shard
from swift_plugin.cache.media import media_record
from swift_plugin.cache.pieces import BlockPieces, audio_rows, row_count, video_rows
from swift_plugin.cache.pipeline import prepare_ahead
from swift_plugin.cache.reader import TEXT_NAME
from swift_plugin.cache.towers import PieceEncoder
from swift_plugin.errors import InputError
from swift_plugin.files import read_json, sha256, write_atomically, write_json
from swift_plugin.media.session import Session
from swift_plugin.stream.anchors import SessionBlocks, list_anchors, session_blocks
from swift_plugin.stream.spec import STEP_SECONDS, StreamSpec

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
        tails: cache every tail; otherwise only what stands in a history, for training with an online tail.
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
    tails: bool
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
    num_workers: int = 4,
    on_start: Callable[[int, int], None] = lambda blocks, size: None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Manifest:
    """Build the cache of one session.

    Media are read in one thread, their features computed in others and shards written in a last one, while the
    towers run in this one.

    Args:
        folder: made where needed. Shards of an earlier run with the same plan are kept.
        session: its media.
        encoder: its dtype is that of the cache.
        conversation: the tokens around the stream.
        contract: see `CacheContract`.
        spans: intervals of the session to cache, in seconds; all of its media by default.
        batch_blocks: blocks that go through the towers together.
        num_workers: threads that compute log-mels and patches.
        on_start: called once with the number of blocks and the bytes that they will take.
        on_progress: called with the blocks done and their total.

    Raises:
        InputError: an unfinished cache with another plan lies in `folder`; the disk is too small.
    """
    spans = [list(span) for span in (session.spans if spans is None else spans)]
    blocks = session_blocks(spans)
    if not blocks.steps:
        raise InputError(f"{session.sources[0]}: shorter than one step of {STEP_SECONDS} s; record a longer session")
    grid_height, grid_width = _grid_size(session, spans[0][0], encoder, contract.spec)
    plan = _plan(contract, encoder, session, spans, (grid_height, grid_width), folder)
    folder.mkdir(parents=True, exist_ok=True)
    requests = {
        block: PieceRequest.cached(block, steps, contract.spec, tails=contract.tails)
        for block, steps in blocks.steps.items()
    }
    chunks = list(_chunks(sorted(requests), BLOCKS_PER_SHARD))
    paths = [folder / f"shard-{number:05d}.safetensors" for number in range(len(chunks))]
    size = cache_bytes(plan, blocks)
    _start_or_continue(folder, plan)
    _check_room(folder, size - sum(path.stat().st_size for path in paths if path.is_file()))
    on_start(len(requests), size)

    shards = [_write_text(folder, encoder, conversation)]
    missing = {path for path in paths if not path.is_file()}
    batches = [
        [requests[block] for block in batch]
        for members, path in zip(chunks, paths)
        if path in missing
        for batch in _chunks(members, batch_blocks)
    ]
    prepared = prepare_ahead(
        batches,
        lambda batch: read_pieces(session, contract.spec, batch),
        lambda raw: piece_inputs(encoder.features, raw),
        num_workers=num_workers,
    )
    written: list[Future] = []
    with closing(prepared), ThreadPoolExecutor(1) as writer:
        for done, (members, path) in enumerate(zip(chunks, paths)):
            tensors = _encode_shard(encoder, prepared, len(members)) if path in missing else None
            if written:
                written[-1].result()  # one shard waits at most, and a full disk stops the work here
            written.append(writer.submit(_finish_shard, path, members, tensors))
            on_progress(min((done + 1) * BLOCKS_PER_SHARD, len(requests)), len(requests))
        shards += [shard.result() for shard in written]

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


def cache_bytes(plan: dict[str, Any], blocks: SessionBlocks) -> int:
    """Bytes of the embeddings, from fields of the manifest."""
    spec = StreamSpec(memory_seconds=plan["memory_seconds"], video_fps=plan["video_fps"])
    grid = plan["grid_height"] * plan["grid_width"]
    rows = sum(
        row_count(audio_rows(steps, tails=plan["tails"])) + row_count(video_rows(spec, steps, grid, tails=plan["tails"]))
        for steps in blocks.steps.values()
    )
    return rows * plan["hidden_size"] * getattr(torch, plan["dtype"]).itemsize


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
    contract: CacheContract,
    encoder: PieceEncoder,
    session: Session,
    spans: list[list[float]],
    grid: tuple[int, int],
    folder: Path,
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
        "cap_pixels_per_frame": bool(encoder.features.video_kwargs.get("cap_pixels_per_frame", False)),
        "hidden_size": encoder.hidden_size,
        "grid_height": grid[0],
        "grid_width": grid[1],
        "system": contract.system,
        "question": contract.question,
        "tails": contract.tails,
        "target_path": contract.target_path,
        "target_steps": contract.target_steps,
        "label_rule": contract.label_rule,
        "media": media_record(session, folder),
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
    _, grids = encoder.features.patches(frame, np.array([[0, 0]]))
    return encoder.merged_grid(grids)


def _write_text(folder: Path, encoder: PieceEncoder, conversation: Conversation) -> Shard:
    prefix = encoder.encode_tokens([*conversation.prefix_ids, *conversation.opening_ids])
    closure = encoder.encode_tokens([*conversation.closing_ids, *conversation.closure_ids])
    path = folder / TEXT_NAME
    tensors = {"prefix": prefix.cpu().contiguous(), "closure": closure.cpu().contiguous()}
    write_atomically(path, lambda partial: save_file(tensors, partial))
    return Shard(file=path.name, blocks=[], bytes=path.stat().st_size, sha256=sha256(path))


def _encode_shard(encoder: PieceEncoder, prepared: Iterator, num_blocks: int) -> dict[str, torch.Tensor]:
    """The tensors of one shard, rows in the order of `audio_rows` and `video_rows`, block after block."""
    blocks: list[BlockPieces] = []
    while len(blocks) < num_blocks:
        requests, inputs = next(prepared)
        pieces = encode_pieces(encoder, inputs, requests)
        blocks += [BlockPieces(_on_cpu(own.audio), _on_cpu(own.video)) for own in pieces]
    empty = torch.empty(0, encoder.hidden_size, dtype=encoder.towers.dtype)
    audio = [piece for own in blocks for piece in own.audio.values()]
    video = [piece for own in blocks for piece in own.video.values()]
    tensors = {"audio": torch.cat([empty, *audio])}
    return {**tensors, "video": torch.cat(video)} if video else tensors


def _on_cpu(pieces: dict[Any, torch.Tensor]) -> dict[Any, torch.Tensor]:
    """One copy for all of them."""
    if not pieces:
        return {}
    rows = torch.cat(list(pieces.values())).cpu()
    return dict(zip(pieces, rows.split([len(piece) for piece in pieces.values()])))


def _finish_shard(path: Path, members: list[int], tensors: dict[str, torch.Tensor] | None) -> Shard:
    """Write a shard, or take the one that an earlier run has written, where there are no tensors."""
    if tensors is not None:
        write_atomically(path, lambda partial: save_file(tensors, partial))
    return Shard(file=path.name, blocks=members, bytes=path.stat().st_size, sha256=sha256(path))


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if size > free:
        raise InputError(
            f"{folder}: the cache takes {size / 2**30:.1f} GiB more, but {free / 2**30:.1f} GiB are free; "
            "choose another --output, a shorter part or fewer pixels"
        )


def _chunks(items: Sequence[int], size: int) -> Iterator[list[int]]:
    for start in range(0, len(items), size):
        yield list(items[start : start + size])
