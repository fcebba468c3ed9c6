"""The tables that `swift-turn evaluate` prints."""

from __future__ import annotations

import math

from rich.table import Table

from swift_plugin.evaluation.evaluate import Evaluation
from swift_plugin.evaluation.trade_off import TradeOff
from swift_plugin.evaluation.uncertainty import Interval

FALSE_SHARES = (0.05, 0.1, 0.2, 0.4)
HORIZONS = ("0.2s", "0.4s", "1.0s", "2.0s")
_METRICS = {
    "mAP": "mAP",
    "AP self": "AP_self",
    "AP other": "AP_other",
    "balanced accuracy": "balanced_accuracy",
    "log loss": "log_loss",
    "Brier": "brier",
    "ECE": "ece",
}
_EVENTS = {
    "onset_self": "self starts within 2 s",
    "onset_other": "other starts within 2 s",
    "shift": "shift, not hold, at a turn's end",
    "overlap": "both at once within 2 s",
}


def metrics_table(evaluation: Evaluation) -> Table:
    """Metrics in rows, horizons in columns, with intervals."""
    table = Table("", *HORIZONS, "mean of 10", title="metrics by horizon, with 95 % intervals", title_justify="left")
    entries = evaluation.intervals
    for title, name in _METRICS.items():
        names = [*(f"{name}_{at}" for at in HORIZONS), name]
        table.add_row(title, *(_show(entries.get(name)) for name in names))
    return table


def events_table(evaluation: Evaluation) -> Table:
    table = Table("", "asked", "happened", "AP", "ROC AUC", title="events, with 95 % intervals", title_justify="left")
    values, entries = evaluation.values, evaluation.intervals
    for name, title in _EVENTS.items():
        counts = (f"{values[f'{name}_{count}']:.0f}" for count in ("asked", "happened"))
        table.add_row(title, *counts, _show(entries.get(f"{name}_AP")), _show(entries.get(f"{name}_ROC")))
    return table


def baselines_table(model: Evaluation, baselines: dict[str, Evaluation]) -> Table:
    """The model and each baseline in a row."""
    table = Table("", *(f"mAP {at}" for at in HORIZONS), "log loss", "self starts, AP", "shift, AP", "turns taken")
    table.title, table.title_justify = "against label history alone; turns taken at 20 % false starts", "left"
    for name, evaluation in {"these predictions": model, **baselines}.items():
        values = evaluation.values
        cells = [*(f"mAP_{at}" for at in HORIZONS), "log_loss", "onset_self_AP", "shift_AP"]
        table.add_row(name, *(_number(values.get(cell)) for cell in cells), _start(evaluation.trade_off, 0.2)[0])
    return table


def trade_off_table(evaluation: Evaluation) -> Table:
    curve = evaluation.trade_off
    title = f"starting in the wearer's place, {curve.turns} turns, {curve.stretches} stretches of others' talk"
    table = Table("false starts, at most", "turns taken", "their median delay", title=title, title_justify="left")
    for share in FALSE_SHARES:
        table.add_row(f"{share:.0%}", *_start(curve, share))
    return table


def _start(curve: TradeOff, false_share: float) -> tuple[str, str]:
    point = curve.point(false_share)
    if point is None or not curve.turns:
        return "–", "–"
    delay = curve.median_delay[point]
    return f"{curve.taken_share[point]:.0%}", "–" if math.isnan(delay) else f"{delay:.1f} s"


def differences_table(differences: dict[str, Interval]) -> Table:
    """this - other; a star where the interval leaves zero out."""
    table = Table("", *HORIZONS, "mean of 10", title_justify="left")
    table.title = "difference to the other file, paired; * where the 95 % interval leaves out zero"
    for title, name in _METRICS.items():
        entries = [differences.get(cell) for cell in (*(f"{name}_{at}" for at in HORIZONS), name)]
        table.add_row(title, *(_show(entry, signed=True) for entry in entries))
    return table


def _show(entry: Interval | None, *, signed: bool = False) -> str:
    if entry is None:
        return "–"
    sign = "+" if signed else ""
    star = "*" if signed and (entry.low > 0 or entry.high < 0) else ""
    return f"{entry.value:{sign}.3f} ({entry.low:{sign}.3f} … {entry.high:{sign}.3f}){star}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
