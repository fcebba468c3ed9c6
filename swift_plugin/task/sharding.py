"""Whole float32 tensors of a model whose parameters DeepSpeed has sharded, or holds in another type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def gathered(parameters: Sequence[nn.Parameter], *, modify: bool = False) -> Iterator[None]:
    """Inside, every rank sees whole tensors of parameters that ZeRO-3 has sharded; all ranks must enter.

    Args:
        parameters: sharded or not.
        modify: what rank 0 has changed inside is kept, on all ranks.
    """
    if not any(hasattr(parameter, "ds_id") for parameter in parameters):
        yield
        return
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(parameters), modifier_rank=0 if modify else None):
        yield


def checkpoint_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Adapters and head on the CPU, by the names of `model`; all ranks must call it.

    A DeepSpeed engine in bf16 trains float32 masters and keeps rounded copies in the model: the masters are taken.
    """
    from deepspeed.utils import safe_get_full_fp32_param

    tensors = {}
    for name, parameter in model.named_parameters():
        if "lora_" not in name and "turn_head." not in name:
            continue
        master = safe_get_full_fp32_param(parameter) if parameter.requires_grad else None
        if master is None:  # frozen, or trained without ZeRO
            with gathered([parameter]):
                master = parameter.detach().float().clone()
        tensors[name] = master.detach().cpu().clone()
    return tensors
