"""Who sees whom: attention masks of packed layouts, dense for SDPA and in blocks for flex attention."""

from __future__ import annotations

import hashlib

import torch

from swift_plugin.stream.layout import TRUNK

PADDING = -1  # document number of padding
CAUSAL = "causal"  # the arrangement of a batch whose rows hold one anchor each, padded on the right


def arrangement(document: torch.Tensor, branch: torch.Tensor) -> str:
    """A name for what a batch's mask depends on, equal for equal `document` and `branch` [B, L] on the CPU."""
    if branch.max() <= 1 and document.max() <= 0:
        return CAUSAL
    content = document.numpy().tobytes() + branch.numpy().tobytes()
    return f"{tuple(document.shape)}-{hashlib.blake2b(content, digest_size=16).hexdigest()}"


def dense_mask(document: torch.Tensor, branch: torch.Tensor) -> torch.Tensor:
    """The mask for SDPA.

    Args:
        document: number of the layout that a token belongs to, -1 for padding, int [B, L].
        branch: its branch in that layout, int [B, L].

    Returns:
        bool [B, 1, L, L]: True where the query (third axis) sees the key (fourth axis). A padding token sees only
        itself, so that no row is empty.
    """
    length = document.shape[1]
    order = torch.ones(length, length, dtype=torch.bool, device=document.device).tril()
    same_document = document[:, :, None] == document[:, None, :]
    visible = (branch[:, None, :] == TRUNK) | (branch[:, :, None] == branch[:, None, :])
    padding = document == PADDING
    diagonal = torch.eye(length, dtype=torch.bool, device=document.device)
    mask = order & same_document & visible & ~padding[:, :, None] | diagonal
    return mask[:, None]


def flex_mask(document: torch.Tensor, branch: torch.Tensor):
    """The same rule as `dense_mask`, as a `BlockMask` of torch's flex attention."""
    from torch.nn.attention.flex_attention import create_block_mask

    def visible(batch, head, query, key):
        same_document = document[batch, query] == document[batch, key]
        in_sight = (branch[batch, key] == TRUNK) | (branch[batch, query] == branch[batch, key])
        return (query >= key) & same_document & in_sight

    batch_size, length = document.shape
    return create_block_mask(visible, batch_size, None, length, length, device=document.device)
