"""Predictions while the session is still running."""
