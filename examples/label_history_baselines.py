"""What label history alone reaches on real conversations: the figures that a model has to beat.

Prints two tables in Markdown and draws the trade-off between false starts and delay:

    python examples/label_history_baselines.py --egocom EGOCOM_FOLDER --ami AMI_RTTM --output trade_off.png

EgoCom (https://github.com/facebookresearch/EgoCom-Dataset, `rev_ground_truth_speaker_labels.json` and
`video_info.csv`): its own split by conversation; each video is a session and its wearer is self. The labels come twice
a second and cannot change in between, so the first horizons are easier than on labels of full resolution.

AMI (https://github.com/BUTSpeechFIT/AMI-diarization-setup, RTTM of the 18 development meetings): each speaker in turn
is self. Split by meeting so that no speaker is in both parts: the ES and TS meetings are for test, the IB and IS
meetings, which share a speaker, for training.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np
from rich.progress import Progress

from swift_plugin.evaluation.baselines import NUM_BASELINES, Baseline, fit_baselines, predict_baseline
from swift_plugin.evaluation.evaluate import with_probabilities
from swift_plugin.evaluation.events import event_questions
from swift_plugin.evaluation.metrics import turn_metrics
from swift_plugin.evaluation.predictions import Predictions
from swift_plugin.evaluation.trade_off import TradeOff, trade_off
from swift_plugin.labels.egocom import egocom_known, read_egocom
from swift_plugin.labels.rttm import read_rttm
from swift_plugin.labels.rule import LabelRule, turns_to_targets
from swift_plugin.labels.turns import speaker_seconds
from swift_plugin.stream.spec import NUM_CLASSES, NUM_HORIZONS, STEP_SECONDS

RULE = LabelRule()  # half of a step is speech; where both speak, self
AMI_TEST_GROUPS = ("ES", "TS")
HORIZONS = ("0.2s", "0.4s", "1.0s", "2.0s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--egocom", type=Path, required=True, help="folder with EgoCom's two files")
    parser.add_argument("--ami", type=Path, required=True, help="RTTM file of the AMI meetings")
    parser.add_argument("--output", type=Path, required=True, help="picture of the trade-off on EgoCom's test part")
    args = parser.parse_args()

    egocom = judge("EgoCom, its own test part", *read_egocom_sessions(args.egocom))
    draw(egocom, args.output)
    judge("AMI development meetings, ES and TS", *read_ami_sessions(args.ami))


def read_egocom_sessions(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Targets of the training and of the test videos."""
    labels = folder / "rev_ground_truth_speaker_labels.json"
    with (folder / "video_info.csv").open(newline="") as file:
        videos = list(csv.DictReader(file))

    def targets(video: dict[str, str]) -> np.ndarray:
        turns = read_egocom(labels, conversation=video["conversation_id"])
        known = egocom_known(labels, conversation=video["conversation_id"])
        num_steps = int(known[-1][1] / STEP_SECONDS)
        return turns_to_targets(
            turns, num_steps=num_steps, self_speaker=video["video_speaker_id"], rule=RULE, known=known
        )

    train, test = (
        {f"video {video['video_id']}": targets(video) for video in videos if video[part] == "True"}
        for part in ("train", "test")
    )
    return train, test


def read_ami_sessions(path: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Targets of the training and of the test meetings, once for each speaker as self."""
    meetings = sorted({line.split()[1] for line in path.read_text().splitlines() if line.strip()})
    train, test = {}, {}
    for meeting in meetings:
        turns = read_rttm(path, recording=meeting)
        num_steps = int(max(turn.end for turn in turns) / STEP_SECONDS)
        part = test if meeting.startswith(AMI_TEST_GROUPS) else train
        for speaker in speaker_seconds(turns):
            part[f"{meeting} {speaker}"] = turns_to_targets(turns, num_steps=num_steps, self_speaker=speaker, rule=RULE)
    return train, test


def judge(title: str, train: dict[str, np.ndarray], test: dict[str, np.ndarray]) -> dict[str, Predictions]:
    """Fit on one part, print the table of the other; returns the forecasts."""
    with Progress(transient=True) as progress:
        task = progress.add_task(f"{title}: fitting", total=NUM_BASELINES)
        baselines = fit_baselines(list(train.values()), advance=lambda: progress.advance(task))
    anchors = all_anchors(test)
    sizes = f"{hours(test):.1f} h in {len(test)} sessions, fitted on {hours(train):.1f} h in {len(train)}"
    print(f"\n**{title}**: {sizes}\n")
    columns = [f"mAP {at}" for at in HORIZONS]
    columns += ["AP self 0.2s", "AP self 2.0s", "log loss", "self starts, AP", "shift, AP"]
    print("| label history alone | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    forecasts = {}
    for baseline in baselines:
        forecasts[baseline.name] = forecast = with_probabilities(anchors, predict_baseline(baseline, anchors))
        print(row(baseline, forecast))
    return forecasts


def all_anchors(sessions: dict[str, np.ndarray]) -> Predictions:
    """An anchor at every step that has ten future steps; the probabilities are thirds, to be replaced."""
    targets = [
        np.lib.stride_tricks.sliding_window_view(steps[1:], NUM_HORIZONS, axis=0).transpose(0, 2, 1)
        for steps in sessions.values()
        if len(steps) > NUM_HORIZONS
    ]
    lengths = [len(part) for part in targets]
    return Predictions(
        probabilities=np.full((sum(lengths), NUM_HORIZONS, NUM_CLASSES), 1 / NUM_CLASSES, np.float32),
        target_index=np.concatenate([np.arange(length) for length in lengths]),
        session=np.repeat(np.arange(len(lengths)), lengths),
        session_names=[name for name, steps in sessions.items() if len(steps) > NUM_HORIZONS],
        targets=np.concatenate(targets),
    )


def row(baseline: Baseline, forecast: Predictions) -> str:
    values = turn_metrics(forecast.probabilities, forecast.targets)
    events = event_questions(forecast)
    names = [*(f"mAP_{at}" for at in HORIZONS), "AP_self_0.2s", "AP_self_2.0s", "log_loss"]
    cells = [values[name] for name in names]
    cells += [events[name].flat()["AP"] for name in ("onset_self", "shift")]
    return f"| {baseline.name} | " + " | ".join(f"{cell:.3f}" for cell in cells) + " |"


def hours(sessions: dict[str, np.ndarray]) -> float:
    return sum(map(len, sessions.values())) * STEP_SECONDS / 3600


def draw(forecasts: dict[str, Predictions], path: Path) -> None:
    """The logistic regression's trade-off, beside a device that waits for silence."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    regression = forecasts["logistic regression"]
    curves = {
        "logistic regression on 10 s of labels": (trade_off(regression), "C0"),
        "starts after x s of silence": (trade_off(waiting_device(regression)), "C7"),
    }
    figure, (delay_axes, taken_axes) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for label, (curve, colour) in curves.items():
        delay_axes.plot(curve.false_share * 100, curve.median_delay, colour, marker=".", markersize=3, label=label)
        taken_axes.plot(curve.false_share * 100, curve.taken_share * 100, colour, marker=".", markersize=3, label=label)
    delay_axes.set(ylabel="median delay of the turns taken, s", xlim=(0, 60), ylim=(-0.1, 4))
    taken_axes.set(ylabel="turns taken, %", xlim=(0, 60), ylim=(0, None))
    taken_axes.legend(frameon=False, fontsize=8)
    curve: TradeOff = curves["logistic regression on 10 s of labels"][0]
    for axes in (delay_axes, taken_axes):
        axes.set_xlabel("false starts, % of stretches of others' talk")
        axes.grid(alpha=0.3)
    figure.suptitle(
        f"EgoCom's test part: {curve.turns} turns of the wearer, {curve.stretches} stretches of others' talk",
        fontsize=10,
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def waiting_device(predictions: Predictions) -> Predictions:
    """p(self) rises with the length of the silence, up to 10 s of it."""
    from swift_plugin.evaluation.baselines import HISTORY_STEPS, history_labels
    from swift_plugin.evaluation.timeline import timelines

    score = np.zeros(len(predictions))
    for line in timelines(predictions):
        classes, steps = history_labels(line.targets), np.arange(len(line.targets))
        silence = steps - np.maximum.accumulate(np.where(classes == 0, -1, steps))
        score[line.anchor[line.anchors]] = np.minimum(silence, HISTORY_STEPS)[line.anchors] / HISTORY_STEPS
    probabilities = np.stack([1 - score, score, 0 * score], axis=-1)[:, None].repeat(NUM_HORIZONS, axis=1)
    return with_probabilities(predictions, probabilities)


if __name__ == "__main__":
    main()
