"""Each option of the loss against its formula, written out row by row in float64, and inside `compute_loss`.

Sources: cross-entropy with class probabilities, https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html;
focal factor (1 - p)^γ, Lin et al. 2017, https://arxiv.org/abs/1708.02002, eq. 4.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from task.helpers_run import Job, train

from swift_plugin.model.loss import LossConfig, loss_weight, multi_horizon_loss, transition_loss, transition_weight
from swift_plugin.task.collator import OpenStreamCollator

CLASS_WEIGHTS = [0.5, 2.0, 1.25]
HORIZON_WEIGHTS = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.0]
OPTIONS = {
    "plain": {},
    "class weights": {"class_weights": CLASS_WEIGHTS},
    "horizon weights": {"horizon_weights": HORIZON_WEIGHTS},
    "focal": {"focal_gamma": 2.0},
    "all": {"class_weights": CLASS_WEIGHTS, "horizon_weights": HORIZON_WEIGHTS, "focal_gamma": 1.5},
}


def written_loss(logits, targets, *, class_weights=(1, 1, 1), horizon_weights=(1,) * 10, focal_gamma=0.0) -> float:
    """Σ_known v_h · (-Σ_c w_c y_c (1 - p_c)^γ log p_c) / Σ_known v_h."""
    total = weight = 0.0
    for anchor in range(len(logits)):
        for horizon in range(10):
            y = [float(value) for value in targets[anchor][horizon]]
            if any(math.isnan(value) for value in y):
                continue
            scores = [math.exp(float(value)) for value in logits[anchor][horizon]]
            p = [score / sum(scores) for score in scores]
            row = sum(class_weights[c] * y[c] * (1 - p[c]) ** focal_gamma * math.log(p[c]) for c in range(3))
            total -= horizon_weights[horizon] * row
            weight += horizon_weights[horizon]
    return total / weight


def written_transition_loss(logits, targets, *, horizon_weights=(1,) * 10) -> float:
    """Σ_known v_h · binary cross-entropy of 1 - <y_{h-1}, y_h> / Σ_known v_h."""
    total = weight = 0.0
    for anchor in range(len(logits)):
        for horizon in range(10):
            before, now = targets[anchor][horizon], targets[anchor][horizon + 1]
            change = 1 - min(1.0, sum(float(a) * float(b) for a, b in zip(before, now)))
            if math.isnan(sum(map(float, before)) + sum(map(float, now))):
                continue
            p = 1 / (1 + math.exp(-float(logits[anchor][horizon])))
            total -= horizon_weights[horizon] * (change * math.log(p) + (1 - change) * math.log(1 - p))
            weight += horizon_weights[horizon]
    return total / weight


@pytest.fixture
def rows():
    """Logits, and targets of 11 steps: one-hot, soft, multi-hot and unknown rows."""
    random = np.random.default_rng(3)
    targets = np.eye(3)[random.integers(0, 3, (6, 11))]
    targets[1] = random.dirichlet([1, 1, 1], 11)
    targets[2, 4] = [0, 1, 1]
    targets[random.random((6, 11)) < 0.2] = np.nan
    return torch.from_numpy(random.normal(size=(6, 10, 3))), torch.from_numpy(random.normal(size=(6, 10))), torch.from_numpy(targets)


@pytest.mark.parametrize("name", OPTIONS)
def test_the_loss_is_its_formula(rows, name):
    logits, _, targets = rows
    config = LossConfig(**OPTIONS[name])
    ours = multi_horizon_loss(logits, targets[:, 1:], config) / loss_weight(targets[:, 1:], config)
    assert ours.dtype == torch.float64
    assert ours.item() == pytest.approx(written_loss(logits, targets[:, 1:], **OPTIONS[name]), rel=1e-12)


@pytest.mark.parametrize("weights", [None, HORIZON_WEIGHTS])
def test_the_auxiliary_is_its_formula(rows, weights):
    _, logits, targets = rows
    config = LossConfig(horizon_weights=weights, transition_weight=0.3)
    ours = transition_loss(logits, targets, config) / transition_weight(targets, config)
    assert ours.item() == pytest.approx(written_transition_loss(logits, targets, horizon_weights=weights or (1,) * 10), rel=1e-12)


def test_without_options_it_is_torchs_cross_entropy(rows):
    logits, _, targets = rows
    known = ~targets[:, 1:].isnan().any(dim=-1)
    ours = multi_horizon_loss(logits, targets[:, 1:], LossConfig()) / known.sum()
    torch.testing.assert_close(ours, F.cross_entropy(logits[known], targets[:, 1:][known]))


def test_an_unknown_row_gives_no_gradient_and_no_nan(rows):
    logits, _, targets = rows
    logits.requires_grad_()
    multi_horizon_loss(logits, targets[:, 1:], LossConfig(focal_gamma=2.0)).backward()
    known = ~targets[:, 1:].isnan().any(dim=-1)
    assert logits.grad.isfinite().all() and not logits.grad[~known].any() and logits.grad[known].any()


def test_the_options_reach_the_trainer(tiny_checkpoint, sessions, tmp_path):
    """One batch of the session as the Trainer scores it: main loss with all options + 0.3 · auxiliary."""
    turn = {f"turn_{name}": value for name, value in OPTIONS["all"].items()}
    turn |= {"turn_head_transition_auxiliary": True, "turn_transition_weight": 0.3, "turn_freeze_thinker": True}
    job = Job(
        model=tiny_checkpoint, output=tmp_path / "out", train=sessions["short"], options={"max_steps": 1}, turn=turn
    )
    trainer = train(job).trainer
    trainer.model.eval()
    batch = OpenStreamCollator()([trainer.train_dataset[index] for index in range(3)])
    labels = batch["labels"][batch["present"]]
    with torch.no_grad():
        loss, output = trainer.compute_loss(trainer.model, batch, return_outputs=True)
    main = written_loss(output.logits, labels[:, 1:], **OPTIONS["all"])
    auxiliary = written_transition_loss(output.transition_logits, labels, horizon_weights=HORIZON_WEIGHTS)
    assert loss.item() == pytest.approx(main + 0.3 * auxiliary, rel=1e-5)
