"""The command's frame: help with an example, one line and exit code 2 for bad input, both spellings of an option."""

import pytest

from swift_plugin import cli


@pytest.mark.parametrize("command", [name for name in cli.COMMANDS if name != "sft"])
def test_help_shows_an_example(command, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([command, "--help"])
    assert stop.value.code == 0
    assert f"example:\n  swift-turn {command}" in capsys.readouterr().out


def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path):
    words = ["targets", "--input", str(tmp_path / "gone.rttm"), "--self", "a", "--output", str(tmp_path / "t.npy")]
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert "gone.rttm" in captured.err and "Traceback" not in captured.err
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback(tmp_path):
    words = ["targets", "--input", str(tmp_path / "gone.rttm"), "--self", "a", "--output", str(tmp_path / "t.npy")]
    with pytest.raises(ValueError, match="gone.rttm"):
        cli.main([*words, "--debug"])


def test_an_unknown_option_is_refused(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["predict", "--checkpoint", "a", "--manifest", "b", "--output", "c.npz", "--colour", "red"])
    assert stop.value.code == 2
    assert "--colour red" in capsys.readouterr().err


def test_dashes_in_an_option_are_taken_for_underscores():
    words = ["cache", "--video-fps", "5", "--torch-dtype=bfloat16", "--output", "a-b"]
    assert cli._with_underscores(words) == ["cache", "--video_fps", "5", "--torch_dtype=bfloat16", "--output", "a-b"]


def test_words_for_ms_swift_go_on_as_they_are():
    words = ["sft", "--custom-plugin", "a.py", "--some-word"]
    assert cli._with_underscores(words) == words
