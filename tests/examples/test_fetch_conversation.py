"""pip is pointed at a wheel made here, so that nothing leaves this machine."""

from __future__ import annotations

import hashlib
import zipfile

import pytest

from swift_plugin.errors import InputError

FILES = {"sample.wav": b"RIFF sound", "sample.rttm": b"SPEAKER sample 1 0.0 1.0 <NA> <NA> anna <NA> <NA>\n"}


@pytest.fixture
def fetch(load_example, tmp_path, monkeypatch):
    """The example, for which pip sees only `tmp_path / index` and `FILES` are the pinned ones."""
    example = load_example("fetch_conversation")
    index = tmp_path / "index"
    index.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    pinned = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(example, "SHA256", pinned)
    return example


def write_wheel(index, files):
    with zipfile.ZipFile(index / "pyannote_audio-4.0.7-py3-none-any.whl", "w") as wheel:
        for name, content in files.items():
            wheel.writestr(f"pyannote/audio/sample/{name}", content)
        info = "pyannote_audio-4.0.7.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: pyannote.audio\nVersion: 4.0.7\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


def test_takes_the_two_files_out_of_the_wheel(fetch, tmp_path):
    write_wheel(tmp_path / "index", FILES)
    paths = fetch.fetch_conversation(tmp_path / "out")
    assert {path.name: path.read_bytes() for path in paths} == FILES
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(FILES)


def test_files_that_are_there_need_no_download(fetch, tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_bytes(content)
    assert fetch.fetch_conversation(tmp_path) == [tmp_path / name for name in FILES]  # the index is empty


def test_another_file_of_that_name_is_left_alone(fetch, tmp_path):
    write_wheel(tmp_path / "index", FILES)
    (tmp_path / "sample.rttm").write_text("mine")
    with pytest.raises(InputError, match="sample.rttm is another file"):
        fetch.fetch_conversation(tmp_path)
    assert (tmp_path / "sample.rttm").read_text() == "mine" and not (tmp_path / "sample.wav").exists()


def test_a_changed_file_in_the_wheel_is_refused(fetch, tmp_path):
    write_wheel(tmp_path / "index", {**FILES, "sample.wav": b"RIFF other"})
    with pytest.raises(InputError, match="sample.wav has SHA-256 .* instead of"):
        fetch.fetch_conversation(tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_wheel_without_the_sample_is_refused(fetch, tmp_path):
    write_wheel(tmp_path / "index", {})
    with pytest.raises(InputError, match="holds no pyannote/audio/sample/sample.wav"):
        fetch.fetch_conversation(tmp_path / "out")


def test_a_failing_pip_is_one_line(fetch, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["fetch_conversation.py", "--output", str(tmp_path / "out")])
    assert fetch.main() == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pyannote.audio==4.0.7: pip could not download it" in error


@pytest.mark.shared_data
def test_the_pinned_checksums_are_those_of_the_real_files(load_example, shared_data):
    pinned = load_example("fetch_conversation").SHA256
    assert pinned == {
        name: hashlib.sha256((shared_data / "pyannote" / name).read_bytes()).hexdigest()
        for name in ("sample.wav", "sample.rttm")
    }
