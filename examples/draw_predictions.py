"""Draws truth against prediction: for each class, how likely it is at each moment for the next two seconds.

    python examples/draw_predictions.py --predictions predictions.npz --output predictions.png
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.stream.spec import CLASS_NAMES, NUM_HORIZONS, STEP_SECONDS


def draw(predictions: Predictions, output: Path) -> None:
    """One column for the truth and one for the prediction, a row a class; time to the right, horizon upwards."""
    figure, axes = plt.subplots(len(CLASS_NAMES), 2, figsize=(13, 6.5), sharex=True, sharey=True, layout="constrained")
    for column, (title, values) in enumerate((("truth", predictions.targets), ("prediction", predictions.probabilities))):
        for row, name in enumerate(CLASS_NAMES):
            axis = axes[row, column]
            axis.set_facecolor("lightgrey")  # unknown, or no anchor
            for session in range(len(predictions.session_names)):
                image = _draw_session(axis, predictions, values[:, :, row], session)
            axis.set_title(f"{name}: {title}", fontsize=10)
            if row == len(CLASS_NAMES) - 1:
                axis.set_xlabel("now, seconds of the session")
            if column == 0:
                axis.set_ylabel("ahead, s")
    figure.colorbar(image, ax=axes, label="probability", shrink=0.7)
    figure.savefig(output, dpi=110)
    plt.close(figure)


def _draw_session(axis, predictions: Predictions, values: np.ndarray, session: int):
    own = predictions.session == session
    steps = predictions.target_index[own]
    picture = np.full((NUM_HORIZONS, steps.max() - steps.min() + 1), np.nan)
    picture[:, steps - steps.min()] = values[own].T
    start, end = (steps.min() + 0.5) * STEP_SECONDS, (steps.max() + 1.5) * STEP_SECONDS
    half = STEP_SECONDS / 2
    image = axis.imshow(
        picture, extent=(start, end, half, NUM_HORIZONS * STEP_SECONDS + half), origin="lower", aspect="auto",
        vmin=0, vmax=1, cmap="viridis", interpolation="nearest",
    )  # fmt: skip
    axis.axvline(start, color="white", linewidth=1)
    axis.text(start, NUM_HORIZONS * STEP_SECONDS, f" {predictions.session_names[session]}", color="white", va="top", fontsize=8)
    axis.autoscale(enable=True)
    return image


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--predictions", type=Path, required=True, help="file that `swift-turn predict` wrote")
    parser.add_argument("--output", type=Path, required=True, help="png to write")
    args = parser.parse_args()
    draw(Predictions.load(args.predictions), args.output)


if __name__ == "__main__":
    main()
