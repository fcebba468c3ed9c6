"""Temperature scaling, one temperature a horizon (Guo et al. 2017, https://arxiv.org/abs/1706.04599, section 4.2).

Probabilities suffice: log p differs from the logits by a constant of the row, which the softmax takes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import softmax

from swift_plugin.errors import InputError
from swift_plugin.evaluation.counting import SMALLEST_PROBABILITY, known_rows, log_loss_terms
from swift_plugin.files import read_json, write_json
from swift_plugin.stream.spec import NUM_HORIZONS

CALIBRATION_NAME = "turn_calibration.json"  # in a checkpoint's folder
TEMPERATURE_RANGE = (0.05, 20.0)


@dataclass(frozen=True, kw_only=True)
class TemperatureScaling:
    """softmax(log p / T) with a temperature for each horizon; above 1 makes a forecast less sure.

    Attributes:
        temperatures: ten numbers in 0.05..20.
        rows: known rows of the validation set that each was fitted on, ten numbers.

    Raises:
        InputError: not ten temperatures, or one outside the range.
    """

    temperatures: tuple[float, ...]
    rows: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.temperatures) != NUM_HORIZONS or len(self.rows) != NUM_HORIZONS:
            raise InputError(f"{len(self.temperatures)} temperatures found, {NUM_HORIZONS} needed; fit them again")
        low, high = TEMPERATURE_RANGE
        for temperature in self.temperatures:
            if not low <= temperature <= high:
                raise InputError(f"temperature {temperature} is not in {low}..{high}; fit the temperatures again")

    @classmethod
    def fit(cls, probabilities: np.ndarray, targets: np.ndarray) -> TemperatureScaling:
        """Find the temperatures with the smallest log loss.

        Args:
            probabilities, targets: [N, 10, 3] of validation sessions, which the model was not trained on.

        Raises:
            InputError: a horizon without known targets.
        """
        known = known_rows(targets)
        if not known.any(axis=0).all():
            horizon = int(known.any(axis=0).argmin()) + 1
            raise InputError(f"horizon {horizon} has no known target; use other predictions")
        temperatures = tuple(
            _fit_one(probabilities[known[:, horizon], horizon], targets[known[:, horizon], horizon])
            for horizon in range(NUM_HORIZONS)
        )
        return cls(temperatures=temperatures, rows=tuple(known.sum(axis=0).tolist()))

    def apply(self, probabilities: np.ndarray) -> np.ndarray:
        """Probabilities [N, 10, 3], float32, at these temperatures."""
        return _scale(probabilities, np.array(self.temperatures)[:, None]).astype(np.float32)

    def save(self, path: Path) -> None:
        write_json(path, {"temperatures": list(self.temperatures), "rows": list(self.rows)})

    @classmethod
    def load(cls, path: Path) -> TemperatureScaling:
        """
        Raises:
            InputError: no such file, not what `save` writes.
        """
        content = read_json(path)
        try:
            temperatures = tuple(float(value) for value in content["temperatures"])
            return cls(temperatures=temperatures, rows=tuple(int(value) for value in content["rows"]))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: is no file of temperatures; make it with `swift-turn evaluate`") from None


def _fit_one(probabilities: np.ndarray, targets: np.ndarray) -> float:
    def loss(log_temperature: float) -> float:
        return float(log_loss_terms(_scale(probabilities, np.exp(log_temperature)), targets).mean())

    # In log T; the loss is convex in 1/T, so it has one valley in log T as well.
    result = minimize_scalar(loss, bounds=tuple(np.log(TEMPERATURE_RANGE)), method="bounded", options={"xatol": 1e-6})
    return float(np.clip(np.exp(result.x), *TEMPERATURE_RANGE))


def _scale(probabilities: np.ndarray, temperature: np.ndarray | float) -> np.ndarray:
    logs = np.log(np.maximum(probabilities.astype(np.float64), SMALLEST_PROBABILITY))
    return softmax(logs / temperature, axis=-1)
