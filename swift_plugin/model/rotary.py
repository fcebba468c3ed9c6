"""Rotary embeddings with TMRoPE's sections, for the layers that are written here."""

from __future__ import annotations

import torch
from torch import nn


def rotary_embeddings(rotary_emb: nn.Module, hidden_states: torch.Tensor, position_ids: torch.Tensor):
    """What the native layer takes, and the same as one cos and one sin [B, L, head_dim].

    transformers joins the sections in its rotary module from 5.18 on, and in each attention layer before.
    """
    native = rotary_emb(hidden_states, position_ids)
    cos, sin = (_join_sections(part, rotary_emb) if part.ndim == 4 else part for part in native)
    return native, cos, sin


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`apply_rotary_pos_emb` of transformers for one tensor; cos and sin are broadcast."""
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-second, first], dim=-1) * sin


def _join_sections(part: torch.Tensor, rotary_emb: nn.Module) -> torch.Tensor:
    """[3, B, L, head_dim] -> [B, L, head_dim]: time, height and width take turns, as `mrope_section` says."""
    sections = rotary_emb.config.rope_parameters["mrope_section"] * 2
    return torch.cat([chunk[number % 3] for number, chunk in enumerate(part.split(sections, dim=-1))], dim=-1)
