"""Tables for people, in plain text."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def format_table(
    headers: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()
) -> str:
    """Align rows in columns under their headers.

    Parameters
    ----------
    headers : sequence of str
        One for each column.
    rows : sequence of sequence of str
        A row of a single cell is a remark: it is indented, and widens no column. Other short rows
        have empty cells at their end.
    right : collection of str
        Headers of the columns that are aligned on the right.

    Returns
    -------
    str
        Lines with their ends.

    Examples
    --------
    >>> print(format_table(["solver", "ms"], [["fft", "1.5"], ["so fast"], ["a", "12"]], ["ms"]))
    solver   ms
    fft     1.5
      so fast
    a        12
    <BLANKLINE>
    """
    widths = [len(header) for header in headers]
    for row in rows:
        if len(row) > 1:
            widths = [*map(max, widths, map(len, row)), *widths[len(row) :]]
    aligns = [">" if header in right else "<" for header in headers]
    lines = []
    for row in (headers, *rows):
        if len(row) == 1 < len(headers):
            lines.append(f"  {row[0]}")
            continue
        cells = (
            f"{cell:{align}{width}}"
            for cell, align, width in zip(row, aligns, widths, strict=False)
        )
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines) + "\n"


def format_bytes(count: int) -> str:
    """Size in bytes for people, in powers of 1024.

    Examples
    --------
    >>> format_bytes(0), format_bytes(1536), format_bytes(3 * 2**30)
    ('0', '1.5 KiB', '3.0 GiB')
    """
    size, unit = float(count), ""
    for unit in ("", " KiB", " MiB", " GiB", " TiB"):
        if abs(size) < 1024 or unit == " TiB":
            break
        size /= 1024
    return f"{size:.1f}{unit}" if unit else f"{count}"


def printable(text: str) -> str:
    r"""Text of someone else's file without what a terminal would obey.

    Examples
    --------
    >>> printable("a\x1b[31m\tb")
    'a?[31m?b'
    """
    return "".join(char if char.isprintable() else "?" for char in text)


def issue_lines(issues: Sequence[object], shown: int = 10) -> Iterator[str]:
    """Say what could not be used of files: how much, and the first of it.

    Examples
    --------
    >>> list(issue_lines(["a.txt, line 7: no '='"]))
    ['1 issue:', "  a.txt, line 7: no '='"]
    """
    if issues:
        yield f"{len(issues)} {'issue' if len(issues) == 1 else 'issues'}:"
    for issue in issues[:shown]:
        yield f"  {printable(str(issue))}"
    if len(issues) > shown:
        yield f"  and {len(issues) - shown} more"


def number_headers(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> Collection[str]:
    """Give the headers of the columns that hold numbers, after the first.

    Examples
    --------
    >>> sorted(number_headers(["picker", "ms", "why"], [["a", "1.5", "b"], ["c", "", "d"]]))
    ['ms']
    """
    return {
        header
        for column, header in enumerate(headers)
        if column and all(not row[column] or row[column][0].isdigit() for row in rows)
    }
