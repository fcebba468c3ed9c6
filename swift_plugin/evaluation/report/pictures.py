"""The pictures of the report."""

from __future__ import annotations

import math

import numpy as np
from sklearn.metrics import precision_recall_curve

from swift_plugin.evaluation.command import MODEL
from swift_plugin.evaluation.counting import known_rows, positives
from swift_plugin.evaluation.evaluate import Evaluation
from swift_plugin.evaluation.predictions import HORIZON_NAMES, Predictions
from swift_plugin.evaluation.report.charts import Chart, span
from swift_plugin.evaluation.report.findings import Findings
from swift_plugin.evaluation.report.words import EVENTS, RUN_NAMES
from swift_plugin.stream.spec import CLASS_NAMES, NUM_HORIZONS, STEP_SECONDS

SHOWN_HORIZONS = (0, 1, 4, 9)  # 0.2, 0.4, 1.0 and 2.0 s
CURVE_POINTS = 160
SECONDS = [(horizon + 1) * STEP_SECONDS for horizon in range(NUM_HORIZONS)]


def by_horizon(findings: Findings, value: str, title: str, caption: str) -> str:
    """A value of every forecast over the horizon, the runs with their intervals."""
    rows = {
        name: [entries.get(f"{value}_{at}") for at in HORIZON_NAMES] for name, entries in findings.intervals.items()
    }
    shown = [e for entries in rows.values() for e in entries if e]
    in_bands = [bound for name in findings.runs for e in rows[name] if e for bound in (e.low, e.high)]
    chart = Chart(
        title=title,
        x_label="seconds ahead",
        y_label=title,
        x_range=(SECONDS[0], SECONDS[-1]),
        y_range=span([e.value for e in shown] + in_bands, at_least=0.05),
    )
    styles = {name: f"base-{number}" for number, name in enumerate(findings.baselines)}
    styles |= {name: "run" if name == MODEL else "against" for name in findings.runs}

    def values(name: str, field: str) -> list[float]:
        return [getattr(entry, field) if entry else math.nan for entry in rows[name]]

    for name in findings.runs:
        chart.band(SECONDS, values(name, "low"), values(name, "high"), styles[name])
    for name in [*findings.baselines, *reversed(findings.runs)]:
        chart.line(SECONDS, values(name, "value"), styles[name], RUN_NAMES.get(name, name))
    return chart.render(caption)


def precision_recall(findings: Findings, class_index: int, caption: str) -> str:
    """One class against the rest, a line for each shown horizon."""
    chart = _unit_chart(f"{CLASS_NAMES[class_index]} speaks: precision and recall", "recall", "precision")
    for name in findings.runs:
        forecast = findings.forecasts[name]
        for place, horizon in enumerate(SHOWN_HORIZONS):
            curve = _curve(forecast, horizon, class_index)
            label = f"{SECONDS[horizon]:.1f} s ahead" + _whose(findings, name)
            chart.line(*curve, f"step-{place} {_dash(name)}", label)
    return chart.render(caption)


def event_precision_recall(findings: Findings, caption: str) -> str:
    chart = _unit_chart("Events: precision and recall", "recall", "precision")
    for name in findings.runs:
        for place, (event, title) in enumerate(EVENTS.items()):
            curve = findings.evaluations[name].events[event].precision_recall()
            if curve["recall"].size:
                points = _thin(curve["recall"].size)
                chart.line(
                    curve["recall"][points],
                    curve["precision"][points],
                    f"event-{place} {_dash(name)}",
                    title + _whose(findings, name),
                )
    return chart.render(caption)


def reliability(evaluation: Evaluation, horizon: int, name: str, caption: str) -> str:
    """How often the most likely class was right, over how sure the forecast was."""
    count, confidence, correct = evaluation.metrics.calibration[horizon].T
    used = count > 0
    count, confidence, correct = count[used], confidence[used] / count[used], correct[used] / count[used]
    chart = _unit_chart(f"{SECONDS[horizon]:.1f} s ahead", "how sure", "how often right")
    chart.line([0, 1], [0, 1], "diagonal")
    style = "run" if name == MODEL else "against"
    chart.line(confidence, correct, style)
    largest = count.max(initial=1)
    chart.dots(confidence, correct, 2 + 6 * np.sqrt(count / largest), style)
    return chart.render(caption)


def trade_off(findings: Findings, caption: str) -> str:
    """Median delay of the turns that are taken against the share of false starts, for the runs and the baselines."""
    curves = {name: findings.evaluations[name].trade_off for name in [*findings.baselines, *reversed(findings.runs)]}
    delays = [curve.median_delay[np.isfinite(curve.median_delay)] for curve in curves.values()]
    longest = max((float(delay.max()) for delay in delays if delay.size), default=1.0)
    chart = Chart(
        title="False starts against waiting",
        x_label="false starts, share of all stretches",
        y_label="median delay of taken turns, s",
        x_range=(0, 1),
        y_range=(0, max(longest * 1.05, 0.4)),
        x_format=_percent,
    )
    for number, (name, curve) in enumerate(curves.items()):
        style = f"base-{number}" if name in findings.baselines else "run" if name == MODEL else "against"
        chart.line(curve.false_share, curve.median_delay, style, RUN_NAMES.get(name, name))
    return chart.render(caption)


def turns_taken(findings: Findings, caption: str) -> str:
    """Share of the turns that are taken in time against the share of false starts."""
    chart = _unit_chart("False starts against turns taken", "false starts, share of all stretches", "turns taken")
    for number, name in enumerate([*findings.baselines, *reversed(findings.runs)]):
        curve = findings.evaluations[name].trade_off
        style = f"base-{number}" if name in findings.baselines else "run" if name == MODEL else "against"
        chart.line(curve.false_share, curve.taken_share, style, RUN_NAMES.get(name, name))
    return chart.render(caption)


def _curve(forecast: Predictions, horizon: int, class_index: int) -> tuple[np.ndarray, np.ndarray]:
    """Recall and precision, thinned; empty where the class never comes."""
    rows = known_rows(forecast.targets[:, horizon])
    truth = positives(forecast.targets[rows, horizon])[:, class_index]
    if not truth.any():
        return np.empty(0), np.empty(0)
    precision, recall, _ = precision_recall_curve(truth, forecast.probabilities[rows, horizon, class_index])
    points = _thin(len(recall))
    return recall[points], precision[points]


def _thin(size: int) -> np.ndarray:
    return np.unique(np.linspace(0, size - 1, min(size, CURVE_POINTS)).astype(int))


def _unit_chart(title: str, x_label: str, y_label: str) -> Chart:
    return Chart(
        title=title,
        x_label=x_label,
        y_label=y_label,
        x_range=(0, 1),
        y_range=(0, 1),
        x_format=_percent,
        y_format=_percent,
    )


def _percent(value: float) -> str:
    return f"{value:.0%}"


def _dash(name: str) -> str:
    return "" if name == MODEL else "dashed"


def _whose(findings: Findings, name: str) -> str:
    return f", {RUN_NAMES[name]}" if len(findings.runs) > 1 else ""
