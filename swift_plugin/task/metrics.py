"""`--eval_metric turn`: the metrics of `swift-turn evaluate` inside the Trainer's evaluation."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from swift.metrics.base import EvalMetrics
from transformers.trainer_utils import EvalPrediction

from swift_plugin.evaluation.metrics import name_values, turn_metrics
from swift_plugin.model.loss import (
    LossConfig,
    loss_weight,
    multi_horizon_loss,
    transition_loss,
    transition_targets,
    transition_weight,
)
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS

ABSENT = float("inf")  # stands in the labels where a row of the dataset has fewer than ten anchors


class TurnMetrics(EvalMetrics):
    def compute_metrics(self, eval_prediction: EvalPrediction) -> dict[str, float]:
        """
        Args:
            eval_prediction: logits [rows, 10 anchors, 10, 3], with the transition auxiliary also [rows, 10 anchors, 10],
                and labels [rows, 10 anchors, 11, 3].

        Returns:
            all metrics, and `loss`: the mean over all known anchor-horizons, which replaces the Trainer's mean of
            the means of batches. It is that of the main output alone, so that heads with and without the auxiliary
            compare; the auxiliary has `transition_loss` and `transition_AP`.
        """
        predictions, labels = eval_prediction.predictions, eval_prediction.label_ids
        logits, transitions = predictions if isinstance(predictions, tuple) else (predictions, None)
        present = ~np.isinf(labels).any(axis=(2, 3))
        labels = torch.from_numpy(labels[present])
        logits, targets = torch.from_numpy(logits[present]).double(), labels[:, 1:]
        config = self.args.turn_options.loss_config()
        loss = multi_horizon_loss(logits, targets, config) / loss_weight(targets, config)
        metrics = {**turn_metrics(logits.softmax(dim=-1).numpy(), targets.numpy()), "loss": float(loss)}
        if transitions is not None:
            metrics |= transition_metrics(torch.from_numpy(transitions[present]).double(), labels, config)
        return metrics


def metric_names(*, transition_auxiliary: bool) -> list[str]:
    """All names that an evaluation can give, for `--metric_for_best_model`."""
    cells, rows = np.zeros((NUM_HORIZONS, NUM_CLASSES)), np.zeros(NUM_HORIZONS)
    values = name_values(
        average_precision=cells, roc_auc=cells, balanced_accuracy=rows, log_loss=rows, brier=rows, ece=rows
    )
    return ["loss", *values, *(["transition_loss", "transition_AP"] if transition_auxiliary else [])]


def transition_metrics(logits: torch.Tensor, labels: torch.Tensor, config: LossConfig) -> dict[str, float]:
    """How well the auxiliary tells that the class changes at a horizon.

    Args:
        logits: [N, 10].
        labels: [N, 11, 3], the row of the anchor's own step before its ten horizons.

    Returns:
        `transition_loss`, the mean over known transitions, and `transition_AP`, average precision over all of them
        (scikit-learn); each only where it exists.
    """
    changes = transition_targets(labels)
    known = ~changes.isnan()
    if not known.any():
        return {}
    found = {"transition_loss": float(transition_loss(logits, labels, config) / transition_weight(labels, config))}
    positive = (changes[known] > 0.5).numpy()
    if positive.any():
        found["transition_AP"] = float(average_precision_score(positive, logits[known].numpy()))
    return found
