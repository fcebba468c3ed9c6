from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def shared_data() -> Path:
    """The folder with real recordings beside the repository; see the marker `shared_data`."""
    folder = Path(__file__).resolve().parents[3] / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("../shared/data is not there")
    return folder
