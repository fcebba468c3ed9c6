"""`--eval_metric turn`: the metrics of `swift-turn evaluate` inside the Trainer's evaluation."""

from __future__ import annotations

import numpy as np
import torch
from swift.metrics.base import EvalMetrics
from transformers.trainer_utils import EvalPrediction

from swift_plugin.evaluation.metrics import turn_metrics
from swift_plugin.model.loss import loss_weight, multi_horizon_loss

ABSENT = float("inf")  # stands in the labels where a row of the dataset has fewer than ten anchors


class TurnMetrics(EvalMetrics):
    def compute_metrics(self, eval_prediction: EvalPrediction) -> dict[str, float]:
        """
        Args:
            eval_prediction: logits [rows, 10 anchors, 10, 3] and labels [rows, 10 anchors, 11, 3].

        Returns:
            all metrics, and `loss`: the mean over all known anchor-horizons, which replaces the Trainer's mean of
            the means of batches.
        """
        logits, labels = eval_prediction.predictions, eval_prediction.label_ids
        present = ~np.isinf(labels).any(axis=(2, 3))
        logits = torch.from_numpy(logits[present]).double()
        targets = torch.from_numpy(labels[present][:, 1:])
        config = self.args.turn_options.loss_config()
        loss = multi_horizon_loss(logits, targets, config) / loss_weight(targets, config)
        return {**turn_metrics(logits.softmax(dim=-1).numpy(), targets.numpy()), "loss": float(loss)}
