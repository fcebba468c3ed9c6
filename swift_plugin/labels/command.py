"""`swift-turn targets`: from annotations of who speaks to targets [T, 3]."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from swift_plugin.labels.source import Annotated

SUMMARY = "turn annotations of who speaks into targets: nobody, self or other for each 0.2 s step"
EXAMPLE = "swift-turn targets --input sample.rttm --self speaker90 --duration 30 --output targets.npy"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input", required=True, metavar="PATH", help="annotation file, or the folder of an EasyCom session"
    )
    parser.add_argument(
        "--output", required=True, type=Path, metavar="NPY", help="targets.npy; targets.json comes beside it"
    )
    parser.add_argument(
        "--format",
        default="auto",
        choices=("auto", "rttm", "csv", "easycom", "egocom"),
        help="auto takes .rttm, .csv (columns start,end,speaker) and EasyCom folders; name it for a .json file",
    )
    parser.add_argument(
        "--self",
        dest="self_speaker",
        metavar="SPEAKER",
        help="the speaker who wears the camera; left out where the source names the wearer (EgoCom by video number)",
    )
    parser.add_argument(
        "--duration",
        type=float,
        metavar="SECONDS",
        help="length of the recording; default: the last annotated end. A step that is only begun counts. "
        "RTTM and CSV say nothing about silence, so the time without a turn up to here is nobody",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace targets that exist")

    rule = parser.add_argument_group("label rule")
    rule.add_argument(
        "--speech_share",
        type=float,
        default=0.5,
        metavar="SHARE",
        help="share of a step that a side must speak, exactly so much is enough (default 0.5)",
    )
    rule.add_argument(
        "--overlap",
        choices=("priority", "multi", "soft"),
        default="priority",
        help="self and other in one step: priority self (default), multi-hot, or soft shares of the time",
    )

    source = parser.add_argument_group("options of one format")
    source.add_argument(
        "--recording",
        metavar="NAME",
        help="rttm: which recording of several; egocom: video number of video_info.csv, or a conversation with --self",
    )
    source.add_argument("--frame_base", type=int, choices=(0, 1), help="easycom: number of a minute's first frame (0)")
    source.add_argument(
        "--skip_nonverbal",
        action="store_true",
        default=None,
        help="easycom: laughter, coughing, clearing the throat alone are no speech",
    )
    source.add_argument("--video_info", metavar="CSV", help="egocom: video_info.csv (default: beside the labels)")
    source.add_argument(
        "--label_window",
        type=float,
        choices=(0.5, 1.0),
        help="egocom: seconds that a label summarises from its time on (0.5)",
    )


def run(args: argparse.Namespace) -> None:
    from swift_plugin.labels.rule import LabelRule, turns_to_targets
    from swift_plugin.labels.source import read_annotated
    from swift_plugin.labels.store import check_output, save_targets

    rule = LabelRule(speech_share=args.speech_share, overlap=args.overlap)
    annotated = read_annotated(
        args.input,
        source_format=args.format,
        recording=args.recording,
        frame_base=args.frame_base,
        skip_nonverbal=args.skip_nonverbal,
        video_info=args.video_info,
        label_window=args.label_window,
    )
    check_output(args.output, sources=annotated.files, overwrite=args.overwrite)
    wearer = _wearer(annotated, args.self_speaker, args.input)
    targets = turns_to_targets(
        annotated.turns,
        num_steps=_num_steps(annotated, args.duration, args.input),
        self_speaker=wearer,
        rule=rule,
        known=annotated.known,
    )
    sidecar = save_targets(
        args.output,
        targets,
        rule=rule,
        sources=annotated.files,
        source_format=annotated.source_format,
        self_speaker=wearer,
        recording=annotated.recording,
        reader_options=annotated.reader_options,
        overwrite=args.overwrite,
    )
    _print_summary(annotated, wearer, targets)
    print(f"wrote {args.output} and {sidecar}")


def _wearer(annotated: Annotated, asked: str | None, source: str) -> str:
    """The speaker that is self: the one asked for, or the one that the source names."""
    from swift_plugin.errors import InputError
    from swift_plugin.labels.turns import speaker_seconds

    found = ", ".join(speaker_seconds(annotated.turns)) or "nobody speaks in it"
    if asked is None and annotated.wearer is None:
        raise InputError(f"{source}: does not name the wearer; add --self with one of: {found}")
    if asked is None:
        return annotated.wearer
    if annotated.wearer not in (None, asked):
        raise InputError(f"{source}: --self {asked} is not the wearer of this video, {annotated.wearer}; leave it out")
    if asked not in {turn.speaker for turn in annotated.turns}:
        raise InputError(f"{source}: speaker {asked!r} is not in it; give --self one of: {found}")
    return asked


def _num_steps(annotated: Annotated, duration: float | None, source: str) -> int:
    import math

    from swift_plugin.errors import InputError
    from swift_plugin.labels.coverage import steps_until

    if duration is not None and not 0 < duration < math.inf:
        raise InputError(f"{source}: --duration {duration} is not a length; give the recording's seconds")
    return steps_until(annotated.end if duration is None else duration)


def _print_summary(annotated: Annotated, wearer: str, targets: np.ndarray) -> None:
    import numpy as np

    from swift_plugin.labels.coverage import steps_until
    from swift_plugin.labels.turns import speaker_seconds
    from swift_plugin.stream.spec import CLASS_NAMES, STEP_SECONDS

    print(f"{annotated.source_format} {annotated.recording or ''}".strip() + f", annotated to {annotated.end:g} s")
    for speaker, seconds in speaker_seconds(annotated.turns).items():
        print(f"  {speaker:<20} {seconds:10.2f} s  {'self' if speaker == wearer else 'other'}")
    if steps_until(annotated.end) > len(targets):
        print(f"  what is annotated after {len(targets) * STEP_SECONDS:g} s is left out")
    known = targets[~np.isnan(targets[:, 0])]
    print(f"{len(targets)} steps of {STEP_SECONDS} s, {len(targets) - len(known)} of them unknown; share of the known:")
    for name, share in zip(CLASS_NAMES, known.mean(axis=0) if len(known) else [0.0] * len(CLASS_NAMES)):
        print(f"  {name:<20} {100 * share:10.2f} %")
