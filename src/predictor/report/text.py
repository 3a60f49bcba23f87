"""Text of unknown origin, made fit for a page and a figure."""

from __future__ import annotations

from unicodedata import category

# Controls, halves of surrogate pairs, marks that turn the direction of text, what is unassigned,
# private, or breaks a line.
_NOT_SHOWN = frozenset(("Cc", "Cs", "Cf", "Cn", "Co", "Zl", "Zp"))


def printable(text: str) -> str:
    r"""Text with escapes in place of what a page can't hold or wouldn't show.

    Bytes of a file's name that are no text are among that.

    Examples
    --------
    >>> printable("net\x00 5\udcff")
    'net\\x00 5\\udcff'
    """
    return "".join(
        letter.encode("unicode_escape").decode() if category(letter) in _NOT_SHOWN else letter
        for letter in text
    )


def shorten(text: str, most: int) -> str:
    """Text for a figure, in one line, its end left out where it is too long.

    Examples
    --------
    >>> shorten("a network of a long name", 12)
    'a network o…'
    """
    line = printable(" ".join(text.split()))
    return line if len(line) <= most else f"{line[: most - 1]}…"
