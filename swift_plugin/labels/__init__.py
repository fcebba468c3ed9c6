"""Annotations of who speaks, turned into targets [T, 3]."""
