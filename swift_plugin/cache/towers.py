"""The frozen towers and the token table of a Qwen2.5-Omni checkpoint, and nothing else of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoConfig, Qwen2_5OmniThinkerForConditionalGeneration

from swift_plugin.cache.features import PieceFeatures
from swift_plugin.cache.segment_attention import attend_within_segments
from swift_plugin.errors import InputError


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
        attend_within_segments(towers)
        return towers.requires_grad_(False).eval()


class PieceEncoder:
    """Embeddings of sound, frames and tokens, as the model itself makes them.

    The builder of the cache, the online tail and the live predictor all call this.

    Args:
        model_dir: a Qwen2.5-Omni checkpoint folder.
        dtype, device: where and how the towers run.
        features: see `PieceFeatures`.
    """

    def __init__(
        self, model_dir: Path, *, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu", **features
    ) -> None:
        self.features = PieceFeatures(model_dir, **features)
        self.towers = ThinkerTowers.load(model_dir, dtype=dtype, device=device)

    @property
    def hidden_size(self) -> int:
        return self.towers.config.text_config.hidden_size

    @torch.no_grad()
    def encode_mels(self, mels: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Audio tokens of pieces, which may differ in length.

        Args:
            mels: log-mels from `PieceFeatures.log_mel`, each [mel bins, 20 * steps].

        Returns:
            For each piece [5 * steps, H] on the towers' device.
        """
        lengths = torch.tensor([mel.shape[1] for mel in mels])
        padded = pad_sequence([mel.T for mel in mels], batch_first=True).transpose(1, 2)  # [n, mel bins, longest]
        mask = torch.arange(padded.shape[2]) < lengths[:, None]
        output = self.towers.get_audio_features(
            padded.to(self.towers.device), feature_attention_mask=mask.long().to(self.towers.device)
        )
        _, tokens = self.towers.audio_tower._get_feat_extract_output_lengths(lengths)
        return list(output.last_hidden_state.split(tokens.tolist()))

    @torch.no_grad()
    def encode_patches(self, patches: torch.Tensor, grids: torch.Tensor) -> list[torch.Tensor]:
        """Video tokens of pairs of frames.

        Args:
            patches, grids: from `PieceFeatures.patches`.

        Returns:
            For each pair [tokens per grid, H] on the towers' device. The vision tower attends within a temporal
            grid only, so a pair's tokens do not depend on the other pairs.
        """
        device = self.towers.device
        output = self.towers.get_video_features(patches.to(device), video_grid_thw=grids.to(device))
        return list(output.pooler_output)

    def merged_grid(self, grids: torch.Tensor) -> tuple[int, int]:
        """Video tokens of one grid in each direction, from `PieceFeatures.patches`."""
        merge = self.towers.visual.spatial_merge_size
        _, height, width = grids[0].tolist()
        return height // merge, width // merge

    @torch.no_grad()
    def encode_tokens(self, ids: Sequence[int]) -> torch.Tensor:
        """Rows of the token table, [len(ids), H]."""
        table = self.towers.get_input_embeddings()
        return table(torch.tensor(ids, dtype=torch.long, device=table.weight.device))
