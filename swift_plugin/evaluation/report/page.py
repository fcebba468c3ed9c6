"""Puts the page together."""

from __future__ import annotations

import html
import json
from importlib import resources
from string import Template

from swift_plugin.evaluation.command import AGAINST, MODEL
from swift_plugin.evaluation.events import OTHER, SELF
from swift_plugin.evaluation.predictions import HORIZON_NAMES
from swift_plugin.evaluation.report import pictures, tables
from swift_plugin.evaluation.report.findings import Findings
from swift_plugin.evaluation.report.media import Media
from swift_plugin.evaluation.report.minutes import rank_minutes
from swift_plugin.evaluation.report.replay import pack_replay
from swift_plugin.evaluation.report.words import METRICS, RUN_NAMES
from swift_plugin.evaluation.uncertainty import MIN_SESSIONS, Interval
from swift_plugin.stream.spec import CLASS_NAMES, NUM_HORIZONS

SHOWN_MINUTES = 5
SCRIPTS = ("session.js", "canvas.js", "viewer.js")
HEADLINES = {
    "mAP": "mAP, mean of ten horizons",
    "mAP_0.4s": "mAP, 0.4 s ahead",
    "log_loss": "log loss",
    "onset_self_AP": "self starts within 2 s, AP",
    "shift_AP": "shift at a turn's end, AP",
}


def build_page(findings: Findings, media: Media | None, session_of_media: str | None) -> str:
    """The whole page as HTML.

    Args:
        session_of_media: the session that `media` shows.
    """
    return Template(_text("page.html")).substitute(
        title=html.escape(" against ".join(findings.files.values())),
        style=_text("style.css"),
        summary=_summary(findings),
        headlines=_headlines(findings),
        media=_media(media),
        replay=_replay(findings, session_of_media),
        horizon_charts=_horizon_charts(findings),
        difference=_difference(findings),
        metric_tables=_metric_tables(findings),
        curves=_curves(findings),
        reliability=_reliability(findings),
        confusion=_confusion(findings),
        event_table=tables.event_table(findings),
        event_curve=_event_curve(findings),
        trade_off=_trade_off(findings),
        minutes=_minutes(findings),
        script="".join(_text(name) for name in SCRIPTS),
    )


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _summary(findings: Findings) -> str:
    unknown = findings.evaluations[MODEL].values["cells_without_positives"]
    facts = [f"{RUN_NAMES[run].capitalize()}: <b>{html.escape(file)}</b>." for run, file in findings.files.items()]
    names = findings.session_names
    sessions = f"<b>{len(names)}</b> session{'s' * (len(names) != 1)}"
    facts.append(
        f"{sessions}, <b>{len(findings.predictions):,}</b> anchors, <b>{_duration(findings.hours)}</b> of talk. "
        "An anchor is one moment at which the model forecasts the next ten steps of 0.2 s."
    )
    if AGAINST in findings.runs:
        facts.append("Only the anchors that both files hold are judged.")
    units = "sessions" if findings.units.kind == "session" else "stretches of at most a minute"
    facts.append(
        f"Intervals hold 95 % of {findings.resamples:,} bootstrap resamples, which draw from {findings.units.count} "
        f"{units}."
    )
    if findings.units.count < MIN_SESSIONS:
        facts.append("<b>That is too few units to trust the intervals.</b>")
    if unknown:
        facts.append(
            f"{unknown:.0f} of 30 cells (horizon × class) never come true in this data; they have no average precision "
            "and are left out of the means."
        )
    if findings.temperature:
        facts.append(f"The temperatures of <b>{html.escape(findings.temperature)}</b> were applied to this run.")
    return "".join(f"<p>{fact}</p>" for fact in facts)


def _duration(hours: float) -> str:
    return f"{hours:.1f} hours" if hours >= 1 else f"{hours * 60:.1f} minutes"


def _headlines(findings: Findings) -> str:
    cards = []
    for value, title in HEADLINES.items():
        estimate = _estimate(findings.intervals[MODEL].get(value)) + _cases(findings, value)
        if AGAINST in findings.runs and value in findings.differences[AGAINST]:
            estimate += _versus(findings.differences[AGAINST][value])
        cards.append(f'<div class="card"><h3>{title}</h3>{estimate}</div>')
    return "".join(cards)


def _estimate(entry: Interval | None) -> str:
    if entry is None:
        return '<p class="big">–</p><p class="interval">nothing of this kind in the data</p>'
    low, high = tables.number(entry.low), tables.number(entry.high)
    value = tables.number(entry.value)
    return f'<p class="big">{value}</p><p class="interval">95 %: <span>{low} … {high}</span></p>'


def _cases(findings: Findings, value: str) -> str:
    """How many events an average precision rests on: where all cases happen it is 1, whatever was forecast."""
    values, event = findings.evaluations[MODEL].values, value.removesuffix("_AP")
    if f"{event}_asked" not in values:
        return ""
    happened, asked = (f"{values[f'{event}_{count}']:,.0f}" for count in ("happened", "asked"))
    return f'<p class="interval">{happened} of {asked} cases happened</p>'


def _versus(entry: Interval) -> str:
    value, low, high = (tables.number(part, signed=True) for part in (entry.value, entry.low, entry.high))
    return f'<p class="versus">{value} against the other run<br>{low} … {high}</p>'


def _media(media: Media | None) -> str:
    if media is None:
        return '<p class="note">No film or sound was given; “Play” advances a clock.</p>'
    tag = "video" if media.film else "audio"
    source = html.escape(media.source)
    return (
        f'<{tag} id="media" src="{source}" controls playsinline preload="auto"></{tag}>'
        f'<p class="note" id="media-note">{html.escape(media.note)}</p>'
    )


def _replay(findings: Findings, session_of_media: str | None) -> str:
    """JSON in a script element, where only `<` could end it."""
    content = {
        "runs": [RUN_NAMES[name] for name in findings.runs],
        "sessions": pack_replay([findings.forecasts[name] for name in findings.runs]),
        "media_session": session_of_media,
    }
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _horizon_charts(findings: Findings) -> str:
    band = "The shaded band is the 95 % interval."
    return pictures.by_horizon(findings, "mAP", "mAP", f"Higher is better. {band}") + pictures.by_horizon(
        findings, "log_loss", "log loss", f"Lower is better. {band}"
    )


def _difference(findings: Findings) -> str:
    if AGAINST not in findings.runs:
        return ""
    return (
        "<h3>This run minus the other run</h3>"
        "<p>Both runs were resampled together, so an interval that leaves out zero is a difference that more data of "
        'this kind would hardly turn round: <span class="better">▲</span> this run is better, '
        '<span class="worse">▼</span> it is worse.</p>' + tables.difference_table(findings)
    )


def _metric_tables(findings: Findings) -> str:
    return "".join(
        f"<details{' open' * (number == 0)}><summary>{metric.title}</summary><p>{metric.meaning}</p>"
        f"{tables.metric_table(findings, metric)}</details>"
        for number, metric in enumerate(METRICS)
    )


def _curves(findings: Findings) -> str:
    caption = (
        "Each point is one threshold: of the steps in which {} speaks, the share that is found (recall), and the share "
        "of what is found that is right (precision)."
    )
    return "".join(
        pictures.precision_recall(findings, index, caption.format(CLASS_NAMES[index])) for index in (SELF, OTHER)
    )


def _reliability(findings: Findings) -> str:
    charts = []
    for name in findings.runs:
        title = f"<h4>{RUN_NAMES[name]}</h4>" if len(findings.runs) > 1 else ""
        evaluation = findings.evaluations[name]
        panels = []
        for horizon in pictures.SHOWN_HORIZONS:
            ece = evaluation.values.get(f"ece_{HORIZON_NAMES[horizon]}")
            caption = "" if ece is None else f"calibration error {tables.number(ece)}"
            panels.append(pictures.reliability(evaluation, horizon, name, caption))
        charts.append(f'{title}<div class="charts four">{"".join(panels)}</div>')
    return "".join(charts)


def _confusion(findings: Findings) -> str:
    parts = []
    for name in findings.runs:
        title = f"<h4>{RUN_NAMES[name]}</h4>" if len(findings.runs) > 1 else ""
        squares = "".join(tables.confusion_table(findings.evaluations[name], h) for h in range(NUM_HORIZONS))
        parts.append(f'{title}<div class="squares">{squares}</div>')
    return "".join(parts)


def _event_curve(findings: Findings) -> str:
    return pictures.event_precision_recall(
        findings, "A line is missing where the event never happens. Few events make a ragged line."
    )


def _trade_off(findings: Findings) -> str:
    curve = findings.evaluations[MODEL].trade_off
    count = f"{curve.turns} turns in {curve.stretches} stretches of others' talk"
    charts = pictures.trade_off(
        findings, "Over the turns that are taken; how many those are stands in the other picture. Down and left is better."
    ) + pictures.turns_taken(findings, f"{count}. Up and to the left is better.")
    return f'<div class="charts">{charts}</div>{tables.trade_off_table(findings)}'


def _minutes(findings: Findings) -> str:
    ranked = rank_minutes([findings.forecasts[name] for name in findings.runs])
    shown = min(SHOWN_MINUTES, (len(ranked) + 1) // 2)
    two_runs = len(findings.runs) > 1
    best = ranked[len(ranked) - min(shown, len(ranked) - shown) :][::-1]
    parts = [f"<h3>Worst</h3>{tables.minutes_table(ranked[:shown], two_runs=two_runs)}"]
    if best:
        parts.append(f"<h3>Best</h3>{tables.minutes_table(best, two_runs=two_runs)}")
    return "".join(parts)
