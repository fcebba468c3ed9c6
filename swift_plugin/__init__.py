"""Turn prediction for Qwen2.5-Omni as a task of ms-swift."""

__version__ = "0.1.0"
