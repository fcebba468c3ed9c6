"""The contract of a cache: `turn_manifest.json`, written last, checked field by field when read."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swift_plugin.errors import InputError
from swift_plugin.files import read_json, write_json
from swift_plugin.stream.anchors import Anchor, SessionBlocks, session_blocks
from swift_plugin.stream.layout import StreamShape
from swift_plugin.stream.spec import BLOCK_SECONDS, CLASS_NAMES, POSITIONS_PER_BLOCK, STEP_SECONDS, StreamSpec

SCHEMA_VERSION = 2
MANIFEST_NAME = "turn_manifest.json"

# Sessions train together only if all of these are equal.
CONTRACT_FIELDS = (
    "schema_version",
    "model_id",
    "weights_fingerprint",
    "dtype",
    "step_seconds",
    "native_block_seconds",
    "memory_seconds",
    "video_fps",
    "video_min_pixels",
    "video_max_pixels",
    "cap_pixels_per_frame",
    "positions_per_chunk",
    "hidden_size",
    "prefix_ids",
    "closure_ids",
    "class_names",
)


@dataclass(frozen=True)
class Shard:
    """One safetensors file of consecutive blocks.

    Attributes:
        file: name relative to the manifest.
        blocks: indices of the blocks it holds, ascending.
        bytes, sha256: size and checksum of the file.
    """

    file: str
    blocks: list[int]
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a cache holds and under which contract it was made. The fields are those of the file.

    `cached_spans` lists the intervals of media in seconds of the session, `grid_height` and `grid_width` the video
    tokens of one grid after merging, `prefix_ids` and `closure_ids` the text around the stream without the tokens
    that open and close it; without `tails` only what stands in a history is cached. `media` is what
    `swift_plugin.cache.media` writes and opens again.
    """

    model_id: str
    weights_fingerprint: str
    dtype: str
    memory_seconds: float
    video_fps: float | None
    video_min_pixels: int
    video_max_pixels: int
    cap_pixels_per_frame: bool
    hidden_size: int
    grid_height: int
    grid_width: int
    system: str
    question: str
    tails: bool
    prefix_ids: list[int]
    closure_ids: list[int]
    target_path: str
    target_steps: int
    label_rule: dict[str, Any] | None
    media: dict[str, Any]
    cached_spans: list[list[float]]
    cached_end_seconds: float
    library_versions: dict[str, str]
    shards: list[Shard]
    anchors: list[Anchor]
    schema_version: int = SCHEMA_VERSION
    step_seconds: float = STEP_SECONDS
    native_block_seconds: float = BLOCK_SECONDS
    positions_per_chunk: int = POSITIONS_PER_BLOCK
    class_names: list[str] = field(default_factory=lambda: list(CLASS_NAMES))

    @property
    def spec(self) -> StreamSpec:
        return StreamSpec(memory_seconds=self.memory_seconds, video_fps=self.video_fps)

    @property
    def shape(self) -> StreamShape:
        return StreamShape(
            spec=self.spec,
            grid_height=self.grid_height,
            grid_width=self.grid_width,
            prefix_text=len(self.prefix_ids),
            closure_text=len(self.closure_ids),
        )

    @property
    def blocks(self) -> SessionBlocks:
        return session_blocks([tuple(span) for span in self.cached_spans])

    def contract(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in CONTRACT_FIELDS}

    def overlaps(self, other: Manifest) -> bool:
        """Whether both were cached from the same files, and from the same time in them."""
        same_files = self.media["sources"] == other.media["sources"]
        pairs = ((mine, theirs) for mine in self.cached_spans for theirs in other.cached_spans)
        return same_files and any(max(a[0], b[0]) < min(a[1], b[1]) for a, b in pairs)

    def save(self, folder: Path) -> None:
        write_json(folder / MANIFEST_NAME, dataclasses.asdict(self))

    @classmethod
    def load(cls, path: Path) -> Manifest:
        """Read a manifest and check it.

        Raises:
            InputError: not a manifest, another schema version, a field that is missing or unknown, a shard that is
                missing or has another size.
        """
        content = read_json(path)
        if not isinstance(content, dict) or "schema_version" not in content:
            raise InputError(f"{path}: not a cache manifest; pass the turn_manifest.json that `swift-turn cache` wrote")
        if content["schema_version"] != SCHEMA_VERSION:
            raise InputError(
                f"{path}: schema_version {content['schema_version']} found, {SCHEMA_VERSION} needed; build the cache again"
            )
        names = {f.name for f in dataclasses.fields(cls)}
        if difference := sorted(names ^ content.keys()):
            raise InputError(f"{path}: fields missing or unknown: {', '.join(difference)}; build the cache again")
        manifest = cls(
            **{
                **content,
                "shards": [Shard(**shard) for shard in content["shards"]],
                "anchors": [Anchor(**anchor) for anchor in content["anchors"]],
            }
        )
        for shard in manifest.shards:
            file = path.parent / shard.file
            size = file.stat().st_size if file.is_file() else None
            if size != shard.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise InputError(f"{file} {found}, {shard.bytes} bytes expected; build the cache again")
        return manifest


def check_same_contract(manifests: dict[Path, Manifest]) -> None:
    """Refuse to mix sessions of different contracts.

    Raises:
        InputError: names the field, both files and both values.
    """
    paths = list(manifests)
    first = manifests[paths[0]].contract() if paths else {}
    for path in paths[1:]:
        for name, value in manifests[path].contract().items():
            if value != first[name]:
                raise InputError(
                    f"{path}: {name} is {value!r}, but {first[name]!r} in {paths[0]}; "
                    "train only sessions that were cached with the same model and timing"
                )
