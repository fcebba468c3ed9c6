"""A made-up session for tests: sound and frames that change all the time, and targets that can be learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from swift_plugin.cache.builder import CacheContract, build_cache
from swift_plugin.cache.conversation import DEFAULT_QUESTION, DEFAULT_SYSTEM, tokenize_conversation
from swift_plugin.cache.fingerprint import weights_fingerprint
from swift_plugin.cache.manifest import MANIFEST_NAME
from swift_plugin.cache.towers import PieceEncoder
from swift_plugin.labels.rule import LabelRule
from swift_plugin.labels.store import save_targets
from swift_plugin.stream.spec import SAMPLE_RATE, StreamSpec

MIN_PIXELS, MAX_PIXELS = 4 * 28 * 28, 6 * 28 * 28


class MadeUpSession:
    """Tones whose pitch follows the targets, and noise as film; stands in for `swift_plugin.media.Session`."""

    has_film = True
    picture_size = (60, 80)
    opening: dict = {}

    def __init__(self, source: Path, spans: Sequence[tuple[float, float]], *, seed: int = 0) -> None:
        self.sources = [source]
        self.spans = list(spans)
        self.seed = seed

    def sound(self, start: float, end: float) -> np.ndarray:
        samples = np.arange(round(start * SAMPLE_RATE), round(end * SAMPLE_RATE))
        noise = np.sin(samples * (0.7 + 0.1 * self.seed)) * np.sin(samples * 0.0137)
        pitch = 0.02 + 0.05 * (samples // (SAMPLE_RATE * 2) % 3)
        return (0.2 * np.sin(samples * pitch) + 0.02 * noise).astype(np.float32)

    def frames(self, times: Sequence[float]) -> np.ndarray:
        seeds = [[self.seed, round(time * 1000)] for time in times]
        return np.stack([np.random.default_rng(s).integers(0, 255, (*self.picture_size, 3), np.uint8) for s in seeds])


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """‖ours − theirs‖ / ‖theirs‖ in float64."""
    return ((ours.double() - theirs.double()).norm() / theirs.double().norm()).item()


def made_up_targets(steps: int, *, seed: int = 0) -> np.ndarray:
    """One-hot targets [steps, 3] whose class changes every second, with an unknown row now and then."""
    random = np.random.default_rng(seed)
    targets = np.eye(3, dtype=np.float32)[np.repeat(random.integers(0, 3, steps // 5 + 1), 5)[:steps]]
    targets[random.random(steps) < 0.05] = np.nan
    return targets


def tiny_encoder(checkpoint: Path, **kwargs) -> PieceEncoder:
    return PieceEncoder(checkpoint, video_min_pixels=MIN_PIXELS, video_max_pixels=MAX_PIXELS, **kwargs)


def cache_arguments(
    folder: Path,
    checkpoint: Path,
    *,
    spans: Sequence[tuple[float, float]] = ((0.0, 31.0),),
    memory_seconds: float = 8,
    video_fps: float | None = 2.0,
    seed: int = 0,
    tails: bool = True,
    encoder: PieceEncoder | None = None,
) -> dict:
    """Writes targets into `folder`, and gives what `build_cache` takes for the cache beside them."""
    folder.mkdir(parents=True)
    steps = round(spans[-1][1] * 5)
    targets_path = folder / "targets.npy"
    save_targets(
        targets_path,
        made_up_targets(steps, seed=seed),
        rule=LabelRule(),
        sources=["made up"],
        source_format="csv",
        self_speaker="me",
    )
    encoder = encoder or tiny_encoder(checkpoint)
    return {
        "folder": folder / "cache",
        "session": MadeUpSession(targets_path, spans, seed=seed),
        "encoder": encoder,
        "conversation": tokenize_conversation(
            encoder.features.processor, system=DEFAULT_SYSTEM, question=DEFAULT_QUESTION, has_video=video_fps is not None
        ),
        "contract": CacheContract(
            model_id="tiny",
            weights_fingerprint=weights_fingerprint(checkpoint),
            spec=StreamSpec(memory_seconds=memory_seconds, video_fps=video_fps),
            video_min_pixels=MIN_PIXELS,
            video_max_pixels=MAX_PIXELS,
            system=DEFAULT_SYSTEM,
            question=DEFAULT_QUESTION,
            tails=tails,
            target_path="../targets.npy",
            target_steps=steps,
            label_rule=None,
        ),
    }


def make_cache(folder: Path, checkpoint: Path, **options) -> Path:
    """A finished cache with targets beside it; returns the path of its manifest."""
    arguments = cache_arguments(folder, checkpoint, **options)
    build_cache(**arguments)
    return arguments["folder"] / MANIFEST_NAME
