"""The template: what stands between a row of the dataset and the collator. A row is already what is needed."""

from __future__ import annotations

from typing import Any

import torch
from swift.template import Template, TemplateMeta
from swift.utils import get_logger

from swift_plugin.errors import InputError
from swift_plugin.task.loader import TEMPLATE_TYPE

logger = get_logger()


class TurnTemplate(Template):
    """Passes rows on unchanged; the words of the sequence are fixed in the cache's manifest."""

    def init_env_args(self) -> None:
        """ms-swift reads generation options from the environment here; this task has none."""

    def encode(self, inputs: dict[str, Any], return_template_inputs: bool = False, return_length: bool = False):
        """Raises:
        InputError: a request for text, as `swift infer` and `swift deploy` make.
        """
        if not isinstance(inputs, dict) or "tails" not in inputs:
            raise InputError("this model predicts turns of a cached session and writes no text; use swift-turn predict")
        return inputs

    def print_inputs(self, inputs: dict[str, Any]) -> None:
        shown = {name: inputs[name] for name in ("manifest", "block_index", "tails")}
        logger.info(f"[ITEM] {shown}, targets {list(torch.tensor(inputs['targets']).shape)}")

    def register_post_encode_hook(self, models: list) -> None:
        """Nothing is encoded inside the model."""


def template_meta() -> TemplateMeta:
    return TemplateMeta(TEMPLATE_TYPE, prefix=[], prompt=["{{QUERY}}"], chat_sep=None, template_cls=TurnTemplate)
