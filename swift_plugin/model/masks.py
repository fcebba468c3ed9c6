"""Attention masks in the form that each implementation takes, built once for each arrangement of a batch."""

from __future__ import annotations

from collections import OrderedDict

import torch

from swift_plugin.errors import InputError
from swift_plugin.stream.masks import CAUSAL, dense_mask, flex_mask

_KEPT = 32  # arrangements whose mask is kept; in the steady state there is one


class MaskCache:
    """Builds masks and keeps the latest ones."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple, object] = OrderedDict()

    def get(
        self, implementation: str, document: torch.Tensor, branch: torch.Tensor, *, arrangement: str, dtype: torch.dtype
    ):
        """
        Args:
            implementation: "sdpa", "flex_attention", "eager" or "flash_attention_2".
            document, branch: see `swift_plugin.stream.masks`, [B, L].
            arrangement: equal for equal `document` and `branch`, as the collator gives it; `CAUSAL` where every row
                holds one anchor.
            dtype: of an additive mask.

        Raises:
            InputError: an implementation without masks for sequences that share a history.
        """
        if arrangement == CAUSAL and implementation != "eager":
            return None  # the plain causal mask that every implementation has built in
        key = (implementation, arrangement, document.device, dtype)
        if key not in self._kept:
            self._kept[key] = _build(implementation, document, branch, dtype)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key]


def _build(implementation: str, document: torch.Tensor, branch: torch.Tensor, dtype: torch.dtype):
    if implementation == "flex_attention":
        return flex_mask(document, branch)
    if implementation == "sdpa":
        return dense_mask(document, branch)
    if implementation == "eager":
        mask = dense_mask(document, branch)
        return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)
    raise InputError(
        f"attn_impl={implementation} takes no mask of its own, which the shared history needs; "
        "use sdpa, flex_attention or eager, or turn_layout=anchor"
    )
