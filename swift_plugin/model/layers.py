"""How a decoder layer is run: by transformers' own code, or fused and compiled."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class NativeLayers:
    """transformers' decoder layers with whatever PEFT put into them."""

    def start(self, language_model: nn.Module, hidden_states: torch.Tensor) -> None:
        """Nothing to prepare."""

    def __call__(self, index: int, layer: nn.Module, hidden_states: torch.Tensor, rotary, mask) -> torch.Tensor:
        native, _, _ = rotary
        return layer(hidden_states, attention_mask=mask, position_embeddings=native, use_cache=False)


class FusedLayers:
    """`swift_plugin.model.fused`, one compiled graph for all layers.

    Args:
        compile: compile for each length of a batch; without it the same code runs in eager mode.
    """

    def __init__(self, *, compile: bool) -> None:
        from swift_plugin.model.fused.layer import decoder_layer

        self._run = decoder_layer
        if compile:
            # Past its limit of 8 lengths dynamo would go on without compiling; the collator rounds lengths up, so
            # that there are few.
            torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
            self._run = torch.compile(decoder_layer, dynamic=False)

    def start(self, language_model: nn.Module, hidden_states: torch.Tensor) -> None:
        """Draw the seeds of all dropout masks of one forward pass."""
        from swift_plugin.model.fused.layer import SEEDS_PER_LAYER, layer_shape

        layers = language_model.layers
        self._checkpointing = language_model.training and language_model.gradient_checkpointing
        self._shape = layer_shape(layers)
        self._seeds = torch.randint(
            2**31 - 1, (len(layers), SEEDS_PER_LAYER), dtype=torch.int32, device=hidden_states.device
        )

    def __call__(self, index: int, layer: nn.Module, hidden_states: torch.Tensor, rotary, mask) -> torch.Tensor:
        from swift_plugin.model.fused.layer import layer_weights

        _, cos, sin = rotary
        seeds, shape = self._seeds[index], self._shape

        def run(states: torch.Tensor) -> torch.Tensor:
            return self._run(states, cos, sin, mask, seeds, layer_weights(layer), shape)

        if self._checkpointing and hidden_states.requires_grad:
            return checkpoint(run, hidden_states, use_reentrant=False)
        return run(hidden_states)
