"""What `swift sft --external_plugins …/swift_plugin/plugin.py` loads: it registers the task, and does nothing else."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

from packaging.specifiers import SpecifierSet

SUPPORTED = SpecifierSet(">=4.6,<5")

_found = importlib.metadata.version("ms-swift")
if not SUPPORTED.contains(_found, prereleases=True):
    raise ImportError(f"ms-swift {_found} found, {SUPPORTED} needed: pip install 'ms-swift{SUPPORTED}'")

if importlib.util.find_spec("swift_plugin") is None:  # a checkout that was not installed
    sys.path.append(str(Path(__file__).resolve().parent.parent))

from swift_plugin.task.register import register  # noqa: E402

register()
