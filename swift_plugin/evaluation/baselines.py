"""Forecasts from the label history alone, which a model that hears and sees has to beat.

Each is fitted on the targets of training sessions and then sees, at an anchor with step i, the classes of steps i-49..i
(10 s) and nothing else. A step's class is the one with the largest target (`counting.labels`); a step of the history
that is unknown or lies before the session counts as nobody. Unknown steps are left out of the fit.

All counts start from one seen case of each class, so that no probability is zero (Laplace's rule of succession).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from swift_plugin.errors import InputError
from swift_plugin.evaluation.counting import known_rows, labels
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.timeline import timelines
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS, STEP_SECONDS

HISTORY_STEPS = 50
LONGEST_SILENCE_STEPS = 15  # 3 s
MARKOV_ORDER = 5  # 1 s
NUM_BASELINES = 5
NOBODY = 0


class Baseline(ABC):
    """A forecast from label history."""

    name: str

    @abstractmethod
    def __init__(self, sessions: Sequence[np.ndarray]) -> None:
        """Fit on the targets [T, 3] of training sessions."""

    @abstractmethod
    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        """
        Args:
            targets: [T, 3] of one session; of each anchor only steps up to its own are read.
            target_index: int [n], the anchors' steps, 0 .. T-1.

        Returns:
            probabilities [n, 10, 3].
        """


class ClassPrior(Baseline):
    """How often each class occurs, whatever came before."""

    name = "class prior"

    def __init__(self, sessions: Sequence[np.ndarray]) -> None:
        self._prior = _shares(_class_counts(sessions))

    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        return np.broadcast_to(self._prior, (len(target_index), NUM_HORIZONS, NUM_CLASSES))


class Persistence(Baseline):
    """The current class goes on, with the share of cases in which it did at this horizon; the rest as the prior."""

    name = "last state persists"

    def __init__(self, sessions: Sequence[np.ndarray]) -> None:
        counts = _transition_counts(sessions, labels, num_states=NUM_CLASSES)  # [3, 10, 3]
        kept = np.einsum("shs->h", counts)
        stays = (kept + 1) / (counts.sum(axis=(0, 2)) + 2)  # [10]
        prior = _shares(_class_counts(sessions))
        self._table = np.empty((NUM_CLASSES, NUM_HORIZONS, NUM_CLASSES))
        for state in range(NUM_CLASSES):
            others = np.where(np.arange(NUM_CLASSES) == state, 0, prior)
            self._table[state] = (1 - stays)[:, None] * others / others.sum()
            self._table[state, :, state] = stays

    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        return self._table[history_labels(targets)[target_index]]


class SilenceRule(Baseline):
    """After a silence longer than x self starts: class shares for self, other, a silence up to x, a longer one.

    x is the one of 0.2 s .. 3 s with the smallest log loss on the training sessions.
    """

    def __init__(self, sessions: Sequence[np.ndarray]) -> None:
        num_states = LONGEST_SILENCE_STEPS + 2
        counts = _transition_counts(sessions, _silence_states, num_states=num_states)  # [17, 10, 3]
        losses = []
        for steps in range(1, LONGEST_SILENCE_STEPS + 1):
            merged = self._merge(counts, steps)
            losses.append(-(merged * np.log(_shares(merged))).sum())
        self.silence_steps = 1 + int(np.argmin(losses))
        self._table = _shares(self._merge(counts, self.silence_steps))  # [4, 10, 3]
        self.name = f"silence longer than {self.silence_steps * STEP_SECONDS:.1f} s"

    @staticmethod
    def _merge(counts: np.ndarray, steps: int) -> np.ndarray:
        short, long = counts[2 : 2 + steps].sum(axis=0), counts[2 + steps :].sum(axis=0)
        return np.stack([counts[0], counts[1], short, long])

    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        states = _silence_states(targets)[target_index]
        return self._table[np.where(states < 2, states, np.where(states < 2 + self.silence_steps, 2, 3))]


class MarkovChain(Baseline):
    """The next class depends on the last `order` ones; the ten steps follow by running the chain exactly.

    A context's shares lean on those of the context that is one step shorter, as if that had been seen once more
    (the Dirichlet prior of MacKay & Peto 1995, "A hierarchical Dirichlet language model", with weight 1).
    """

    def __init__(self, sessions: Sequence[np.ndarray], *, order: int = MARKOV_ORDER) -> None:
        self._order = order
        self.name = f"Markov chain, order {order}"
        self._next = _shares(_class_counts(sessions))[None]  # [1, 3], order 0
        for length in range(1, order + 1):
            counts = _transition_counts(
                sessions, lambda targets, length=length: _contexts(targets, length), num_states=NUM_CLASSES**length
            )[:, 0]
            shorter = self._next[np.arange(len(counts)) % NUM_CLASSES ** (length - 1)]  # without the oldest class
            self._next = (counts + shorter) / (counts.sum(axis=1, keepdims=True) + 1)
        self._table = self._run()

    def _run(self) -> np.ndarray:
        """[3**order, 10, 3]: from each context, the classes of the next ten steps."""
        size = NUM_CLASSES**self._order
        following = (np.arange(size)[:, None] * NUM_CLASSES + np.arange(NUM_CLASSES)) % size  # [contexts, 3]
        step = np.zeros((size, size))
        np.put_along_axis(step, following, self._next, axis=1)
        table = np.empty((size, NUM_HORIZONS, NUM_CLASSES))
        ahead = self._next
        for horizon in range(NUM_HORIZONS):
            table[:, horizon] = ahead
            ahead = step @ ahead
        return table

    def predict(self, targets: np.ndarray, target_index: np.ndarray) -> np.ndarray:
        return self._table[_contexts(targets, self._order)[target_index]]


def fit_baselines(
    sessions: Sequence[np.ndarray], *, advance: Callable[[], None] = lambda: None
) -> list[Baseline]:
    """Every baseline, fitted.

    Args:
        sessions: targets [T, 3] of the training sessions, none of which is evaluated.
        advance: called after each of the `NUM_BASELINES` fits.

    Raises:
        InputError: no step is known.
    """
    from swift_plugin.evaluation.history_regression import HistoryRegression

    if not sum(known_rows(targets).sum() for targets in sessions):
        raise InputError("the training sessions have no known step; pass targets of other sessions")
    fitted = []
    for kind in (ClassPrior, Persistence, SilenceRule, MarkovChain, HistoryRegression):
        fitted.append(kind(sessions))
        advance()
    return fitted


def predict_baseline(baseline: Baseline, predictions: Predictions) -> np.ndarray:
    """Probabilities float32 [N, 10, 3] at the anchors of `predictions`, whose targets are the history."""
    probabilities = np.empty(predictions.probabilities.shape, np.float32)
    for line in timelines(predictions):
        probabilities[line.anchor[line.anchors]] = baseline.predict(line.targets, line.anchors)
    return probabilities


def history_labels(targets: np.ndarray) -> np.ndarray:
    """int [T] of [T, 3]: the class of each step, nobody where it is unknown."""
    return np.where(known_rows(targets), labels(targets), NOBODY)


def _silence_states(targets: np.ndarray) -> np.ndarray:
    """int [T]: 0 self, 1 other, 1 + d for a silence of d steps so far, at most 15 of them told apart."""
    classes, steps = history_labels(targets), np.arange(len(targets))
    last_speech = np.maximum.accumulate(np.where(classes != NOBODY, steps, -1))
    silence = np.minimum(steps - last_speech, LONGEST_SILENCE_STEPS)
    return np.where(classes == NOBODY, 1 + silence, classes - 1)


def _contexts(targets: np.ndarray, order: int) -> np.ndarray:
    """int [T]: the classes of the last `order` steps as a number in base 3, the newest its last digit."""
    classes = history_labels(targets)
    context = np.zeros(len(classes), np.int64)
    for age in range(min(order, len(classes))):
        context[age:] += classes[: len(classes) - age] * NUM_CLASSES**age
    return context


def _transition_counts(
    sessions: Sequence[np.ndarray], states_of: Callable[[np.ndarray], np.ndarray], *, num_states: int
) -> np.ndarray:
    """float64 [S, 10, 3]: how often each class came h+1 steps after each state."""
    counts = np.zeros((num_states, NUM_HORIZONS, NUM_CLASSES))
    for targets in sessions:
        states, classes, known = states_of(targets), labels(targets), known_rows(targets)
        for horizon in range(min(NUM_HORIZONS, len(targets) - 1)):
            ahead = horizon + 1
            both = known[:-ahead] & known[ahead:]
            cell = states[:-ahead][both] * NUM_CLASSES + classes[ahead:][both]
            counts[:, horizon] += np.bincount(cell, minlength=num_states * NUM_CLASSES).reshape(-1, NUM_CLASSES)
    return counts


def _class_counts(sessions: Sequence[np.ndarray]) -> np.ndarray:
    return sum(np.bincount(labels(targets)[known_rows(targets)], minlength=NUM_CLASSES) for targets in sessions)


def _shares(counts: np.ndarray) -> np.ndarray:
    """Laplace's rule over the last axis."""
    return (counts + 1) / (counts.sum(axis=-1, keepdims=True) + NUM_CLASSES)
