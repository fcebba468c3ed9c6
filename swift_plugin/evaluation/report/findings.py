"""Everything that the page shows, computed by the functions of `swift-turn evaluate`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property

from swift_plugin.evaluation.command import AGAINST, MODEL, add_baselines, evaluate_forecasts, load_forecasts
from swift_plugin.evaluation.evaluate import Evaluation, paired_differences
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.uncertainty import Interval, Units
from swift_plugin.stream.spec import STEP_SECONDS


@dataclass(frozen=True, kw_only=True)
class Findings:
    """
    Attributes:
        files: run -> the path of its file; the runs are `MODEL` and, where there is one, `AGAINST`.
        forecasts, evaluations: of each run and baseline, by name.
        baselines: their names.
        units, resamples: of the bootstrap.
        temperature: the file of the temperatures that were applied to the first run.
    """

    files: dict[str, str]
    forecasts: dict[str, Predictions]
    evaluations: dict[str, Evaluation]
    baselines: list[str]
    units: Units
    resamples: int
    temperature: str | None

    @property
    def predictions(self) -> Predictions:
        return self.forecasts[MODEL]

    @property
    def runs(self) -> list[str]:
        return list(self.files)

    @property
    def session_names(self) -> list[str]:
        """Those that have anchors."""
        names = self.predictions.session_names
        return [names[k] for k in sorted(set(self.predictions.session.tolist()))]

    @property
    def hours(self) -> float:
        return len(self.predictions) * STEP_SECONDS / 3600

    @cached_property
    def intervals(self) -> dict[str, dict[str, Interval]]:
        """forecast -> value's name -> estimate with interval"""
        return {name: evaluation.intervals for name, evaluation in self.evaluations.items()}

    @cached_property
    def differences(self) -> dict[str, dict[str, Interval]]:
        """other forecast -> value's name -> first run minus the other, paired"""
        first = self.evaluations[MODEL]
        return {name: paired_differences(first, other) for name, other in self.evaluations.items() if name != MODEL}


def find(args: argparse.Namespace) -> Findings:
    """Evaluate the files that the options name, as `swift-turn evaluate` does.

    Raises:
        InputError: a file that is missing or does not fit the others.
    """
    forecasts = load_forecasts(args)
    baselines = add_baselines(args.baselines, forecasts)
    units, evaluations = evaluate_forecasts(args, forecasts)
    files = {MODEL: str(args.predictions)} | ({AGAINST: str(args.against)} if args.against else {})
    return Findings(
        files=files,
        forecasts=forecasts,
        evaluations=evaluations,
        baselines=baselines,
        units=units,
        resamples=args.resamples,
        temperature=str(args.temperature) if args.temperature else None,
    )
