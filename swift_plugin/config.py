"""The plug-in's options: one strict dataclass, read from the environment that ms-swift fills.

ms-swift writes each key of `--model_kwargs '{"turn_head_learning_rate": 1e-3}'` into the environment in capitals, and
so does the `ENV:` part of its YAML file. Every option begins with `turn_`; an unknown one with that beginning fails.
"""

from __future__ import annotations

import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from swift_plugin.errors import InputError
from swift_plugin.model.head import TurnHeadConfig
from swift_plugin.model.loss import LossConfig
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS

PREFIX = "TURN_"
SAMPLINGS = ("block", "anchor")
LAYOUTS = ("shared", "anchor")
ONLINE_ONLY = ("tail_device", "prefetch_depth", "decoder", "audio_feature_device", "audio_right_padding_samples")
_BOOLS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """
    Attributes:
        head_learning_rate: learning rate of the head; `None` takes `--learning_rate`.
        freeze_thinker: only the head learns; the language model runs without gradients and without an adapter.
        freeze_head: the head stays as it was loaded; needs `head_checkpoint` or `--adapters`.
        head_checkpoint: `turn_head.safetensors` or a checkpoint folder to start the head from, or the reference's
            `turn_head.pt`.
        lora_last_n_layers: adapters in the last N decoder layers only; 0 is all.
        head_dropout, head_num_input_layers, head_layer_fusion, head_learnable_layer_mixture,
            head_transition_auxiliary: see `TurnHeadConfig`.
        class_weights, horizon_weights, focal_gamma, transition_weight: see `LossConfig`.
        sampling: an item of the dataset is a "block" with its anchors, or a single "anchor".
        layout: anchors of a block share one history ("shared"), or each is a sequence of its own ("anchor").
        fused_layers: run the decoder layers fused and, on a GPU, compiled; by default on a GPU.
        target: targets that replace those of the manifest, for one `--dataset`.
        online_tail: history comes from the cache, the tail from the media that the manifest names.
        tail_device: where the towers run for it, "cpu", "cuda:1" or with several ranks one each, "cuda:2,cuda:3"; by
            default where training runs.
        prefetch_depth: batches that a thread makes ahead; with 0 the training loop makes its tails itself.
        decoder: see `swift_plugin.media.session.open_session`.
        audio_feature_device, audio_right_padding_samples: see `swift_plugin.cache.features.PieceFeatures`; -1 pads to
            the native 300 s.
    """

    head_learning_rate: float | None = None
    freeze_thinker: bool = False
    freeze_head: bool = False
    head_checkpoint: str | None = None
    lora_last_n_layers: int = 0
    head_dropout: float = 0.1
    head_num_input_layers: int = 1
    head_layer_fusion: str = "mean"
    head_learnable_layer_mixture: bool = False
    head_transition_auxiliary: bool = False
    class_weights: list[float] | None = None
    horizon_weights: list[float] | None = None
    focal_gamma: float = 0.0
    transition_weight: float = 0.5
    sampling: str = "block"
    layout: str = "shared"
    fused_layers: bool | None = None
    target: str | None = None
    online_tail: bool = False
    tail_device: str | None = None
    prefetch_depth: int = 2
    decoder: str = "pyav"
    audio_feature_device: str = "cpu"
    audio_right_padding_samples: int = 480

    def head_config(self, hidden_size: int) -> TurnHeadConfig:
        return TurnHeadConfig(hidden_size=hidden_size, **self._head_fields())

    def loss_config(self) -> LossConfig:
        return LossConfig(
            class_weights=self.class_weights,
            horizon_weights=self.horizon_weights,
            focal_gamma=self.focal_gamma,
            transition_weight=self.transition_weight if self.head_transition_auxiliary else 0.0,
        )

    def problems(self) -> list[str]:
        """All contradictions and bad values, one text each with its reason."""
        found = []
        try:
            self.head_config(hidden_size=1)
        except InputError as error:
            found.append(str(error))
        if self.freeze_thinker and self.freeze_head:
            found.append("turn_freeze_thinker and turn_freeze_head together leave nothing to train; drop one")
        if self.freeze_thinker and self.lora_last_n_layers:
            found.append("turn_lora_last_n_layers has no effect with turn_freeze_thinker; drop one")
        if self.lora_last_n_layers < 0:
            found.append(f"turn_lora_last_n_layers={self.lora_last_n_layers} must not be negative")
        if self.head_learning_rate is not None and self.head_learning_rate <= 0:
            found.append(f"turn_head_learning_rate={self.head_learning_rate} must be positive")
        if self.freeze_head and self.head_learning_rate is not None:
            found.append("turn_head_learning_rate has no effect with turn_freeze_head; drop one")
        if self.focal_gamma < 0:
            found.append(f"turn_focal_gamma={self.focal_gamma} must not be negative")
        if self.transition_weight < 0:
            found.append(f"turn_transition_weight={self.transition_weight} must not be negative")
        for name, count in (("class_weights", NUM_CLASSES), ("horizon_weights", NUM_HORIZONS)):
            weights = getattr(self, name)
            if weights is not None and (len(weights) != count or min(weights) < 0 or max(weights) == 0):
                found.append(f"turn_{name}={weights} must be {count} numbers, none negative, not all 0")
        if self.prefetch_depth < 0:
            found.append(f"turn_prefetch_depth={self.prefetch_depth} must not be negative")
        if not self.online_tail:
            for name in ONLINE_ONLY:
                if getattr(self, name) != type(self).__dataclass_fields__[name].default:
                    found.append(f"turn_{name} has no effect without turn_online_tail; drop one, or add the other")
        for name, choices in (("sampling", SAMPLINGS), ("layout", LAYOUTS)):
            if getattr(self, name) not in choices:
                found.append(f"turn_{name}={getattr(self, name)!r} must be one of {', '.join(choices)}")
        return found

    def _head_fields(self) -> dict[str, Any]:
        names = ("dropout", "num_input_layers", "layer_fusion", "learnable_layer_mixture", "transition_auxiliary")
        return {name: getattr(self, f"head_{name}") for name in names}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> TurnOptions:
        """Read the options.

        Raises:
            InputError: names every unknown key and every value of the wrong type.
        """
        environment = os.environ if environment is None else environment
        hints = typing.get_type_hints(cls)
        values, problems = {}, []
        for key in sorted(k for k in environment if k.startswith(PREFIX)):
            name = key.removeprefix(PREFIX).lower()
            if name not in hints:
                problems.append(f"unknown option turn_{name}; known are {', '.join(f'turn_{n}' for n in hints)}")
                continue
            try:
                values[name] = _parse(environment[key], hints[name])
            except ValueError:
                problems.append(f"turn_{name}={environment[key]!r} is not {_describe(hints[name])}")
        if problems:
            raise InputError("; ".join(problems))
        return cls(**values)


_from_model_kwargs: set[str] = set()  # keys that a run of this process has had ms-swift put into the environment


def forget_options_of_earlier_runs(model_kwargs: Mapping[str, Any]) -> None:
    """Take back what an earlier run in this process left in the environment, before the options are read.

    Args:
        model_kwargs: those of this run, which ms-swift has just put there.
    """
    mine = {key.upper() for key in model_kwargs}
    for key in _from_model_kwargs - mine:
        os.environ.pop(key, None)
    _from_model_kwargs.clear()
    _from_model_kwargs.update(key for key in mine if key.startswith(PREFIX))


def _parse(text: str, hint: Any) -> Any:
    """One value of the environment, where ms-swift has written `str(value)`.

    Raises:
        ValueError: the text is no value of that type.
    """
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    if types.NoneType in kinds and text in ("None", "null", ""):
        return None
    kind = kinds[0]
    if kind is bool:
        if text.lower() not in _BOOLS:
            raise ValueError(text)
        return _BOOLS[text.lower()]
    if kind == list[float]:
        numbers = json.loads(text)
        if not isinstance(numbers, list):
            raise ValueError(text)
        return [float(number) for number in numbers]
    return kind(text)


def _describe(hint: Any) -> str:
    kind = typing.get_args(hint)[0] if isinstance(hint, types.UnionType) else hint
    return {bool: "true or false", int: "a whole number", float: "a number", list[float]: "a list of numbers"}[kind]
