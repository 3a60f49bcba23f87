"""The error that a person sees: what was wrong, where, and what to do."""

from __future__ import annotations


class InputError(ValueError):
    """Input that foretune can't use, told in one line.

    The command prints the message and exits with code 2; it never shows a traceback for it.

    Parameters
    ----------
    message : str
        What was wrong and what to do about it.
    where : str, optional
        File, line or field that the message is about. It stands before the message.

    Examples
    --------
    >>> str(InputError("expected a number, got 'x'", where="driver line, -n"))
    "driver line, -n: expected a number, got 'x'"
    """

    def __init__(self, message: str, where: str = "") -> None:
        self.message = message
        self.where = where
        super().__init__(f"{where}: {message}" if where else message)
