"""Installs `swift_plugin` and the console script `swift-turn`."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "([^"]+)"', (HERE / "swift_plugin/__init__.py").read_text()).group(1)

setup(
    name="swift-plugin-turn",
    version=VERSION,
    description="Teaches Qwen2.5-Omni when to speak: turn prediction as a task of ms-swift",
    long_description=(HERE / "README.md").read_text(),
    long_description_content_type="text/markdown",
    packages=find_packages(include=["swift_plugin", "swift_plugin.*"]),
    package_data={"swift_plugin": ["**/*.html", "**/*.css", "**/*.js", "**/*.txt"]},
    python_requires=">=3.10",
    install_requires=[
        "ms-swift>=4.6,<5",
        "transformers>=5.17,<5.22",
        "peft>=0.20",
        "torch>=2.8",
        "torchvision",
        "datasets>=3",
        "numpy",
        "safetensors",
        "soundfile",
        "soxr",
        "av",
        "scikit-learn",
        "pyannote.core",
        "pandas",
        "pyarrow",
        "matplotlib",
        "rich",
    ],
    extras_require={
        "deepspeed": ["deepspeed"],
        "decoders": ["torchcodec", "decord"],
        "test": ["pytest"],
    },
    entry_points={"console_scripts": ["swift-turn = swift_plugin.cli:main"]},
)
