"""The multi-horizon loss, as sums, so that a mean can be taken over whole optimizer steps and over ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F


@dataclass(frozen=True, kw_only=True)
class LossConfig:
    """
    Attributes:
        class_weights: weight of each of the 3 classes inside the cross-entropy.
        horizon_weights: weight of each of the 10 horizons in the mean.
        focal_gamma: exponent γ of the focal loss (Lin et al. 2017, https://arxiv.org/abs/1708.02002, eq. 4); 0 is off.
        transition_weight: weight of the transition auxiliary beside the main loss.
    """

    class_weights: Sequence[float] | None = None
    horizon_weights: Sequence[float] | None = None
    focal_gamma: float = 0.0
    transition_weight: float = 0.0


def known_rows(targets: torch.Tensor) -> torch.Tensor:
    """Rows without NaN, bool [..., 10] of targets [..., 10, 3]."""
    return ~targets.isnan().any(dim=-1)


def loss_weight(targets: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """The denominator of the mean: summed horizon weights of the known rows of targets [N, 10, 3]; a scalar."""
    return (known_rows(targets) * _horizon_weights(targets, config)).sum()


def multi_horizon_loss(logits: torch.Tensor, targets: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """Cross-entropy with soft targets, summed over the known rows.

    A row's loss is -Σ_c w_c · y_c · (1 - p_c)^γ · log p_c, which is torch's `cross_entropy` with class probabilities
    where γ = 0. Divide by `loss_weight` for the mean.

    Args:
        logits: [N, 10, 3], float32.
        targets: [N, 10, 3]; one-hot, multi-hot or soft; a row with NaN is unknown and does not count.

    Returns:
        a scalar.
    """
    known = known_rows(targets)
    targets = torch.where(known[..., None], targets, 0.0).to(logits.dtype)  # 0 · NaN would reach the gradient
    log_probabilities = F.log_softmax(logits, dim=-1)
    terms = targets * log_probabilities
    if config.focal_gamma:
        terms = terms * (1 - log_probabilities.exp()).pow(config.focal_gamma)
    if config.class_weights is not None:
        terms = terms * torch.tensor(config.class_weights, dtype=logits.dtype, device=logits.device)
    return -(terms.sum(dim=-1) * _horizon_weights(targets, config)).sum()


def transition_targets(targets: torch.Tensor) -> torch.Tensor:
    """How far the class changes at each horizon, 1 - Σ_c y_{h-1,c} · y_{h,c}; NaN where either row is unknown.

    Args:
        targets: [N, 11, 3], the row of the anchor's own step before its ten horizons.

    Returns:
        [N, 10], 0 or 1 for one-hot targets.
    """
    return 1 - (targets[:, :-1] * targets[:, 1:]).sum(dim=-1).clamp(max=1)


def transition_weight(targets: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """The denominator of the auxiliary's mean for targets [N, 11, 3]; a scalar."""
    known = ~transition_targets(targets).isnan()
    return (known * _horizon_weights(targets[:, 1:], config)).sum()


def transition_loss(logits: torch.Tensor, targets: torch.Tensor, config: LossConfig) -> torch.Tensor:
    """Binary cross-entropy of "the class changes at this horizon", summed over the known transitions.

    Args:
        logits: [N, 10].
        targets: [N, 11, 3].
    """
    changes = transition_targets(targets)
    known = ~changes.isnan()
    terms = F.binary_cross_entropy_with_logits(logits, changes.nan_to_num().to(logits.dtype), reduction="none")
    return (terms * known * _horizon_weights(targets[:, 1:], config)).sum()


def _horizon_weights(targets: torch.Tensor, config: LossConfig) -> torch.Tensor:
    if config.horizon_weights is None:
        return targets.new_ones(targets.shape[-2])
    return torch.tensor(config.horizon_weights, dtype=targets.dtype, device=targets.device)
