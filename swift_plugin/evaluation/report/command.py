"""`swift-turn report`: one HTML file with the numbers of `evaluate`, pictures, and a viewer."""

from __future__ import annotations

import argparse
from pathlib import Path

from swift_plugin.errors import InputError

SUMMARY = "one HTML file: metrics, pictures, and a viewer that replays the forecast beside the film"
EXAMPLE = "swift-turn report --predictions test.npz --film talk_1.mp4 --session talk_1 --output report.html"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from swift_plugin.evaluation.report.media import EMBED_LIMIT_MIB

    parser.add_argument(
        "--predictions", type=Path, required=True, metavar="FILE", help="from `swift-turn predict`, .npz or .parquet"
    )
    parser.add_argument("--against", type=Path, metavar="FILE", help="another run on the same anchors, shown beside it")
    parser.add_argument(
        "--baselines",
        type=Path,
        nargs="+",
        default=[],
        metavar="TARGETS",
        help="targets (.npy) of the training sessions: fit forecasts from label history on them and show those too",
    )
    media = parser.add_mutually_exclusive_group()
    size = f"up to {EMBED_LIMIT_MIB} MiB it goes into the page, else the page refers to it by a relative path"
    media.add_argument("--film", type=Path, metavar="FILE", help=f"the film of a session, for the viewer; {size}")
    media.add_argument("--audio", type=Path, metavar="FILE", help="the sound of a session, in place of a film")
    parser.add_argument(
        "--session", metavar="NAME", help="whose film or sound it is; needed where the predictions hold several"
    )
    parser.add_argument(
        "--temperature", type=Path, metavar="JSON", help="apply temperatures that `evaluate --fit_temperature` wrote"
    )
    parser.add_argument("--resamples", type=int, default=1000, help="of the bootstrap (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the bootstrap (default: 0)")
    parser.add_argument("--output", type=Path, required=True, metavar="HTML", help="the page")
    parser.add_argument("--overwrite", action="store_true", help="replace a page that exists")


def run(args: argparse.Namespace) -> None:
    from swift_plugin.evaluation.report.findings import find
    from swift_plugin.evaluation.report.media import load_media
    from swift_plugin.evaluation.report.page import build_page
    from swift_plugin.files import write_atomically

    _check(args)
    media = load_media(args.film or args.audio, film=args.film is not None, output=args.output)
    findings = find(args)
    page = build_page(findings, media, _session_of_media(args, findings.session_names))
    write_atomically(args.output, lambda partial: partial.write_text(page, encoding="utf-8"))
    print(f"{args.output}: {args.output.stat().st_size / 2**20:.1f} MiB; open it in a browser")


def _check(args: argparse.Namespace) -> None:
    from swift_plugin.files import refuse_existing

    if args.output.suffix not in (".html", ".htm"):
        raise InputError(f"{args.output}: a page ends in .html; name it for example report.html")
    if not args.output.parent.is_dir():
        raise InputError(f"{args.output}: folder {args.output.parent} does not exist; make it first")
    refuse_existing(args.output, overwrite=args.overwrite)
    if args.resamples < 1:
        raise InputError(f"--resamples {args.resamples}: at least 1 needed, 500 for intervals one can report")
    if args.session and not (args.film or args.audio):
        raise InputError(f"--session {args.session}: says whose film or sound it is; add --film or --audio")


def _session_of_media(args: argparse.Namespace, names: list[str]) -> str | None:
    if not (args.film or args.audio):
        return None
    some = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
    if args.session is None and len(names) > 1:
        raise InputError(f"{args.predictions}: holds {len(names)} sessions ({some}); say whose film it is by --session")
    if args.session is not None and args.session not in names:
        raise InputError(f"--session {args.session}: not in {args.predictions}, which holds {some}; choose one of them")
    return args.session or names[0]
