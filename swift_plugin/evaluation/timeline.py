"""The truth of a session, step by step, put together again from the targets of its anchors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.evaluation.counting import positives
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One session on the grid of steps.

    Attributes:
        name: the session.
        targets: float32 [T, 3]; a row of NaN where no anchor tells. The steps up to the first anchor are such.
        anchor: int64 [T], the row of the predictions whose anchor is this step; -1 where there is none.
    """

    name: str
    targets: np.ndarray
    anchor: np.ndarray

    @property
    def known(self) -> np.ndarray:
        """bool [T]"""
        return ~np.isnan(self.targets[:, 0])

    @property
    def active(self) -> np.ndarray:
        """bool [T, 3]: the classes with at least half of the step; none in unknown steps."""
        return positives(self.targets)

    @property
    def anchors(self) -> np.ndarray:
        """int64 [n], the steps that are anchors, ascending."""
        return np.flatnonzero(self.anchor >= 0)


def timelines(predictions: Predictions) -> list[Timeline]:
    """One time line for each session that has anchors.

    Raises:
        InputError: two anchors have different targets for the same step.
    """
    lines = []
    for number, name in enumerate(predictions.session_names):
        rows = np.flatnonzero(predictions.session == number)
        if rows.size:
            lines.append(_timeline(name, rows, predictions.target_index[rows], predictions.targets[rows]))
    return lines


def _timeline(name: str, rows: np.ndarray, target_index: np.ndarray, targets: np.ndarray) -> Timeline:
    steps = target_index[:, None] + 1 + np.arange(NUM_HORIZONS)  # [n, 10]
    known = ~np.isnan(targets[..., 0])
    line = np.full((steps.max() + 1, NUM_CLASSES), np.nan, np.float32)
    line[steps[known]] = targets[known]
    differs = (line[steps[known]] != targets[known]).any(axis=-1)
    if differs.any():
        raise InputError(
            f"step {steps[known][differs][0]} of session {name!r} has different targets in two anchors; predict again"
        )
    anchor = np.full(len(line), -1, np.int64)
    anchor[target_index] = rows
    return Timeline(name=name, targets=line, anchor=anchor)
