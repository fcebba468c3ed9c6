"""The tables of the report, as HTML."""

from __future__ import annotations

import html
import math
import urllib.parse
from collections.abc import Iterable, Sequence

import numpy as np

from swift_plugin.evaluation.command import AGAINST, MODEL
from swift_plugin.evaluation.evaluate import Evaluation
from swift_plugin.evaluation.predictions import HORIZON_NAMES
from swift_plugin.evaluation.report.findings import Findings
from swift_plugin.evaluation.report.minutes import Minute
from swift_plugin.evaluation.report.words import EVENTS, METRICS, RUN_NAMES, Metric
from swift_plugin.evaluation.tables import FALSE_SHARES
from swift_plugin.evaluation.trade_off import TradeOff
from swift_plugin.evaluation.uncertainty import Interval
from swift_plugin.stream.spec import CLASS_NAMES

MISSING = '<td class="missing">–</td>'


def metric_table(findings: Findings, metric: Metric) -> str:
    """Forecasts in rows, horizons in columns; baselines are marked where the first run clearly differs."""
    rows = []
    for name in [*findings.runs, *findings.baselines]:
        cells = []
        for value in (*(f"{metric.name}_{at}" for at in HORIZON_NAMES), metric.name):
            difference = findings.differences[name].get(value) if name != MODEL else None
            mark = _mark(difference, metric.higher_is_better)
            cells.append(estimate(findings.intervals[name].get(value), f"{name}/{value}", mark))
        rows.append((RUN_NAMES.get(name, name), cells))
    return table(("", *(f"{at[:-1]} s" for at in HORIZON_NAMES), "mean"), rows)


def difference_table(findings: Findings) -> str:
    """This run minus the other one, paired."""
    entries = findings.differences[AGAINST]
    rows = []
    for metric in METRICS:
        cells = []
        for value in (*(f"{metric.name}_{at}" for at in HORIZON_NAMES), metric.name):
            entry = entries.get(value)
            mark = _mark(entry, metric.higher_is_better)
            cells.append(estimate(entry, f"difference/{value}", mark, signed=True))
        rows.append((metric.title, cells))
    return table(("this − other", *(f"{at[:-1]} s" for at in HORIZON_NAMES), "mean"), rows)


def event_table(findings: Findings) -> str:
    """Every event in a row; two runs side by side with their paired difference."""
    two = AGAINST in findings.runs
    header = ["", "asked", "happened"]
    for name in findings.runs:
        suffix = f", {RUN_NAMES[name]}" if two else ""
        header += [f"AP{suffix}", f"ROC AUC{suffix}"]
    header += ["AP, this − other"] if two else []
    rows = []
    for event, title in EVENTS.items():
        values = findings.evaluations[MODEL].values
        cells = [f"<td>{values[f'{event}_{count}']:.0f}</td>" for count in ("asked", "happened")]
        for name in findings.runs:
            for value in (f"{event}_AP", f"{event}_ROC"):
                cells.append(estimate(findings.intervals[name].get(value), f"{name}/{value}"))
        if two:
            entry = findings.differences[AGAINST].get(f"{event}_AP")
            cells.append(estimate(entry, f"difference/{event}_AP", _mark(entry, True), signed=True))
        rows.append((title, cells))
    return table(header, rows)


def trade_off_table(findings: Findings) -> str:
    """What each forecast reaches at a few shares of false starts."""
    header = ["turns taken (their median delay)", *(f"≤ {share:.0%} false starts" for share in FALSE_SHARES)]
    rows = []
    for name in [*findings.runs, *findings.baselines]:
        curve = findings.evaluations[name].trade_off
        cells = [f"<td>{_point(curve, share)}</td>" for share in FALSE_SHARES]
        rows.append((RUN_NAMES.get(name, name), cells))
    return table(header, rows)


def confusion_table(evaluation: Evaluation, horizon: int) -> str:
    """Shares of each true class, as a small square that is darker where more fall."""
    confusion = evaluation.metrics.confusion[horizon]
    head = "".join(f'<th scope="col">{name}</th>' for name in CLASS_NAMES)
    body = []
    for name, counts in zip(CLASS_NAMES, confusion):
        total = counts.sum()
        cells = [
            f'<td style="--share:{count / total:.3f}" title="{count} of {total}">{count / total:.0%}</td>'
            if total
            else MISSING
            for count in counts
        ]
        body.append(f'<tr><th scope="row">{name}</th>{"".join(cells)}</tr>')
    return (
        f'<table class="confusion"><caption>{HORIZON_NAMES[horizon][:-1]} s ahead</caption>'
        f'<thead><tr><td></td>{head}</tr></thead><tbody>{"".join(body)}</tbody></table>'
    )


def minutes_table(minutes: Sequence[Minute], *, two_runs: bool) -> str:
    """Minutes with links that the viewer follows."""
    header = ["minute", "log loss", *(["other run"] if two_runs else []), "right", "who speaks"]
    rows = []
    for minute in minutes:
        link = f"#session={urllib.parse.quote(minute.session, safe='')}&t={minute.start:.1f}"
        place = f"{html.escape(minute.session)}, {clock(minute.start)}"
        cells = [f"<td>{number(loss)}</td>" for loss in minute.log_loss]
        cells += [f"<td>{minute.right:.0%}</td>", f'<td class="strip">{_strip(minute.active)}</td>']
        rows.append((f'<a href="{html.escape(link)}">{place}</a>', cells))
    return _table([html.escape(name) for name in header], rows)


def table(header: Iterable[str], rows: Iterable[tuple[str, list[str]]]) -> str:
    """A table that scrolls inside itself.

    Args:
        rows: a title as plain text and finished cells.
    """
    return _table([html.escape(name) for name in header], [(html.escape(title), cells) for title, cells in rows])


def _table(header: list[str], rows: list[tuple[str, list[str]]]) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in header)
    body = "".join(f'<tr><th scope="row">{title}</th>{"".join(cells)}</tr>' for title, cells in rows)
    return (
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def estimate(entry: Interval | None, name: str, mark: str = "", *, signed: bool = False) -> str:
    """A cell with an estimate and its interval; `<data>` holds the exact value under its name."""
    if entry is None:
        return MISSING
    low, high = number(entry.low, signed=signed), number(entry.high, signed=signed)
    return (
        f'<td><data value="{entry.value!r}" data-name="{html.escape(name)}">{number(entry.value, signed=signed)}</data>'
        f"{mark}<small>{low} … {high}</small></td>"
    )


def number(value: float, *, signed: bool = False) -> str:
    return f"{value:{'+' if signed else ''}.3f}".replace("-", "−") if math.isfinite(value) else "–"


def clock(seconds: float) -> str:
    """1:02:03 or 2:03"""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _mark(difference: Interval | None, higher_is_better: bool) -> str:
    """Whether the first run is better or worse, where the paired interval leaves out zero."""
    if difference is None or not (difference.low > 0 or difference.high < 0):
        return ""
    if (difference.value > 0) == higher_is_better:
        return '<span class="better" title="this run is better">▲</span>'
    return '<span class="worse" title="this run is worse">▼</span>'


def _point(curve: TradeOff, share: float) -> str:
    point = curve.point(share)
    if point is None or not curve.turns:
        return "–"
    delay = curve.median_delay[point]
    return f"{curve.taken_share[point]:.0%}" + ("" if math.isnan(delay) else f" ({delay:.1f} s)")


def _strip(active: np.ndarray) -> str:
    """Bands of self above other."""
    bands = []
    for side, y in ((1, 0), (2, 7)):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], active[:, side], [False]]).astype(np.int8)))
        path = "".join(f"M{start} {y}h{end - start}v6h{start - end}z" for start, end in edges.reshape(-1, 2))
        bands.append(f'<path class="{CLASS_NAMES[side]}" d="{path}"/>')
    return f'<svg viewBox="0 0 300 13" preserveAspectRatio="none" aria-hidden="true">{"".join(bands)}</svg>'
