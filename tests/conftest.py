"""What tests of every room share."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is loaded: sums in one order, and no fight for cores

import pytest

ROOT = Path(__file__).resolve().parents[1]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests that start many processes or take long")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and not item.config.getoption("--slow"):
        pytest.skip("slow: add --slow")
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device here")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with real recordings beside the repository; see the marker `shared_data`."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not there")
    return folder


@pytest.fixture(scope="session")
def load_example() -> Callable[[str], ModuleType]:
    """Imports `examples/<name>.py`, which is no package, by its path."""

    def load(name: str) -> ModuleType:
        spec = importlib.util.spec_from_file_location(f"examples_{name}", ROOT / "examples" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory, load_example) -> Path:
    """A Qwen2.5-Omni checkpoint with random weights, made once; read it, never write into it."""
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny_omni"
    return load_example("make_tiny_checkpoint").make_tiny_checkpoint(folder)


@pytest.fixture(scope="session")
def tiny_thinker(tiny_checkpoint: Path):
    """The native Thinker of that checkpoint, whole: the yardstick."""
    from transformers import Qwen2_5OmniForConditionalGeneration

    return Qwen2_5OmniForConditionalGeneration.from_pretrained(tiny_checkpoint).thinker.eval()
