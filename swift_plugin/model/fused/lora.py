"""Linear layers that share an input, with LoRA, as one matrix product.

    y = x Wᵀ + drop(x) Aᵀ Bᵀ = [x, z] [W, B]ᵀ   with   z = drop(x) Aᵀ

The low-rank part rides along as a few more columns of the product, forward and backward. Layers with one input share
their dropout mask; PEFT draws one for each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from swift_plugin.model.fused.dropout import drop, keep_mask

RANK_MULTIPLE = 16  # the least that a tensor core takes; also keeps rows aligned to 16 bytes


class LinearGroup(NamedTuple):
    """Weights of some linear layers with one input, as they stand in the model.

    Attributes:
        weights: frozen, [outputs, H] each.
        biases: [outputs] each, or empty.
        lora_a, lora_b: [rank, H] and [outputs, rank] of each layer, or None for a layer without an adapter.
        scales: LoRA's scaling of each layer.
    """

    weights: tuple[torch.Tensor, ...]
    biases: tuple[torch.Tensor, ...]
    lora_a: tuple[torch.Tensor | None, ...]
    lora_b: tuple[torch.Tensor | None, ...]
    scales: tuple[float, ...]

    @property
    def adapted(self) -> bool:
        return any(matrix is not None for matrix in self.lora_a)


def gather_group(layers: Sequence[nn.Module]) -> LinearGroup:
    """Collect the weights of `nn.Linear` layers, or of PEFT's LoRA layers around them."""
    bases = [getattr(layer, "base_layer", layer) for layer in layers]
    adapted = [hasattr(layer, "lora_A") for layer in layers]
    return LinearGroup(
        weights=tuple(base.weight for base in bases),
        biases=tuple(base.bias for base in bases if base.bias is not None),
        lora_a=tuple(layer.lora_A["default"].weight if own else None for layer, own in zip(layers, adapted)),
        lora_b=tuple(layer.lora_B["default"].weight if own else None for layer, own in zip(layers, adapted)),
        scales=tuple(layer.scaling["default"] if own else 0.0 for layer, own in zip(layers, adapted)),
    )


def stack_lora(group: LinearGroup, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """All ranks of a group as one A [R, H] and one scaled B [sum of outputs, R], one block a layer.

    R is filled up with zeros to a multiple of 16. The weights keep their own type, float32 in PEFT, and are cast here:
    casting the activations instead, as PEFT does, costs far more.
    """
    rows = [matrix for matrix in group.lora_a if matrix is not None]
    blocks = [
        weight.new_zeros(weight.shape[0], 0, dtype=rows[0].dtype) if matrix is None else matrix * scale
        for weight, matrix, scale in zip(group.weights, group.lora_b, group.scales)
    ]
    lora_a, lora_b = torch.cat(rows), torch.block_diag(*blocks)
    fill = -lora_a.shape[0] % RANK_MULTIPLE
    return F.pad(lora_a, (0, 0, 0, fill)).to(dtype), F.pad(lora_b, (0, fill)).to(dtype)


def lora_linear(x: torch.Tensor, group: LinearGroup, seed: torch.Tensor, probability: float) -> torch.Tensor:
    """y [T, sum of outputs] for x [T, H]; `probability` is LoRA's dropout, `seed` int32 [1] that of its mask."""
    bias = torch.cat(group.biases) if group.biases else None
    if not group.adapted:
        return F.linear(x, torch.cat(group.weights), bias)
    return _LoraLinear.apply(x, *stack_lora(group, x.dtype), seed, probability, bias, *group.weights)


class _LoraLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, lora_a, lora_b, seed, probability, bias, *weights):
        z = drop(x, seed, probability) @ lora_a.t()  # [T, R]
        wide = torch.cat([torch.cat(weights), lora_b], dim=1)  # [outputs, H + R]
        ctx.save_for_backward(x, z, wide, lora_a, seed)
        ctx.probability, ctx.num_weights = probability, len(weights)
        return F.linear(torch.cat([x, z], dim=1), wide, bias)

    @staticmethod
    def backward(ctx, grad):
        x, z, wide, lora_a, seed = ctx.saved_tensors
        columns, probability = x.shape[1], ctx.probability
        wide_grad = grad @ wide  # [T, H + R]
        z_grad = wide_grad[:, columns:]
        low_rank = z_grad @ lora_a  # [T, H]
        if probability:
            keep = keep_mask(*x.shape, seed, probability)
            low_rank = torch.where(keep, low_rank * (1 / (1 - probability)), 0.0)
        x_grad = wide_grad[:, :columns] + low_rank
        a_grad = z_grad.t() @ drop(x, seed, probability)
        return x_grad, a_grad, grad.t() @ z, None, None, None, *([None] * ctx.num_weights)
