"""SwiGLU between the two products of the MLP, with the dropout and the low-rank input of the second one.

    act = silu(gate) · up          out = [act, z]          z = drop(act) Aᵀ

One pass over memory forward and one backward, in Triton on a GPU; the same formulas in torch elsewhere.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from swift_plugin.model.fused.dropout import drop, keep_mask


@torch.library.custom_op("swift_plugin::swiglu_lora", mutates_args=())
def swiglu_lora(gate_up: torch.Tensor, lora_a: torch.Tensor, seed: torch.Tensor, probability: float) -> torch.Tensor:
    """
    Args:
        gate_up: gate and up beside each other, [T, 2 * I].
        lora_a: of the second product, [R, I].
        seed: int32 [1].
        probability: LoRA's dropout.

    Returns:
        `act` and `z` beside each other, [T, I + R].
    """
    if gate_up.is_cuda:
        from swift_plugin.model.fused.swiglu_triton import forward

        return forward(gate_up, lora_a, seed, probability)
    gate, up = gate_up.chunk(2, dim=1)
    act = F.silu(gate) * up
    return torch.cat([act, drop(act, seed, probability) @ lora_a.t()], dim=1)


@swiglu_lora.register_fake
def _(gate_up, lora_a, seed, probability):
    return gate_up.new_empty(gate_up.shape[0], lora_a.shape[1] + lora_a.shape[0])


@torch.library.custom_op("swift_plugin::swiglu_lora_backward", mutates_args=())
def swiglu_lora_backward(
    grad: torch.Tensor, gate_up: torch.Tensor, lora_a: torch.Tensor, seed: torch.Tensor, probability: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of `gate_up` [T, 2 * I] and of `lora_a` [R, I] from that of the output, [T, I + R]."""
    if gate_up.is_cuda:
        from swift_plugin.model.fused.swiglu_triton import backward

        return backward(grad, gate_up, lora_a, seed, probability)
    gate, up = gate_up.chunk(2, dim=1)
    act_grad, z_grad = grad.split(list(reversed(lora_a.shape)), dim=1)
    sigmoid = gate.sigmoid()
    act = gate * sigmoid * up
    low_rank = z_grad @ lora_a
    if probability:
        keep = keep_mask(*act.shape, seed, probability)
        low_rank = torch.where(keep, low_rank * (1 / (1 - probability)), 0.0)
    act_grad = act_grad + low_rank
    gate_grad = act_grad * up * sigmoid * (1 + gate * (1 - sigmoid))
    return torch.cat([gate_grad, act_grad * gate * sigmoid], dim=1), z_grad.t() @ drop(act, seed, probability)


@swiglu_lora_backward.register_fake
def _(grad, gate_up, lora_a, seed, probability):
    return torch.empty_like(gate_up), torch.empty_like(lora_a)


def _setup_context(ctx, inputs, output):
    gate_up, lora_a, seed, ctx.probability = inputs
    ctx.save_for_backward(gate_up, lora_a, seed)


def _backward(ctx, grad):
    gate_up, lora_a, seed = ctx.saved_tensors
    gate_up_grad, lora_a_grad = swiglu_lora_backward(grad.contiguous(), gate_up, lora_a, seed, ctx.probability)
    return gate_up_grad, lora_a_grad, None, None


swiglu_lora.register_autograd(_backward, setup_context=_setup_context)


class WideLinear(torch.autograd.Function):
    """y = [x, z] [W, B]ᵀ for an input that brings its z along: the second product of the MLP."""

    @staticmethod
    def forward(ctx, x_and_z, weight, lora_b):
        wide = torch.cat([weight, lora_b], dim=1)
        ctx.save_for_backward(x_and_z[:, weight.shape[1] :], wide)
        return F.linear(x_and_z, wide)

    @staticmethod
    def backward(ctx, grad):
        z, wide = ctx.saved_tensors
        return grad @ wide, None, grad.t() @ z
