"""The online tail, second half: the towers beside the training process, and batches made ahead in a thread.

History comes from the cache, the tail from the media. A cache may leave its tails out then, which makes it a third of
the size, and what is trained on is what a live stream would see, made by the same functions.
"""

from __future__ import annotations

import dataclasses
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from swift.utils import get_logger

from swift_plugin.cache.encode import log_mels
from swift_plugin.cache.manifest import Manifest
from swift_plugin.cache.media import open_media
from swift_plugin.cache.towers import PieceEncoder
from swift_plugin.config import TurnOptions
from swift_plugin.errors import InputError
from swift_plugin.task.compat import weights_stay_whole
from swift_plugin.task.tail_inputs import TAIL, TailInputs


WAITING_WORTH_A_WARNING = 0.1  # share of the time

logger = get_logger()


@dataclass
class TailTimes:
    """What the training loop has seen of its tails.

    Attributes:
        batches: batches whose tails were filled in.
        waited: seconds in which training stood still for them.
        queued: sum over the batches of how many lay ready when one was asked for.
    """

    batches: int = 0
    waited: float = 0.0
    queued: int = 0

    def since(self, earlier: TailTimes) -> TailTimes:
        return TailTimes(self.batches - earlier.batches, self.waited - earlier.waited, self.queued - earlier.queued)

    @property
    def queue_depth(self) -> float:
        return self.queued / max(self.batches, 1)


class OnlineTail:
    """The towers and the media of a run.

    Args:
        manifests: of all its sessions, by resolved path.
        model_dir: the checkpoint that they were cached with.
        options: of the plug-in.
        device: of training.
        local_rank: chooses among several `tail_device`.

    Raises:
        InputError: media that are not there; fewer devices than ranks.
    """

    def __init__(
        self,
        manifests: Mapping[Path, Manifest],
        model_dir: Path,
        options: TurnOptions,
        *,
        device: torch.device,
        local_rank: int = 0,
    ) -> None:
        first = next(iter(manifests.values()))
        padding = options.audio_right_padding_samples
        self._training_device = device
        self._depth = options.prefetch_depth
        self.device = _device_of_rank(options.tail_device, local_rank) or device
        with weights_stay_whole():
            self._encoder = PieceEncoder(
                model_dir,
                dtype=getattr(torch, first.dtype),
                device=self.device,
                video_min_pixels=first.video_min_pixels,
                video_max_pixels=first.video_max_pixels,
                audio_feature_device=options.audio_feature_device,
                audio_right_padding_samples=None if padding < 0 else padding,
            )
        with ExitStack() as opened:
            sessions = {
                path: opened.enter_context(open_media(path, manifest, decoder=options.decoder))
                for path, manifest in manifests.items()
            }
            self._sessions = opened.pop_all()
        self.inputs = TailInputs(sessions, self._encoder.features)
        self.times, self._reported = TailTimes(), TailTimes()
        self._producer: _Producer | None = None

    def fill(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Put the tails' embeddings into `inputs_embeds` of a batch, in place."""
        tail = batch.pop(TAIL)
        audio = torch.cat(self._encoder.encode_mels(self._log_mels(tail)))
        self._move(audio, tail["audio_from"], batch["inputs_embeds"], tail["audio_to"])
        if "patches" in tail:
            video = torch.cat(self._encoder.encode_patches(tail["patches"], tail["grids"]))
            self._move(video, tail["video_from"], batch["inputs_embeds"], tail["video_to"])
        return batch

    def fill_now(self, batch: dict[str, Any]) -> dict[str, Any]:
        """`fill` in the training loop, which waits for it."""
        started = time.monotonic()
        batch = self.fill(batch)
        self.times.batches += 1
        self.times.waited += time.monotonic() - started
        return batch

    def ahead(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The same batches, filled in by a thread that works ahead; as they are where `prefetch_depth` is 0.

        The thread goes on from one call to the next with the same `batches`.
        """
        if self._depth == 0:
            return batches
        if self._producer is None or self._producer.batches is not batches:
            self.stop()
            self._producer = _Producer(batches, self.fill, self._depth, self._training_device, self.times)
        return self._producer

    def report(self, *, seconds: float) -> dict[str, float]:
        """What the log says of the time since the last report, and a warning where training waited for its tails.

        Args:
            seconds: length of that time.
        """
        recent = self.times.since(self._reported)
        self._reported = dataclasses.replace(self.times)
        share = recent.waited / seconds if seconds else 0.0
        if share > WAITING_WORTH_A_WARNING:
            remedy = "more --dataloader_num_workers, a turn_tail_device of its own, or a cache with tails"
            logger.warning(f"online tail: slower than training, which stood still for {share:.0%} of the time; try {remedy}")
        return {
            "tail_batches": recent.batches,
            "tail_wait_seconds": round(recent.waited, 3),
            "tail_queue_depth": round(recent.queue_depth, 2),
        }

    def summary(self) -> dict[str, Any]:
        """The same over the whole run, for `train_summary.json`."""
        return {
            "device": str(self.device),
            "prefetch_depth": self._depth,
            "batches": self.times.batches,
            "wait_seconds": self.times.waited,
            "mean_queue_depth": self.times.queue_depth,
        }

    def stop(self) -> None:
        """End the thread, with what it has made ahead."""
        if self._producer is not None:
            self._producer.stop()
            self._producer = None

    def close(self) -> None:
        self.stop()
        self._sessions.close()

    def _log_mels(self, tail: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        """Each [mel bins, frames]; computed here where the workers have sent samples."""
        pieces = [piece[:length] for piece, length in zip(tail["sound"], tail["sound_lengths"].tolist())]
        if tail["sound"].ndim == 3:
            return [piece.T for piece in pieces]
        return log_mels(self._encoder.features, [piece.cpu().numpy() for piece in pieces])

    @staticmethod
    def _move(source: torch.Tensor, from_rows: torch.Tensor, target: torch.Tensor, to_rows: torch.Tensor) -> None:
        rows = source[from_rows.to(source.device)].to(target.device, target.dtype)
        target.view(-1, target.shape[-1])[to_rows.to(target.device)] = rows


class _Producer:
    """An iterator over filled batches. A failure of the thread, or of the batches themselves, is raised by `next`."""

    def __init__(self, batches, fill, depth: int, device: torch.device, times: TailTimes) -> None:
        self.batches = batches
        self._fill, self._device, self._times = fill, device, times
        self._ready: queue.Queue = queue.Queue(depth)
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="online tail", daemon=True)
        self._thread.start()

    def __iter__(self) -> _Producer:
        return self

    def __next__(self) -> dict[str, Any]:
        queued, started = self._ready.qsize(), time.monotonic()
        batch, error = self._ready.get()
        if error is not None:
            self._ready.put((None, error))  # asked again, the answer is the same
            raise error
        self._times.batches += 1
        self._times.queued += queued
        self._times.waited += time.monotonic() - started
        return batch

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)  # each thread begins at the first
        try:
            for batch in self.batches:
                if not self._put((self._fill(batch), None)):
                    return
            self._put((None, StopIteration()))
        except BaseException as error:  # training stops with the producer's own error
            self._put((None, error))

    def _put(self, item: tuple) -> bool:
        """Wait for room; false when nobody will ask any more."""
        while not self._stopped.is_set():
            try:
                self._ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False


def _device_of_rank(names: str | None, local_rank: int) -> torch.device | None:
    """One device for all ranks, or the rank's own of a list with commas."""
    if names is None:
        return None
    devices = [name.strip() for name in names.split(",")]
    if len(devices) > 1 and local_rank >= len(devices):
        raise InputError(f"turn_tail_device={names}: names {len(devices)} devices, rank {local_rank} has none; name one a rank")
    return torch.device(devices[local_rank if len(devices) > 1 else 0])
