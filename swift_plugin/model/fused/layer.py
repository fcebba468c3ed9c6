"""One decoder layer of the Thinker on the fused parts, and which models it fits."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from peft.tuners.lora import Linear as LoraLinear
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from swift_plugin.model.fused.lora import LinearGroup, gather_group, lora_linear, stack_lora
from swift_plugin.model.fused.swiglu import WideLinear, swiglu_lora
from swift_plugin.model.rotary import rotate

SEEDS_PER_LAYER = 4


class LayerWeights(NamedTuple):
    """All tensors of a decoder layer, so that one compiled graph serves every layer."""

    qkv: LinearGroup
    o: LinearGroup
    gate_up: LinearGroup
    down: LinearGroup
    input_norm: torch.Tensor
    post_attention_norm: torch.Tensor


class LayerShape(NamedTuple):
    """What does not change from layer to layer."""

    num_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    lora_dropout: float


def why_not_fused(layers: nn.ModuleList) -> str | None:
    """The reason why these decoder layers need PEFT's own code, or `None` where the fused layer gives the same."""
    dropouts = set()
    for name, module in layers.named_modules():
        if not isinstance(module, LoraLinear):
            continue
        if list(module.active_adapters) != ["default"] or module.disable_adapters or module.merged:
            return f"{name}: more than one adapter, or one that is merged or off"
        if module.use_dora.get("default") or module.lora_bias.get("default"):
            return f"{name}: DoRA or a LoRA bias"
        dropouts.add(getattr(module.lora_dropout["default"], "p", 0.0))
    if len(dropouts) > 1:
        return f"several dropout rates, {sorted(dropouts)}"
    if any(hasattr(parameter, "ds_id") for parameter in layers.parameters()):
        return "ZeRO-3 gathers weights module by module"
    return None


def layer_shape(layers: nn.ModuleList) -> LayerShape:
    attention = layers[0].self_attn
    dropouts = [m.lora_dropout["default"] for m in layers.modules() if isinstance(m, LoraLinear)]
    return LayerShape(
        num_heads=attention.num_heads,
        num_key_value_heads=attention.num_key_value_heads,
        head_dim=attention.head_dim,
        rms_norm_eps=layers[0].input_layernorm.variance_epsilon,
        lora_dropout=getattr(dropouts[0], "p", 0.0) if dropouts and dropouts[0].training else 0.0,
    )


def layer_weights(layer: nn.Module) -> LayerWeights:
    attention, mlp = layer.self_attn, layer.mlp
    return LayerWeights(
        qkv=gather_group([attention.q_proj, attention.k_proj, attention.v_proj]),
        o=gather_group([attention.o_proj]),
        gate_up=gather_group([mlp.gate_proj, mlp.up_proj]),
        down=gather_group([mlp.down_proj]),
        input_norm=layer.input_layernorm.weight,
        post_attention_norm=layer.post_attention_layernorm.weight,
    )


def decoder_layer(
    hidden_states: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    mask: BlockMask | torch.Tensor,
    seeds: torch.Tensor,
    weights: LayerWeights,
    shape: LayerShape,
) -> torch.Tensor:
    """
    Args:
        hidden_states: [B, L, H].
        cos, sin: rotary embeddings, [B, L, head_dim].
        mask: a `BlockMask`, or bool [B, 1, L, L].
        seeds: of the dropout masks, int32 [4].
    """
    batch, length, width = hidden_states.shape
    x = hidden_states.reshape(batch * length, width)
    normed = _rms_norm(x, weights.input_norm, shape.rms_norm_eps)
    qkv = lora_linear(normed, weights.qkv, seeds[0:1], shape.lora_dropout)
    attended = _attend(qkv.view(batch, length, -1, shape.head_dim).transpose(1, 2), cos, sin, mask, shape)
    attended = attended.transpose(1, 2).reshape(batch * length, -1)
    x = x + lora_linear(attended, weights.o, seeds[1:2], shape.lora_dropout)
    normed = _rms_norm(x, weights.post_attention_norm, shape.rms_norm_eps)
    gate_up = lora_linear(normed, weights.gate_up, seeds[2:3], shape.lora_dropout)
    x = x + _down(gate_up, weights.down, seeds[3:4], shape.lora_dropout)
    return x.view(batch, length, width)


def _down(gate_up: torch.Tensor, group: LinearGroup, seed: torch.Tensor, probability: float) -> torch.Tensor:
    (weight,) = group.weights
    if not group.adapted:
        gate, up = gate_up.chunk(2, dim=1)
        return F.linear(F.silu(gate) * up, weight)
    lora_a, lora_b = stack_lora(group, gate_up.dtype)
    return WideLinear.apply(swiglu_lora(gate_up, lora_a, seed, probability), weight, lora_b)


def _attend(
    qkv: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, mask: BlockMask | torch.Tensor, shape: LayerShape
) -> torch.Tensor:
    """Attention over qkv [B, heads + 2 * key-value heads, L, head_dim]; returns [B, heads, L, head_dim]."""
    heads = [shape.num_heads, shape.num_key_value_heads, shape.num_key_value_heads]
    query, key, value = qkv.split(heads, dim=1)
    query, key = rotate(query, cos[:, None], sin[:, None]), rotate(key, cos[:, None], sin[:, None])
    # Repeated, not shared: flex attention's backward pass is faster so (2.2 against 2.9 ms a layer on an H200).
    repeats = shape.num_heads // shape.num_key_value_heads
    key, value = key.repeat_interleave(repeats, dim=1), value.repeat_interleave(repeats, dim=1)
    if isinstance(mask, BlockMask):
        return flex_attention(query, key, value, block_mask=mask)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


def _rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    upcast = x.float()
    return weight * (upcast * torch.rsqrt(upcast.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype)
