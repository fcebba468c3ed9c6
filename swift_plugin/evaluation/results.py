"""What `swift-turn evaluate` writes: plain dicts and lists for JSON; a value that does not exist is null."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from swift_plugin.evaluation.evaluate import Evaluation
from swift_plugin.evaluation.events import EventQuestion
from swift_plugin.evaluation.predictions import HORIZON_NAMES
from swift_plugin.evaluation.trade_off import TradeOff
from swift_plugin.evaluation.uncertainty import Interval
from swift_plugin.stream.spec import CLASS_NAMES

_CURVE_POINTS = 200  # of a precision-recall curve in the file


def describe(evaluation: Evaluation) -> dict[str, Any]:
    """Everything about one forecast."""
    metrics = evaluation.metrics
    return {
        "values": dict(evaluation.values),
        "intervals": describe_intervals(evaluation.intervals),
        "by_horizon": {
            "horizons": list(HORIZON_NAMES),
            "classes": list(CLASS_NAMES),
            **{
                name: plain(getattr(metrics, name))
                for name in (
                    "known",
                    "positives",
                    "average_precision",
                    "roc_auc",
                    "balanced_accuracy",
                    "log_loss",
                    "brier",
                    "ece",
                    "confusion",
                    "calibration",
                )
            },
        },
        "events": {name: _describe_event(question) for name, question in evaluation.events.items()},
        "trade_off": describe_trade_off(evaluation.trade_off),
    }


def describe_intervals(intervals: dict[str, Interval]) -> dict[str, list[float | None]]:
    """name -> [value, low, high]"""
    return {name: plain(dataclasses.astuple(entry)) for name, entry in intervals.items()}


def describe_trade_off(curve: TradeOff) -> dict[str, Any]:
    return {name: plain(value) for name, value in dataclasses.asdict(curve).items()}


def plain(value: Any) -> Any:
    """Arrays, numbers and containers of them as JSON has them; NaN and infinity as null."""
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def _describe_event(question: EventQuestion) -> dict[str, Any]:
    curve = question.precision_recall()
    points = len(curve["threshold"])
    chosen = np.unique(np.linspace(0, points - 1, min(points, _CURVE_POINTS)).astype(int)) if points else slice(0)
    return {**question.flat(), "precision_recall": {name: plain(values[chosen]) for name, values in curve.items()}}
