"""`swift-turn sft`: the words that reach ms-swift, its environment and its exit code."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys

import pytest

from swift_plugin import cli
from swift_plugin.task.command import PLUGIN


@pytest.fixture
def words(monkeypatch):
    """Runs `swift-turn sft` up to the process that ms-swift would start, and gives that command."""

    def call(*argv: str) -> list[str]:
        swift_main = importlib.import_module("swift.cli.main")
        seen = []

        class Done:
            returncode = 0

        monkeypatch.setattr(sys, "argv", ["swift-turn"])
        monkeypatch.setattr(swift_main.subprocess, "run", lambda command: seen.append(command) or Done())
        assert cli.main(["sft", *argv]) == 0
        return seen[0]

    return call


@pytest.fixture(autouse=True)
def one_process(monkeypatch):
    for name in ("NPROC_PER_NODE", "NNODES", "SWIFT_CONFIG_FILE"):
        monkeypatch.setenv(name, "")  # so that what a test leaves there goes
        monkeypatch.delenv(name)


def after(command: list[str], option: str) -> list[str]:
    """The values of an option that stands once."""
    assert command.count(option) == 1
    start = command.index(option) + 1
    end = next((i for i in range(start, len(command)) if command[i].startswith("--")), len(command))
    return command[start:end]


def test_the_plugin_is_added_and_the_rest_is_unchanged(words):
    rest = ["--model", "m", "--dataset", "a#5", "b", "--model_kwargs", '{"turn_head_dropout": 0}', "--learning_rate", "-1"]
    command = words(*rest)
    assert command[1].endswith("swift/cli/sft.py")
    assert command[2:] == [*rest, "--external_plugins", str(PLUGIN)]


@pytest.mark.parametrize("word", ["--custom-plugin", "--custom_plugin", "--custom_register_path", "--external_plugins"])
def test_other_words_for_plugins(words, word):
    command = words(word, "mine.py", "--model", "m")
    assert after(command, "--external_plugins") == ["mine.py", str(PLUGIN)]
    assert after(command, "--model") == ["m"]
    assert word == "--external_plugins" or word not in command


def test_a_plugin_that_is_named_is_not_added_again(words, tmp_path):
    copy = str(tmp_path / "swift_plugin" / "plugin.py")
    assert after(words("--custom-plugin", str(PLUGIN)), "--external_plugins") == [str(PLUGIN)]
    assert after(words("--custom-plugin", copy), "--external_plugins") == [copy]


@pytest.mark.parametrize("name", ["run.yaml", "run.json"])
def test_plugins_of_a_configuration_file_are_kept(words, tmp_path, name):
    config = tmp_path / name
    config.write_text(json.dumps({"model": "m", "external_plugins": ["mine.py"], "ENV": {"TURN_SAMPLING": "anchor"}}))
    command = words(str(config), "--model", "other")
    # ms-swift's parser takes the last list
    assert command[-3:] == ["--external_plugins", "mine.py", str(PLUGIN)]
    assert os.environ.pop("TURN_SAMPLING") == "anchor"


def test_a_missing_configuration_file_is_one_line(capsys):
    assert cli.main(["sft", "missing.yaml"]) == 2
    assert capsys.readouterr().err.startswith("swift-turn sft: missing.yaml: no such file")


def test_several_processes_as_ms_swift_starts_them(words, monkeypatch):
    monkeypatch.setenv("NPROC_PER_NODE", "2")
    command = words("--model", "m")
    assert command[1:5] == ["-m", "torch.distributed.run", "--nproc_per_node", "2"]


def test_other_commands_still_refuse_unknown_words(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["evaluate", "p.npz", "--output", "m.json", "--colour", "red"])
    assert end.value.code == 2 and "--colour red" in capsys.readouterr().err


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit):
        cli.main(["sft", "--help"])
    assert "swift-turn sft --model" in capsys.readouterr().out.replace("NPROC_PER_NODE=8 ", "")


@pytest.mark.slow
def test_the_exit_code_is_passed_on():
    command = [sys.executable, "-m", "swift_plugin", "sft", "--learning_rate", "1e-3"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 1
    assert "Please set --model" in result.stderr  # ms-swift's own words
