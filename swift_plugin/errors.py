"""The one error that a user's input can cause."""


class InputError(ValueError):
    """Bad input: a single line that names the file, the value found and the remedy."""
