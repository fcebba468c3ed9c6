"""Dropout masks from a hash of the place: the backward pass computes them again instead of reading them.

The hash is `lowbias32` by Chris Wellons, https://nullprogram.com/blog/2018/07/31/, public domain; 24 of its bits are
compared with p. The Triton kernels of `swiglu` compute the same masks.
"""

from __future__ import annotations

import torch

BITS = 24


def as_int32(value: int) -> int:
    """The int32 with the bits of an unsigned constant."""
    return value - (1 << 32) if value >= 1 << 31 else value


MULTIPLIER_1 = as_int32(0x7FEB352D)
MULTIPLIER_2 = as_int32(0x846CA68B)


def threshold(probability: float) -> int:
    return int(probability * (1 << BITS))


def keep_mask(rows: int, columns: int, seed: torch.Tensor, probability: float) -> torch.Tensor:
    """bool [rows, columns], True where the element is kept.

    Args:
        seed: int32 [1].
        probability: that an element is dropped.
    """
    row = torch.arange(rows, device=seed.device, dtype=torch.int32)[:, None]
    column = torch.arange(columns, device=seed.device, dtype=torch.int32)[None, :]
    bits = (row * columns + column) ^ seed
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * MULTIPLIER_1
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * MULTIPLIER_2
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    return (bits & ((1 << BITS) - 1)) >= threshold(probability)


def drop(x: torch.Tensor, seed: torch.Tensor, probability: float) -> torch.Tensor:
    """Dropout of x [rows, columns] by that mask, scaled by 1 / (1 - p)."""
    if probability == 0:
        return x
    return torch.where(keep_mask(*x.shape, seed, probability), x * (1 / (1 - probability)), 0.0)
