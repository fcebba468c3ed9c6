"""`swift-turn evaluate`: how good a file of predictions is, against another one and against label history."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from swift_plugin.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from swift_plugin.evaluation.evaluate import Evaluation
    from swift_plugin.evaluation.predictions import Predictions
    from swift_plugin.evaluation.uncertainty import Units

SUMMARY = "metrics of predictions, with intervals, baselines and a paired comparison"
EXAMPLE = "swift-turn evaluate test.parquet --baselines targets/train_*.npy --output metrics.json"
SCHEMA_VERSION = 1

MODEL, AGAINST = "these predictions", "the other file"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("predictions", type=Path, help="file from `swift-turn predict`, .npz or .parquet")
    parser.add_argument("--output", type=Path, required=True, metavar="JSON", help="where everything is written")
    parser.add_argument("--overwrite", action="store_true", help="replace outputs that exist")
    parser.add_argument(
        "--against", type=Path, metavar="PREDICTIONS", help="another run on the same anchors, for a paired comparison"
    )
    parser.add_argument(
        "--baselines",
        type=Path,
        nargs="+",
        default=[],
        metavar="TARGETS",
        help="targets (.npy) of the training sessions: fit forecasts from label history on them and show those too",
    )
    parser.add_argument(
        "--temperature", type=Path, metavar="JSON", help="apply temperatures that --fit_temperature wrote"
    )
    parser.add_argument(
        "--fit_temperature",
        type=Path,
        metavar="JSON",
        help="fit one temperature a horizon on these predictions, which should be of validation sessions",
    )
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: 0)")


def run(args: argparse.Namespace) -> None:
    from swift_plugin.files import write_json

    _check(args)
    forecasts = load_forecasts(args)
    baselines = add_baselines(args.baselines, forecasts)
    units, evaluations = evaluate_forecasts(args, forecasts)
    _print(args, forecasts[MODEL], units, evaluations, baselines)
    if args.fit_temperature:
        _fit_temperature(args, forecasts[MODEL])
    write_json(args.output, _describe(args, forecasts[MODEL], units, evaluations, baselines))


def load_forecasts(args: argparse.Namespace) -> dict[str, Predictions]:
    """The predictions under `MODEL`, and the anchors that both files have where there is another one."""
    from swift_plugin.evaluation.calibration import TemperatureScaling
    from swift_plugin.evaluation.evaluate import common_anchors, with_probabilities
    from swift_plugin.evaluation.predictions import Predictions

    predictions = Predictions.load(args.predictions)
    if args.temperature:
        scaling = TemperatureScaling.load(args.temperature)
        predictions = with_probabilities(predictions, scaling.apply(predictions.probabilities))
    if not args.against:
        return {MODEL: predictions}
    try:
        first, second = common_anchors(predictions, Predictions.load(args.against))
    except InputError as error:
        raise InputError(f"{args.predictions} against {args.against}: {error}") from None
    return {MODEL: first, AGAINST: second}


def _check(args: argparse.Namespace) -> None:
    from swift_plugin.files import refuse_existing

    if args.resamples < 1:
        raise InputError(f"--resamples {args.resamples}: at least 1 needed, 500 for intervals one can report")
    if args.temperature and args.fit_temperature:
        raise InputError("--temperature and --fit_temperature exclude each other; fit on raw validation predictions")
    for output in filter(None, (args.output, args.fit_temperature)):
        if not output.parent.is_dir():
            raise InputError(f"{output}: folder {output.parent} does not exist; make it first")
        refuse_existing(output, overwrite=args.overwrite)


def add_baselines(paths: list[Path], forecasts: dict[str, Predictions]) -> list[str]:
    """Fit the baselines and add what they say; returns their names."""
    if not paths:
        return []
    from swift_plugin.evaluation.baselines import NUM_BASELINES, fit_baselines, predict_baseline
    from swift_plugin.evaluation.evaluate import with_probabilities
    from swift_plugin.labels.store import load_targets

    predictions = forecasts[MODEL]
    sessions = [load_targets(path).targets for path in paths]
    _refuse_evaluated(paths, sessions, predictions)
    with _progress() as progress:
        task = progress.add_task("fitting baselines", total=NUM_BASELINES)
        baselines = fit_baselines(sessions, advance=lambda: progress.advance(task))
    for baseline in baselines:
        forecasts[baseline.name] = with_probabilities(predictions, predict_baseline(baseline, predictions))
    return [baseline.name for baseline in baselines]


def _refuse_evaluated(paths: list[Path], sessions: list[np.ndarray], predictions: Predictions) -> None:
    """A baseline that was fitted on what it is judged by would be too good."""
    import numpy as np

    from swift_plugin.evaluation.timeline import timelines

    for line in timelines(predictions):
        for path, targets in zip(paths, sessions, strict=True):
            steps = np.flatnonzero(line.known)
            if steps.size and steps[-1] < len(targets) and (line.targets[steps] == targets[steps]).all():
                raise InputError(
                    f"{path}: holds the targets of session {line.name!r}, which is evaluated; "
                    "pass training sessions only"
                )


def evaluate_forecasts(args: argparse.Namespace, forecasts: dict[str, Predictions]) -> tuple[Units, dict[str, Evaluation]]:
    from swift_plugin.evaluation.evaluate import evaluate
    from swift_plugin.evaluation.uncertainty import NUM_CELLS, draw_weights, resampling_units

    units = resampling_units(forecasts[MODEL])
    weights = draw_weights(units.count, resamples=args.resamples, seed=args.seed)
    evaluations = {}
    with _progress() as progress:
        task = progress.add_task("resampling", total=NUM_CELLS * len(forecasts))
        for name, forecast in forecasts.items():
            progress.update(task, description=name)
            try:
                evaluations[name] = evaluate(forecast, units, weights, advance=lambda: progress.advance(task))
            except InputError as error:
                raise InputError(f"{args.predictions}: {error}") from None
    return units, evaluations


def _print(
    args: argparse.Namespace,
    predictions: Predictions,
    units: Units,
    evaluations: dict[str, Evaluation],
    baselines: list[str],
) -> None:
    from rich.console import Console

    from swift_plugin.evaluation import tables
    from swift_plugin.evaluation.evaluate import paired_differences

    model = evaluations[MODEL]
    console = Console()
    console.print(
        f"{args.predictions}: {len(predictions)} anchors; {args.resamples} resamples of {units.count} {units.kind}s; "
        f"{model.values['cells_without_positives']:.0f} of 30 cells have no positive and are left out",
        soft_wrap=True,
    )
    for table in (tables.metrics_table(model), tables.events_table(model), tables.trade_off_table(model)):
        console.print(table)
    if baselines:
        console.print(tables.baselines_table(model, {name: evaluations[name] for name in baselines}))
    if args.against:
        console.print(tables.differences_table(paired_differences(model, evaluations[AGAINST])))


def _describe(
    args: argparse.Namespace,
    predictions: Predictions,
    units: Units,
    evaluations: dict[str, Evaluation],
    baselines: list[str],
) -> dict[str, Any]:
    from swift_plugin.evaluation.evaluate import paired_differences
    from swift_plugin.evaluation.results import describe, describe_intervals

    def describe_other(name: str) -> dict[str, Any]:
        difference = paired_differences(evaluations[MODEL], evaluations[name])
        return {**describe(evaluations[name]), "difference": describe_intervals(difference)}

    return {
        "schema_version": SCHEMA_VERSION,
        "predictions": str(args.predictions),
        "anchors": len(predictions),
        "sessions": [predictions.session_names[k] for k in sorted(set(predictions.session.tolist()))],
        "temperature": str(args.temperature) if args.temperature else None,
        "bootstrap": {"unit": units.kind, "units": units.count, "resamples": args.resamples, "seed": args.seed},
        **describe(evaluations[MODEL]),
        "baselines": {name: describe_other(name) for name in baselines},
        "against": {"predictions": str(args.against), **describe_other(AGAINST)} if args.against else None,
    }


def _fit_temperature(args: argparse.Namespace, predictions: Predictions) -> None:
    from swift_plugin.evaluation.calibration import TemperatureScaling

    try:
        scaling = TemperatureScaling.fit(predictions.probabilities, predictions.targets)
    except InputError as error:
        raise InputError(f"{args.predictions}: {error}") from None
    scaling.save(args.fit_temperature)
    print("temperatures: " + ", ".join(f"{value:.2f}" for value in scaling.temperatures))


def _progress() -> Any:
    from rich.progress import Progress

    return Progress(transient=True)
