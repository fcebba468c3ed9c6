"""The turn head: one readout token in, ten horizons of three classes out."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from swift_plugin.errors import InputError
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS

LAYER_FUSIONS = ("mean", "concat")


@dataclass(frozen=True, kw_only=True)
class TurnHeadConfig:
    """Shape of the head; the field names are those of `head_config` in the reference's `turn_head.pt`.

    Attributes:
        hidden_size: H, the width of the Thinker's language model.
        num_horizons, num_classes: 10 and 3.
        dropout: on the fused hidden state, in training.
        num_input_layers: how many of the last decoder layers are read.
        layer_fusion: "mean" over the layers, or "concat".
        learnable_layer_mixture: with "mean", weights of the layers are learned (a softmax that starts equal).
        transition_auxiliary: one more output a horizon, "the class changes at this horizon".
    """

    hidden_size: int
    num_horizons: int = NUM_HORIZONS
    num_classes: int = NUM_CLASSES
    dropout: float = 0.1
    num_input_layers: int = 1
    layer_fusion: str = "mean"
    learnable_layer_mixture: bool = False
    transition_auxiliary: bool = False

    def __post_init__(self) -> None:
        if problems := self.problems():
            raise InputError(f"turn head: {'; '.join(problems)}")

    def problems(self) -> list[str]:
        """What is wrong with these values, one text each."""
        found = []
        if self.hidden_size < 1:
            found.append(f"hidden_size={self.hidden_size} must be positive")
        if (self.num_horizons, self.num_classes) != (NUM_HORIZONS, NUM_CLASSES):
            found.append(
                f"{self.num_horizons} horizons of {self.num_classes} classes; this task has {NUM_HORIZONS} of {NUM_CLASSES}"
            )
        if not 0 <= self.dropout < 1:
            found.append(f"dropout={self.dropout} must lie in [0, 1)")
        if self.num_input_layers < 1:
            found.append(f"num_input_layers={self.num_input_layers} must be at least 1")
        if self.layer_fusion not in LAYER_FUSIONS:
            found.append(f"layer_fusion={self.layer_fusion!r} must be one of {', '.join(LAYER_FUSIONS)}")
        if self.learnable_layer_mixture and self.layer_fusion != "mean":
            found.append("learnable_layer_mixture weighs the layers of a mean; use layer_fusion='mean'")
        if self.learnable_layer_mixture and self.num_input_layers < 2:
            found.append("learnable_layer_mixture needs num_input_layers of 2 or more")
        return found

    @classmethod
    def from_dict(cls, content: dict[str, Any], *, source: str) -> TurnHeadConfig:
        """Raises:
        InputError: a key that is unknown or missing, or a bad value; names `source`.
        """
        names = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(content.keys() - names):
            raise InputError(f"{source}: unknown head option {', '.join(unknown)}; known are {', '.join(sorted(names))}")
        if "hidden_size" not in content:
            raise InputError(f"{source}: hidden_size is missing; the file does not describe a turn head")
        try:
            return cls(**content)
        except InputError as error:
            raise InputError(f"{source}: {error}") from None


@dataclass
class TurnHeadOutput:
    """
    Attributes:
        logits: float32 [N, 10, 3].
        transition_logits: float32 [N, 10] with the transition auxiliary, else None.
    """

    logits: torch.Tensor
    transition_logits: torch.Tensor | None = None


class Float32Linear(nn.Linear):
    """Computes in float32 whatever the type of its weights is: a DeepSpeed engine in bf16 converts every parameter."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return F.linear(input.float(), self.weight.float(), self.bias.float())


class TurnHead(nn.Module):
    """Dropout and one linear layer, in float32, on the fused hidden states of the readout token."""

    def __init__(self, config: TurnHeadConfig) -> None:
        super().__init__()
        self.config = config
        width = config.hidden_size * (config.num_input_layers if config.layer_fusion == "concat" else 1)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = Float32Linear(width, config.num_horizons * config.num_classes)
        self.transition = Float32Linear(width, config.num_horizons) if config.transition_auxiliary else None
        self.layer_mixture = nn.Parameter(torch.zeros(config.num_input_layers)) if config.learnable_layer_mixture else None

    def forward(self, hidden_states: torch.Tensor) -> TurnHeadOutput:
        """
        Args:
            hidden_states: the readout token after each of the last `num_input_layers` layers, [N, layers, H].
        """
        with torch.autocast(hidden_states.device.type, enabled=False):
            fused = self.dropout(self._fuse(hidden_states.float()))
            logits = self.classifier(fused)
            transition_logits = None if self.transition is None else self.transition(fused)
        return TurnHeadOutput(logits.view(-1, self.config.num_horizons, self.config.num_classes), transition_logits)

    def _fuse(self, hidden_states: torch.Tensor) -> torch.Tensor:
        if self.config.layer_fusion == "concat":
            return hidden_states.flatten(1)
        if self.layer_mixture is None:
            return hidden_states.mean(dim=1)
        weights = self.layer_mixture.float().softmax(dim=0)
        return (hidden_states * weights[None, :, None]).sum(dim=1)

