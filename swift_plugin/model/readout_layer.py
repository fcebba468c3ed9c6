"""The last decoder layer at the readout tokens alone: nobody reads the output of the others."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from swift_plugin.model.rotary import rotate
from swift_plugin.stream.layout import TRUNK


def readout_layer(
    layer: nn.Module,
    hidden_states: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    document: torch.Tensor,
    branch: torch.Tensor,
    readout_rows: torch.Tensor,
    readout_indices: torch.Tensor,
) -> torch.Tensor:
    """Keys and values of all tokens; queries, attention and MLP of the readouts.

    Args:
        layer: a native decoder layer, with or without adapters.
        hidden_states: [B, L, H].
        cos, sin: rotary embeddings, [B, L, head_dim].
        document, branch: see `swift_plugin.stream.masks`, [B, L].
        readout_rows, readout_indices: [N], rows ascending.

    Returns:
        [N, H].
    """
    attention = layer.self_attn
    normed = layer.input_layernorm(hidden_states)
    key = _heads(attention.k_proj(normed), attention.head_dim)  # [B, key-value heads, L, head_dim]
    value = _heads(attention.v_proj(normed), attention.head_dim)
    key = rotate(key, cos[:, None], sin[:, None])

    at_readouts = (readout_rows, readout_indices)
    query = attention.q_proj(normed[at_readouts]).view(-1, attention.num_heads, attention.head_dim)  # [N, heads, D]
    query = rotate(query, cos[at_readouts][:, None], sin[at_readouts][:, None])

    # Readouts of one row of the batch side by side, filled up to the longest row.
    rows = hidden_states.shape[0]
    place = torch.arange(len(readout_rows), device=readout_rows.device)
    place = place - torch.searchsorted(readout_rows, readout_rows)
    width = len(readout_rows) if rows == 1 else int(place.max()) + 1
    queries = query.new_zeros(rows, width, *query.shape[1:])
    queries[readout_rows, place] = query
    mask = torch.ones(rows, width, key.shape[2], dtype=torch.bool, device=key.device)  # no empty row in the filling
    mask[readout_rows, place] = _visible(document, branch, readout_rows, readout_indices)

    repeats = attention.num_heads // attention.num_key_value_heads
    attended = F.scaled_dot_product_attention(
        queries.transpose(1, 2),
        key.repeat_interleave(repeats, dim=1),
        value.repeat_interleave(repeats, dim=1),
        attn_mask=mask[:, None],
    )
    attended = attended.transpose(1, 2)[readout_rows, place].flatten(1)  # [N, heads * D]
    states = hidden_states[at_readouts] + attention.o_proj(attended)
    return states + layer.mlp(layer.post_attention_layernorm(states))


def _heads(states: torch.Tensor, head_dim: int) -> torch.Tensor:
    return states.view(*states.shape[:2], -1, head_dim).transpose(1, 2)


def _visible(
    document: torch.Tensor, branch: torch.Tensor, readout_rows: torch.Tensor, readout_indices: torch.Tensor
) -> torch.Tensor:
    """What each readout sees of its row, the rule of `dense_mask`: bool [N, L]."""
    documents, branches = document[readout_rows], branch[readout_rows]
    own_document = document[readout_rows, readout_indices][:, None]
    own_branch = branch[readout_rows, readout_indices][:, None]
    before = torch.arange(document.shape[1], device=document.device) <= readout_indices[:, None]
    return before & (documents == own_document) & ((branches == TRUNK) | (branches == own_branch))
