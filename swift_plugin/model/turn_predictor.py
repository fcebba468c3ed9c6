"""The model that is trained: the Thinker's language model on ready embeddings, and the turn head on its readouts."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import AutoConfig
from transformers.models.qwen2_5_omni.modeling_qwen2_5_omni import (
    Qwen2_5OmniPreTrainedModel,
    Qwen2_5OmniThinkerTextModel,
)
from transformers.utils import ModelOutput

from swift_plugin.errors import InputError
from swift_plugin.model.head import TurnHead, TurnHeadConfig
from swift_plugin.model.layers import FusedLayers, NativeLayers
from swift_plugin.model.masks import MaskCache
from swift_plugin.model.readout_layer import readout_layer
from swift_plugin.model.rotary import rotary_embeddings


@dataclass
class TurnPredictorOutput(ModelOutput):
    """
    Attributes:
        logits: float32 [N, 10, 3], one row an anchor, in the order of the readouts.
        transition_logits: float32 [N, 10] with the transition auxiliary.
    """

    logits: torch.Tensor | None = None
    transition_logits: torch.Tensor | None = None


class TurnPredictor(Qwen2_5OmniPreTrainedModel):
    """Language model and head. The towers, the token table, the talker are never built.

    The language model stands at `model`, as in the native Thinker, so that an adapter trained here also loads there.
    The head stands at `turn_head`; a model that was just loaded has none until `attach_head`.
    """

    _keys_to_ignore_on_load_unexpected = [
        r"^talker\.", r"^token2wav\.", r"^thinker\.", r"audio_tower\.", r"visual\.", r"embed_tokens\.", r"lm_head\.",
    ]
    _supports_flex_attn = True
    _no_split_modules = ["Qwen2_5OmniDecoderLayer"]

    def __init__(self, config) -> None:
        super().__init__(config)
        if set(config.layer_types) != {"full_attention"}:
            raise InputError(
                f"layer types {sorted(set(config.layer_types))} found; the language model must use full attention only"
            )
        self.model = Qwen2_5OmniThinkerTextModel._from_config(_without_token_table(config))
        self.model.embed_tokens = None
        self.turn_head: TurnHead | None = None
        self.freeze_thinker = False
        self.run_layer = NativeLayers()
        self._masks = MaskCache()
        self.post_init()

    @classmethod
    def load(cls, model_dir: Path, **kwargs) -> TurnPredictor:
        """Read the language model's weights of a Qwen2.5-Omni checkpoint; no other weight is read.

        Args:
            model_dir: folder in the layout of `Qwen2_5OmniForConditionalGeneration`.
            kwargs: for `from_pretrained`: dtype, device_map, attn_implementation, …
        """
        config = AutoConfig.from_pretrained(model_dir)
        if not hasattr(config, "thinker_config"):
            raise InputError(f"{model_dir}: model_type {config.model_type} found; pass a Qwen2.5-Omni checkpoint")
        return cls.from_pretrained(
            model_dir, config=config.thinker_config.text_config, key_mapping={r"^thinker\.model\.": "model."}, **kwargs
        )

    def set_attention(self, implementation: str) -> None:
        """Choose the attention after loading: transformers declares no flex attention for this class, which runs it."""
        self.config._attn_implementation = self.model.config._attn_implementation = implementation

    def attach_head(self, config: TurnHeadConfig) -> None:
        """Give the model a new head, on the device of the language model, in float32.

        Raises:
            InputError: a head for another width, or one that reads more layers than there are.
        """
        if config.hidden_size != self.config.hidden_size:
            raise InputError(
                f"the head has hidden_size {config.hidden_size}, the language model {self.config.hidden_size}; "
                "use a head that was trained on this model"
            )
        if config.num_input_layers > len(self.model.layers):
            raise InputError(
                f"num_input_layers={config.num_input_layers}, but the language model has {len(self.model.layers)} layers"
            )
        self.turn_head = TurnHead(config).to(self.model.norm.weight.device)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        document: torch.Tensor,
        branch: torch.Tensor,
        readout_rows: torch.Tensor,
        readout_indices: torch.Tensor,
        arrangement: str,
    ) -> TurnPredictorOutput:
        """
        Args:
            inputs_embeds: [B, L, H]; cast to the type of the language model.
            position_ids: TMRoPE positions, int64 [3, B, L].
            document, branch: see `swift_plugin.stream.masks`, int [B, L].
            readout_rows, readout_indices: row and place of each anchor's readout token, int64 [N], rows ascending.
            arrangement: names what the attention mask depends on, see `swift_plugin.stream.masks.arrangement`.
        """
        sequences = (inputs_embeds.to(self.dtype), position_ids, document, branch, readout_rows, readout_indices, arrangement)
        if self.freeze_thinker:
            with torch.no_grad():
                states = self.read(*sequences)
        else:
            states = self.read(*sequences)
        output = self.turn_head(states)
        return TurnPredictorOutput(logits=output.logits, transition_logits=output.transition_logits)

    def read(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        document: torch.Tensor,
        branch: torch.Tensor,
        readout_rows: torch.Tensor,
        readout_indices: torch.Tensor,
        arrangement: str,
    ) -> torch.Tensor:
        """Hidden states of the readout tokens after each of the last layers that the head reads, [N, layers, H].

        Each is passed through the model's final norm; the last one is `last_hidden_state` of the native text model.
        """
        language_model = self.model
        if self.training and language_model.gradient_checkpointing:
            # Reentrant checkpointing drops the gradient of everything inside unless an input asks for one, and the
            # embeddings here are no model's output (huggingface/peft#1142).
            inputs_embeds = inputs_embeds.requires_grad_()
        mask = self._masks.get(
            self.config._attn_implementation, document, branch, arrangement=arrangement, dtype=inputs_embeds.dtype
        )
        rotary = rotary_embeddings(language_model.rotary_emb, inputs_embeds, position_ids)
        first_read = len(language_model.layers) - self.turn_head.config.num_input_layers
        hidden_states, readouts = inputs_embeds, []
        self.run_layer.start(language_model, hidden_states)
        for index, layer in enumerate(language_model.layers[:-1]):
            hidden_states = self.run_layer(index, layer, hidden_states, rotary, mask)
            if index >= first_read:
                readouts.append(hidden_states[readout_rows, readout_indices])  # [N, H]
        _, cos, sin = rotary
        last = language_model.layers[-1]
        readouts.append(readout_layer(last, hidden_states, cos, sin, document, branch, readout_rows, readout_indices))
        return language_model.norm(torch.stack(readouts, dim=1))  # [N, layers, H]

    def fuse_layers(self, *, compile: bool) -> str | None:
        """Run the decoder layers fused from now on, where that gives the same; else return the reason why not."""
        from swift_plugin.model.fused.layer import why_not_fused

        reason = why_not_fused(self.model.layers)
        if reason is None:
            self.run_layer = FusedLayers(compile=compile)
        return reason

    def train(self, mode: bool = True) -> TurnPredictor:
        """Set the mode; what is frozen stays in evaluation mode, so that nothing in it is dropped."""
        super().train(mode)
        if self.freeze_thinker:
            self.model.eval()
        if self.turn_head is not None and not any(p.requires_grad for p in self.turn_head.parameters()):
            self.turn_head.eval()
        return self

    def get_input_embeddings(self) -> nn.Module | None:
        return None

    def enable_input_require_grads(self) -> None:
        """Nothing to do: `read` asks for the gradient of the embeddings itself."""

    def disable_input_require_grads(self) -> None:
        """The counterpart of `enable_input_require_grads`."""


def _without_token_table(config):
    """A copy of the configuration whose token table is as small as it can be; it is taken out anyway."""
    small = copy.deepcopy(config)
    small.vocab_size, small.pad_token_id = 1, None
    return small
