"""The command `swift-turn`: finds the command, runs it, turns bad input into one line and exit code 2."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from swift_plugin import __version__
from swift_plugin.errors import InputError

# name -> module with SUMMARY, EXAMPLE, add_arguments(parser) and run(args). Listed in the order of work.
# A module with TAKES_REST finds the words that its parser does not know in `args.rest`.
COMMANDS = {
    "targets": "swift_plugin.labels.command",
    "cache": "swift_plugin.cache.command",
    "sft": "swift_plugin.task.command",
    "predict": "swift_plugin.task.predict_command",
    "evaluate": "swift_plugin.evaluation.command",
    "report": "swift_plugin.evaluation.report.command",
}


class _Parser(argparse.ArgumentParser):
    """Ends a wrong command line with one line and exit code 2."""

    def error(self, message: str) -> None:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="swift-turn",
        description="Turn prediction with Qwen2.5-Omni: from a recording to targets, cache, training, predictions.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"swift-turn {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module_name in COMMANDS.items():
        module = importlib.import_module(module_name)
        command = commands.add_parser(
            name,
            help=module.SUMMARY,
            description=module.SUMMARY,
            epilog=f"example:\n  {module.EXAMPLE}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        module.add_arguments(command)
        command.add_argument("--debug", action="store_true", help="show the traceback of an error")
        command.set_defaults(run=module.run, takes_rest=getattr(module, "TAKES_REST", False))
    return parser


def _with_underscores(words: Sequence[str]) -> list[str]:
    """Options are written as ms-swift's, `--video_fps`; `--video-fps` is taken too, except by a command that hands on."""
    if words and words[0] in COMMANDS and getattr(importlib.import_module(COMMANDS[words[0]]), "TAKES_REST", False):
        return list(words)
    options = (word.partition("=") if word.startswith("--") else (word, "", "") for word in words)
    return [
        "--" + name[2:].replace("-", "_") + sign + value if name.startswith("--") else name for name, sign, value in options
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = build_parser()
    args, args.rest = parser.parse_known_args(_with_underscores(sys.argv[1:] if argv is None else argv))
    if args.rest and not args.takes_rest:
        parser.error(f"unrecognized arguments: {' '.join(args.rest)}")
    try:
        return args.run(args) or 0
    except InputError as error:
        if args.debug:
            raise
        print(f"swift-turn {args.command}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(main())
