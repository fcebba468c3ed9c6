"""`swift-turn sft`: ms-swift's own `swift sft`, with this plug-in among its `--external_plugins`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from swift_plugin.errors import InputError

SUMMARY = "train: the command swift sft, with this plug-in; every other option goes on to ms-swift unchanged"
EXAMPLE = (
    "NPROC_PER_NODE=8 swift-turn sft --model Qwen/Qwen2.5-Omni-7B --model_type qwen2_5_omni_turn \\\n"
    "      --tuner_type turn --dataset caches/session_1/turn_manifest.json --deepspeed zero2\n"
    "  swift-turn sft train.yaml"
)
TAKES_REST = True  # what this parser does not know belongs to ms-swift

PLUGIN = Path(__file__).resolve().parents[1] / "plugin.py"
PLUGIN_WORDS = ("--external_plugins", "--custom-plugin", "--custom_plugin", "--custom_register_path")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *PLUGIN_WORDS,
        dest="external_plugins",
        metavar="FILE",
        nargs="+",
        action="extend",
        default=[],
        help="more plug-ins; this one need not be named",
    )


def run(args: argparse.Namespace) -> None:
    words = swift_words(args.external_plugins, args.rest)

    from swift.cli.main import cli_main

    sys.argv = ["swift", "sft", *words]
    cli_main()  # ends this process with the exit code of the training process where that is not 0


def swift_words(plugins: Sequence[str], rest: Sequence[str]) -> list[str]:
    """The words for `swift sft`: `rest` as it is, and all plug-ins, this one among them.

    A YAML or JSON file as the first word may name plug-ins too; ms-swift takes the last list it is given, so the list
    on the command line repeats them.

    Raises:
        InputError: that file is missing.
    """
    from_file = _plugins_of_config(Path(rest[0])) if rest and rest[0].endswith((".yaml", ".yml", ".json")) else []
    named = [*from_file, *plugins]
    if not any(_is_this_plugin(plugin) for plugin in named):
        named.append(str(PLUGIN))
    return [*rest, "--external_plugins", *named]


def _is_this_plugin(plugin: str) -> bool:
    """Also a copy of this package at another place: which one is loaded is the user's choice."""
    return Path(plugin).resolve().parts[-2:] == PLUGIN.parts[-2:]


def _plugins_of_config(path: Path) -> list[str]:
    if not path.is_file():
        raise InputError(f"{path}: no such file; the first word may be a YAML or JSON file with the options of swift sft")
    import yaml

    content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}  # JSON is YAML
    plugins = content.get("external_plugins") or []
    return [plugins] if isinstance(plugins, str) else list(plugins)
