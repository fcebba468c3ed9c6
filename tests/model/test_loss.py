"""The loss against torch's own cross-entropy, and against formulas worked out by hand."""

import math

import pytest
import torch
import torch.nn.functional as F

from swift_plugin.model.loss import (
    LossConfig,
    known_rows,
    loss_weight,
    multi_horizon_loss,
    transition_loss,
    transition_targets,
    transition_weight,
)

NAN = float("nan")


def random_logits(anchors: int = 4) -> torch.Tensor:
    return torch.randn(anchors, 10, 3, generator=torch.Generator().manual_seed(0))


def random_targets(anchors: int = 4, *, soft: bool = False) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    if soft:
        return torch.rand(anchors, 10, 3, generator=generator).softmax(dim=-1)
    return F.one_hot(torch.randint(0, 3, (anchors, 10), generator=generator), 3).float()


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("class_weights", [None, [0.5, 2.0, 1.5]])
def test_the_sum_is_that_of_torchs_cross_entropy(soft, class_weights):
    logits, targets = random_logits(), random_targets(soft=soft)
    weight = None if class_weights is None else torch.tensor(class_weights)
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten(0, 1), weight=weight, reduction="sum")
    assert multi_horizon_loss(logits, targets, LossConfig(class_weights=class_weights)) == pytest.approx(expected.item(), rel=1e-6)


def test_one_row_by_hand():
    """p = softmax(log 1, log 2, log 5) = (1, 2, 5) / 8, the target is the second class: -log(2/8)."""
    logits, targets = torch.zeros(1, 10, 3), torch.full((1, 10, 3), NAN)
    logits[0, 3] = torch.tensor([1.0, 2.0, 5.0]).log()
    targets[0, 3] = torch.tensor([0.0, 1.0, 0.0])
    assert multi_horizon_loss(logits, targets, LossConfig()).item() == pytest.approx(math.log(4))
    assert loss_weight(targets, LossConfig()) == 1
    focal = multi_horizon_loss(logits, targets, LossConfig(focal_gamma=2.0))
    assert focal.item() == pytest.approx(0.75**2 * math.log(4))  # (1 - p)^γ, Lin et al. 2017, equation 4
    weights = [0.0] * 3 + [3.0] + [1.0] * 6
    assert multi_horizon_loss(logits, targets, LossConfig(horizon_weights=weights)).item() == pytest.approx(3 * math.log(4))
    assert loss_weight(targets, LossConfig(horizon_weights=weights)) == 3


def test_unknown_rows_count_nowhere():
    logits, targets = random_logits().requires_grad_(), random_targets()
    targets[0, 2:5] = NAN
    targets[2, 7, 1] = NAN  # a row that is partly unknown is unknown
    known = ~targets.isnan().any(dim=-1)
    loss = multi_horizon_loss(logits, targets, LossConfig())
    assert loss.item() == pytest.approx(F.cross_entropy(logits[known], targets[known], reduction="sum").item(), rel=1e-6)
    assert loss_weight(targets, LossConfig()) == known.sum() == 36
    assert torch.equal(known_rows(targets), known)
    loss.backward()
    assert logits.grad.isfinite().all()
    assert not logits.grad[~known].any()
    assert logits.grad[known].any(dim=-1).all()


@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_a_batch_without_a_known_row_gives_zero_and_no_gradient(gamma):
    logits = random_logits().requires_grad_()
    loss = multi_horizon_loss(logits, torch.full((4, 10, 3), NAN), LossConfig(focal_gamma=gamma))
    loss.backward()
    assert loss == 0
    assert not logits.grad.any()


def test_horizon_weights_make_a_weighted_mean():
    logits, targets = random_logits(), random_targets()
    targets[1, 4] = NAN
    weights = torch.linspace(1, 2, 10)
    rows = F.cross_entropy(logits.flatten(0, 1), targets.nan_to_num().flatten(0, 1), reduction="none").view(4, 10)
    counted = weights.expand(4, 10) * known_rows(targets)
    config = LossConfig(horizon_weights=weights.tolist())
    mean = multi_horizon_loss(logits, targets, config) / loss_weight(targets, config)
    assert mean.item() == pytest.approx(((rows * counted).sum() / counted.sum()).item(), rel=1e-6)


def test_sums_of_parts_are_the_sum_of_the_whole():
    logits, targets = random_logits(), random_targets()
    targets[3, 1:9] = NAN
    config = LossConfig(class_weights=[1, 2, 3], focal_gamma=1.0)
    parts = sum(multi_horizon_loss(logits[i : i + 1], targets[i : i + 1], config) for i in range(4))
    assert multi_horizon_loss(logits, targets, config).item() == pytest.approx(parts.item(), rel=1e-6)
    assert loss_weight(targets, config) == sum(loss_weight(targets[i : i + 1], config) for i in range(4)) == 32


def steps(*classes: int | None) -> torch.Tensor:
    rows = [[NAN] * 3 if c is None else [float(c == k) for k in range(3)] for c in classes]
    return torch.tensor([rows])  # [1, 11, 3]


def test_transitions_by_hand():
    """The first row is the anchor's own step; a transition is unknown where either side is."""
    targets = steps(0, 0, 1, 1, None, 2, 2, 0, 0, 0, 1)
    expected = torch.tensor([[0, 1, 0, NAN, NAN, 0, 1, 0, 0, 1]])
    assert torch.equal(transition_targets(targets).nan_to_num(-1), expected.nan_to_num(-1))
    assert transition_weight(targets, LossConfig()) == 8
    logits = torch.linspace(-2, 2, 10)[None].requires_grad_()
    known = ~expected.isnan()
    reference = F.binary_cross_entropy_with_logits(logits[known], expected[known], reduction="sum")
    loss = transition_loss(logits, targets, LossConfig())
    assert loss.item() == pytest.approx(reference.item(), rel=1e-6)
    loss.backward()
    assert not logits.grad[~known].any() and logits.grad.isfinite().all()


def test_a_soft_change_is_one_minus_the_chance_that_both_are_the_same():
    targets = torch.full((1, 11, 3), 1 / 3)
    assert transition_targets(targets)[0, 0].item() == pytest.approx(2 / 3)
