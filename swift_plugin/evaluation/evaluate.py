"""One prediction file judged: metrics, events, the trade-off, and intervals for them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.evaluation.events import EventQuestion, event_questions
from swift_plugin.evaluation.metrics import TurnMetrics, measure
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.ranking import Ranking
from swift_plugin.evaluation.trade_off import TradeOff, trade_off
from swift_plugin.evaluation.uncertainty import Interval, Units, interval, intervals, resample_metrics


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What `evaluate` found.

    Attributes:
        metrics: by horizon and class.
        events: the questions of `events`, by name.
        trade_off: false starts against delay.
        values: `metrics.flat()` and for each event `<event>_asked`, `_happened`, `_AP`, `_ROC`.
        samples: the same values under each resample, [R]; the counts have none.
    """

    metrics: TurnMetrics
    events: dict[str, EventQuestion]
    trade_off: TradeOff
    values: dict[str, float]
    samples: dict[str, np.ndarray]

    @property
    def intervals(self) -> dict[str, Interval]:
        return intervals(self.values, self.samples)


def evaluate(
    predictions: Predictions, units: Units, weights: np.ndarray, *, advance: Callable[[], None] = lambda: None
) -> Evaluation:
    """Judge predictions.

    Args:
        units, weights: from `resampling_units` and `draw_weights`; evaluations with the same ones can be compared.
        advance: called after each of `uncertainty.NUM_CELLS` parts of the work.

    Raises:
        InputError: no target is known.
    """
    if not predictions.known.any():
        raise InputError("no target is known, so there is nothing to compare with; predict sessions that have targets")
    metrics = measure(predictions.probabilities, predictions.targets)
    events = event_questions(predictions)
    values = metrics.flat()
    samples = resample_metrics(predictions.probabilities, predictions.targets, units, weights, advance=advance)
    for name, question in events.items():
        values |= {f"{name}_{key}": value for key, value in question.flat().items()}
        ranking = Ranking(question.happens, question.score, units.unit[question.rows])
        samples[f"{name}_AP"], samples[f"{name}_ROC"] = ranking.resample(weights)
    return Evaluation(
        metrics=metrics, events=events, trade_off=trade_off(predictions), values=values, samples=samples
    )


def paired_differences(first: Evaluation, second: Evaluation) -> dict[str, Interval]:
    """first - second for the values that both have; the two were resampled with the same weights."""
    return {
        name: interval(value - second.values[name], first.samples[name] - second.samples[name])
        for name, value in first.values.items()
        if name in second.values and name in first.samples
    }


def with_probabilities(predictions: Predictions, probabilities: np.ndarray) -> Predictions:
    """Another forecast of the same anchors."""
    return dataclasses.replace(predictions, probabilities=probabilities)


def common_anchors(first: Predictions, second: Predictions) -> tuple[Predictions, Predictions]:
    """The anchors that both have, matched by the session's name and the step, in the order of `first`.

    Raises:
        InputError: no anchor in common, or different targets for one.
    """
    places = {place: row for row, place in enumerate(_places(second))}
    pairs = np.array(
        [(row, places[place]) for row, place in enumerate(_places(first)) if place in places], np.int64
    ).reshape(-1, 2)
    if not len(pairs):
        raise InputError(
            f"no anchor in common; sessions {first.session_names[:3]} and {second.session_names[:3]}: "
            "compare predictions of the same sessions"
        )
    first, second = _take(first, pairs[:, 0]), _take(second, pairs[:, 1])
    same = (first.targets == second.targets) | (np.isnan(first.targets) & np.isnan(second.targets))
    differs = ~same.all(axis=(1, 2))
    if differs.any():
        row = int(differs.argmax())
        raise InputError(
            f"target_index {first.target_index[row]} of session {first.session_names[first.session[row]]!r} "
            "has different targets in the two files; compare predictions made with the same targets"
        )
    return first, second


def _places(predictions: Predictions) -> list[tuple[str, int]]:
    names = predictions.session_names
    return [(names[k], step) for k, step in zip(predictions.session.tolist(), predictions.target_index.tolist())]


def _take(predictions: Predictions, rows: np.ndarray) -> Predictions:
    return Predictions(
        probabilities=predictions.probabilities[rows],
        target_index=predictions.target_index[rows],
        session=predictions.session[rows],
        session_names=predictions.session_names,
        targets=predictions.targets[rows],
    )
