"""Sound and frames of a session by time, in stream order."""
