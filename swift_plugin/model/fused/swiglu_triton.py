"""The two passes of `swiglu` as Triton kernels. Imported where there is a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from swift_plugin.model.fused.dropout import BITS, MULTIPLIER_1, MULTIPLIER_2, threshold

# Tiles, warps and stages that were fastest on an H200 for 12,288 tokens of the 3B shape.
_FORWARD = {"ROWS": 32, "COLUMNS": 128, "num_warps": 4, "num_stages": 3}
_BACKWARD = {"ROWS": 16, "COLUMNS": 64, "num_warps": 4, "num_stages": 3}
_ROW_CHUNKS = 32  # programs that share the rows of a block of columns in the backward pass


@triton.jit
def _kept(rows, columns, width, seed, limit, M1: tl.constexpr, M2: tl.constexpr, BITS: tl.constexpr):
    """`keep_mask` of `dropout.py` for a tile."""
    bits = (rows[:, None] * width + columns[None, :]) ^ seed
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * M1
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) * M2
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    return (bits & ((1 << BITS) - 1)) >= limit


@triton.jit
def _forward_kernel(
    gate_up, lora_a, seed_pointer, out, num_rows, width, limit, scale,
    R: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    M1: tl.constexpr, M2: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    ranks = tl.arange(0, R)
    seed = tl.load(seed_pointer)
    row_inside = rows < num_rows
    row_start = rows.to(tl.int64)
    z = tl.zeros([ROWS, R], dtype=tl.float32)
    for start in range(0, width, COLUMNS):
        columns = start + tl.arange(0, COLUMNS)
        column_inside = columns < width
        inside = row_inside[:, None] & column_inside[None, :]
        source = gate_up + row_start[:, None] * (2 * width) + columns[None, :]
        gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
        act = (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty)
        tl.store(out + row_start[:, None] * (width + R) + columns[None, :], act, mask=inside)
        if limit > 0:
            kept = _kept(rows, columns, width, seed, limit, M1, M2, BITS)
            act = tl.where(kept, act.to(tl.float32) * scale, 0.0).to(act.dtype)
        a = tl.load(lora_a + ranks[:, None] * width + columns[None, :], mask=column_inside[None, :], other=0.0)
        z += tl.dot(act, tl.trans(a))
    target = out + row_start[:, None] * (width + R) + width + ranks[None, :]
    tl.store(target, z.to(out.dtype.element_ty), mask=row_inside[:, None])


@triton.jit
def _backward_kernel(
    grad, gate_up, lora_a, seed_pointer, gate_up_grad, lora_a_grad, num_rows, rows_per_chunk, width, limit, scale,
    R: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    M1: tl.constexpr, M2: tl.constexpr, BITS: tl.constexpr,
):  # fmt: skip
    columns = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    chunk = tl.program_id(1)
    ranks = tl.arange(0, R)
    seed = tl.load(seed_pointer)
    column_inside = columns < width
    a = tl.load(lora_a + ranks[:, None] * width + columns[None, :], mask=column_inside[None, :], other=0.0)
    a_grad = tl.zeros([R, COLUMNS], dtype=tl.float32)
    first = chunk * rows_per_chunk
    for start in range(first, min(first + rows_per_chunk, num_rows), ROWS):
        rows = start + tl.arange(0, ROWS)
        row_inside = rows < num_rows
        inside = row_inside[:, None] & column_inside[None, :]
        row_start = rows.to(tl.int64)
        source = gate_up + row_start[:, None] * (2 * width) + columns[None, :]
        gate = tl.load(source, mask=inside, other=0.0).to(tl.float32)
        up = tl.load(source + width, mask=inside, other=0.0).to(tl.float32)
        grad_row = grad + row_start[:, None] * (width + R)
        act_grad = tl.load(grad_row + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        z_grad = tl.load(grad_row + width + ranks[None, :], mask=row_inside[:, None], other=0.0)
        sigmoid = tl.sigmoid(gate)
        act = (gate * sigmoid * up).to(grad.dtype.element_ty)
        low_rank = tl.dot(z_grad, a)
        if limit > 0:
            kept = _kept(rows, columns, width, seed, limit, M1, M2, BITS)
            low_rank = tl.where(kept, low_rank * scale, 0.0)
            act = tl.where(kept, act.to(tl.float32) * scale, 0.0).to(act.dtype)
        act_grad += low_rank
        a_grad += tl.dot(tl.trans(z_grad), act)
        target = gate_up_grad + row_start[:, None] * (2 * width) + columns[None, :]
        gate_grad = act_grad * up * sigmoid * (1 + gate * (1 - sigmoid))
        tl.store(target, gate_grad.to(grad.dtype.element_ty), mask=inside)
        tl.store(target + width, (act_grad * gate * sigmoid).to(grad.dtype.element_ty), mask=inside)
    tl.store(lora_a_grad + (chunk * R + ranks[:, None]) * width + columns[None, :], a_grad, mask=column_inside[None, :])


def _common(lora_a: torch.Tensor, probability: float) -> dict:
    return {
        "limit": threshold(probability),
        "scale": 1 / (1 - probability),
        "R": lora_a.shape[0],
        "M1": MULTIPLIER_1,
        "M2": MULTIPLIER_2,
        "BITS": BITS,
    }


def forward(gate_up: torch.Tensor, lora_a: torch.Tensor, seed: torch.Tensor, probability: float) -> torch.Tensor:
    num_rows, (rank, width) = gate_up.shape[0], lora_a.shape
    out = gate_up.new_empty(num_rows, width + rank)
    grid = (triton.cdiv(num_rows, _FORWARD["ROWS"]),)
    _forward_kernel[grid](gate_up, lora_a, seed, out, num_rows, width, **_common(lora_a, probability), **_FORWARD)
    return out


def backward(
    grad: torch.Tensor, gate_up: torch.Tensor, lora_a: torch.Tensor, seed: torch.Tensor, probability: float
) -> tuple[torch.Tensor, torch.Tensor]:
    num_rows, (rank, width) = gate_up.shape[0], lora_a.shape
    gate_up_grad = torch.empty_like(gate_up)
    rows_per_chunk = triton.cdiv(triton.cdiv(num_rows, _ROW_CHUNKS), _BACKWARD["ROWS"]) * _BACKWARD["ROWS"]
    # One part a chunk, added up afterwards in a fixed order: atomic additions would differ from run to run.
    parts = torch.empty(_ROW_CHUNKS, rank, width, device=grad.device, dtype=torch.float32)
    grid = (triton.cdiv(width, _BACKWARD["COLUMNS"]), _ROW_CHUNKS)
    _backward_kernel[grid](
        grad, gate_up, lora_a, seed, gate_up_grad, parts, num_rows, rows_per_chunk, width,
        **_common(lora_a, probability), **_BACKWARD,
    )  # fmt: skip
    return gate_up_grad, parts.sum(dim=0).to(lora_a.dtype)
