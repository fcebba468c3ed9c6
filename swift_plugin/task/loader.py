"""What ms-swift calls to load the model: the Thinker's language model alone."""

from __future__ import annotations

from pathlib import Path

import torch
from swift.model import ModelLoader, ModelMeta

from swift_plugin.model.turn_predictor import TurnPredictor

MODEL_TYPE = "qwen2_5_omni_turn"
TASK_TYPE = "turn_prediction"
TEMPLATE_TYPE = "turn_prediction"


class TurnModelLoader(ModelLoader):
    """Loads a `TurnPredictor` from a Qwen2.5-Omni checkpoint; the towers are never read."""

    default_trust_remote_code = False

    def get_model(self, model_dir: str, config, processor, model_kwargs) -> TurnPredictor:
        implementation = self.attn_impl or ("flex_attention" if torch.cuda.is_available() else "sdpa")
        flash = implementation not in ("flex_attention", "sdpa", "eager")
        model_kwargs["attn_implementation"] = implementation if flash else "sdpa"
        model = TurnPredictor.load(Path(model_dir), **model_kwargs)
        if not flash:
            model.set_attention(implementation)
        return model


def model_meta() -> ModelMeta:
    return ModelMeta(
        MODEL_TYPE,
        [],
        TurnModelLoader,
        template=TEMPLATE_TYPE,
        task_type=TASK_TYPE,
        # ms-swift encodes the rows of a multimodal model when they are needed, and writes no copy of them to disk.
        is_multimodal=True,
    )
