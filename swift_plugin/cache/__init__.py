"""What the frozen towers say about a session, computed once and kept on disk."""
