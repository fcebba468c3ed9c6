"""The frozen towers and the token table of a Qwen2.5-Omni checkpoint, and nothing else of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from transformers import AutoConfig, AutoProcessor, Qwen2_5OmniThinkerForConditionalGeneration
from transformers.utils import logging

from swift_plugin.errors import InputError
from swift_plugin.stream.spec import MEL_HOP_SAMPLES, SAMPLE_RATE, SAMPLES_PER_STEP

# The last mel frame of a piece reaches 40 samples beyond it, and two more frames take part in the clip's maximum.
# With three hops of zeros every frame of the piece equals that of the native padding to 300 s.
DEFAULT_RIGHT_PADDING = 3 * MEL_HOP_SAMPLES


class ThinkerTowers(Qwen2_5OmniThinkerForConditionalGeneration):
    """The native Thinker without decoder layers and output layer: its towers, its token table, its own methods."""

    _keys_to_ignore_on_load_unexpected = [r"^talker\.", r"^token2wav\.", r"model\.layers\.", r"model\.norm\.", "lm_head"]
    _tied_weights_keys = {}

    def __init__(self, config) -> None:
        config = copy.deepcopy(config)
        config.text_config.num_hidden_layers = 0
        config.text_config.layer_types = []
        super().__init__(config)
        self.model.norm = None
        self.lm_head = None

    @classmethod
    def load(cls, model_dir: Path, *, dtype: torch.dtype, device: str | torch.device) -> ThinkerTowers:
        """Read the towers' weights of a checkpoint; the weights of the other parts are never read."""
        config = AutoConfig.from_pretrained(model_dir)
        if not hasattr(config, "thinker_config"):
            raise InputError(f"{model_dir}: model_type {config.model_type} found; pass a Qwen2.5-Omni checkpoint")
        towers = cls.from_pretrained(
            model_dir, config=config.thinker_config, dtype=dtype, key_mapping={r"^thinker\.": ""}, device_map=device
        )
        return towers.requires_grad_(False).eval()


class PieceEncoder:
    """Embeddings of sound, frames and tokens, as the model itself makes them.

    The builder of the cache, the online tail and the live predictor all call this.

    Args:
        model_dir: a Qwen2.5-Omni checkpoint folder.
        video_min_pixels, video_max_pixels: bounds of a frame's size after resizing.
        dtype, device: where and how the towers run.
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
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
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
        self.towers = ThinkerTowers.load(model_dir, dtype=dtype, device=device)
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

    @property
    def hidden_size(self) -> int:
        return self.towers.config.text_config.hidden_size

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

    @torch.no_grad()
    def encode_sound(self, sounds: Sequence[np.ndarray]) -> torch.Tensor:
        """Audio tokens of pieces of equal length.

        Args:
            sounds: as for `log_mel`.

        Returns:
            [number of pieces, 5 * steps, H] on the towers' device.
        """
        features = self.log_mel(sounds).to(self.towers.device)
        mask = torch.ones(features.shape[0], features.shape[2], dtype=torch.long, device=features.device)
        embeddings = self.towers.get_audio_features(features, feature_attention_mask=mask).last_hidden_state
        return embeddings.view(len(sounds), -1, embeddings.shape[-1])

    @torch.no_grad()
    def encode_frames(self, pairs: np.ndarray) -> tuple[torch.Tensor, int, int]:
        """Video tokens of pairs of frames.

        Args:
            pairs: uint8 RGB [number of pairs, 2, height, width, 3].

        Returns:
            Embeddings [number of pairs, grid_height * grid_width, H] on the towers' device, and the size of the grid
            after merging. The vision tower attends within a temporal grid only, so a pair's tokens do not depend on
            the other pairs.
        """
        videos = list(torch.from_numpy(pairs).permute(0, 1, 4, 2, 3))
        inputs = self.processor.video_processor(videos=videos, **self.video_kwargs).to(self.towers.device)
        grids = inputs["video_grid_thw"]
        output = self.towers.get_video_features(inputs["pixel_values_videos"], video_grid_thw=grids)
        merge = self.towers.visual.spatial_merge_size
        _, height, width = grids[0].tolist()
        return torch.stack(tuple(output.pooler_output)), height // merge, width // merge

    @torch.no_grad()
    def encode_tokens(self, ids: Sequence[int]) -> torch.Tensor:
        """Rows of the token table, [len(ids), H]."""
        table = self.towers.get_input_embeddings()
        return table(torch.tensor(ids, dtype=torch.long, device=table.weight.device))
