"""What the values are called in the report, and what they mean."""

from __future__ import annotations

from dataclasses import dataclass

from swift_plugin.evaluation.command import AGAINST, MODEL

RUN_NAMES = {MODEL: "this run", AGAINST: "other run"}
EVENTS = {
    "onset_self": "self starts within 2 s",
    "onset_other": "other starts within 2 s",
    "shift": "shift, not hold, at a turn's end",
    "overlap": "both at once within 2 s",
}


@dataclass(frozen=True)
class Metric:
    """A value that exists by horizon.

    Attributes:
        name: of the mean over the horizons; `<name>_0.4s` is one horizon.
        meaning: a sentence for the reader.
    """

    name: str
    title: str
    higher_is_better: bool
    meaning: str


METRICS = (
    Metric(
        "mAP",
        "mAP",
        True,
        "Mean average precision of “self speaks” and “other speaks”: 1 is perfect, and a forecast that knows nothing "
        "gets the share of steps in which they speak.",
    ),
    Metric("AP_self", "AP self", True, "Average precision of “self speaks”: how well high values pick those steps."),
    Metric("AP_other", "AP other", True, "Average precision of “other speaks”."),
    Metric(
        "mROC",
        "ROC AUC",
        True,
        "How often a step with speech got a higher value than one without; mean of self and other. 0.5 is chance.",
    ),
    Metric(
        "balanced_accuracy",
        "balanced accuracy",
        True,
        "How often the most likely class was right, as the mean over the classes. With three classes, 0.333 is chance.",
    ),
    Metric(
        "log_loss",
        "log loss",
        False,
        "Mean −log of the probability of what came. 0 is perfect, 1.099 is a third for each class.",
    ),
    Metric("brier", "Brier score", False, "Squared distance of the forecast to what came, 0 … 2; 0 is perfect."),
    Metric(
        "ece",
        "calibration error (ECE)",
        False,
        "Mean distance between how sure the forecast was and how often it was right; 0 is perfect.",
    ),
)
