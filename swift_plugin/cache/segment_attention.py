"""The towers' attention for all pieces of a batch at once.

transformers attends within each piece by a loop in Python, 32 layers times hundreds of windows a batch, and waits for
the GPU in each layer. A GPU attends within segments of one sequence by itself: torch's `varlen_attn`.
"""

from __future__ import annotations

import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

# transformers passes whole sequences with the borders of their segments where the name holds "flash".
NAME = "flash_within_segments"


def attend_within_segments(towers: nn.Module) -> bool:
    """Let both towers attend by `varlen_attn` where they can: half precision on a GPU, torch 2.10 or later.

    Returns:
        Whether it is so; otherwise the towers stay as transformers made them.
    """
    weight = towers.audio_tower.conv1.weight
    if weight.device.type != "cuda" or weight.dtype == torch.float32:
        return False
    try:
        import torch.nn.attention.varlen  # noqa: F401
    except ImportError:
        return False
    ALL_ATTENTION_FUNCTIONS.register(NAME, _attend)
    for tower in (towers.audio_tower, towers.visual):
        tower.config._attn_implementation = NAME
    return True


def _attend(module, query, key, value, attention_mask=None, *, cu_seq_lens_q, max_length_q, **unused):
    """One sequence [1, heads, L, head_dim] each; returns [1, L, heads, head_dim], as every function of transformers."""
    from torch.nn.attention.varlen import varlen_attn

    borders, longest = cu_seq_lens_q.to(torch.int32), int(max_length_q)
    query, key, value = (tensor[0].transpose(0, 1).contiguous() for tensor in (query, key, value))
    return varlen_attn(query, key, value, borders, borders, longest, longest)[None], None
