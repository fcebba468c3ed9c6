"""What stands before the towers: log-mel of sound and patches of frames, as the checkpoint's own processor makes them.

No weights are needed for it, so worker processes do it beside the towers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoProcessor

from swift_plugin.errors import InputError
from swift_plugin.stream.spec import FRAMES_PER_GRID, MEL_HOP_SAMPLES, SAMPLE_RATE, SAMPLES_PER_STEP

# The last mel frame of a piece reaches 40 samples beyond it, and two more frames take part in the clip's maximum.
# With three hops of zeros every frame of the piece equals that of the native padding to 300 s.
DEFAULT_RIGHT_PADDING = 3 * MEL_HOP_SAMPLES


class PieceFeatures:
    """Inputs of the towers.

    Args:
        model_dir: a Qwen2.5-Omni checkpoint folder.
        video_min_pixels, video_max_pixels: bounds of a frame's size after resizing.
        audio_feature_device: where the log-mel is computed.
        audio_right_padding_samples: zeros behind each piece of sound before the log-mel, whole hops of 160 samples;
            `None` pads to the native 300 s. See `DEFAULT_RIGHT_PADDING`.

    Raises:
        InputError: a padding that is not a whole number of hops.
    """

    def __init__(
        self,
        model_dir: Path,
        *,
        video_min_pixels: int,
        video_max_pixels: int,
        audio_feature_device: str = "cpu",
        audio_right_padding_samples: int | None = DEFAULT_RIGHT_PADDING,
    ) -> None:
        if audio_right_padding_samples is not None and (
            audio_right_padding_samples < 0 or audio_right_padding_samples % MEL_HOP_SAMPLES
        ):
            raise InputError(
                f"audio_right_padding_samples={audio_right_padding_samples} is not a whole number of mel hops; "
                f"use a multiple of {MEL_HOP_SAMPLES}"
            )
        self.processor = AutoProcessor.from_pretrained(model_dir)
        self.audio_feature_device = audio_feature_device
        self.audio_right_padding_samples = audio_right_padding_samples
        self.video_kwargs = {
            "size": {"shortest_edge": video_min_pixels, "longest_edge": video_max_pixels},
            "do_sample_frames": False,
            "return_tensors": "pt",
        }
        # transformers 5.18 warns unless one behaviour is chosen, and changes its default in 5.22. Pieces are encoded
        # two frames at a time, where the cap could never bind: it is off.
        if "cap_pixels_per_frame" in self.processor.video_processor.valid_kwargs.__annotations__:
            self.video_kwargs["cap_pixels_per_frame"] = False

    def log_mel(self, sounds: Sequence[np.ndarray]) -> torch.Tensor:
        """Log-mel of pieces of equal length, each clamped to its own maximum.

        Args:
            sounds: float32 mono at 16 kHz, each [3200 * steps].

        Returns:
            float32 [number of pieces, mel bins, 20 * steps].
        """
        num_samples = len(sounds[0])
        if any(len(sound) != num_samples for sound in sounds) or num_samples % SAMPLES_PER_STEP:
            raise ValueError(f"pieces must be equally long, whole steps of {SAMPLES_PER_STEP} samples")
        padding = self.audio_right_padding_samples
        if padding is not None:
            sounds = [np.pad(sound, (0, padding)) for sound in sounds]
        features = self.processor.feature_extractor(
            list(sounds),
            sampling_rate=SAMPLE_RATE,
            padding="max_length" if padding is None else "longest",
            truncation=False,
            device=self.audio_feature_device,
            return_tensors="pt",
        )["input_features"]
        return features[:, :, : num_samples // MEL_HOP_SAMPLES]

    def patches(self, frames: np.ndarray, pairs: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches of pairs of frames. Each frame is resized once, however many pairs it stands in.

        Args:
            frames: uint8 RGB [n, height, width, 3].
            pairs: rows of `frames`, int [number of pairs, 2].

        Returns:
            `pixel_values_videos`, float32 [number of pairs * patches, values of a patch], and `video_grid_thw`, int64
            [number of pairs, 3], before merging.
        """
        stills = list(torch.from_numpy(frames).permute(0, 3, 1, 2)[:, None])  # films of one frame, which is doubled
        inputs = self.processor.video_processor(videos=stills, **self.video_kwargs)
        values = inputs["pixel_values_videos"]  # [n * patches, channels * 2 * height * width of a patch]
        channels, size = frames.shape[3], self.processor.video_processor.patch_size
        values = values.view(len(frames), -1, channels, FRAMES_PER_GRID, size * size)
        first, second = (values[pairs[:, n], :, :, n] for n in range(FRAMES_PER_GRID))
        paired = torch.stack([first, second], dim=3)  # [pairs, patches, channels, 2, height * width]
        return paired.flatten(2).flatten(0, 1), inputs["video_grid_thw"][:1].expand(len(pairs), 3)
