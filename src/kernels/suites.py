"""Lists of problems that are tuned and compared, by name or from a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import expand_problems

_FOLDER = Path(__file__).parent / "suites"


def suite_names() -> tuple[str, ...]:
    """Names of the suites that come with foretune.

    Examples
    --------
    >>> suite_names()
    ('cpu', 'cpu_varied', 'gpu', 'large_filter', 'mobilenet', 'resnet50', 'unet', 'varied')
    """
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.txt")))


def read_suite(
    name: str | os.PathLike[str], parse: Callable[[str], list[Problem]] = expand_problems
) -> list[Problem]:
    """Read the problems of a suite, each once.

    Parameters
    ----------
    name : str
        One of `suite_names`, several of them joined by commas, or a file with a problem on each
        line; blank lines and lines that begin with "#" are skipped.
    parse : callable, optional
        Reads a line of a file.

    Raises
    ------
    InputError
        If there is none of this name, or a line is no problem.

    Examples
    --------
    >>> len(read_suite("cpu")), read_suite("resnet50")[0].in_size
    (72, (224, 224))
    """
    words = os.fspath(name).split(",")
    if all(word in suite_names() for word in words):
        paths = [_FOLDER / f"{word}.txt" for word in words]
        parse = expand_problems
    else:
        paths = [Path(name)]
    problems: dict[Problem, None] = {}
    for path in paths:
        problems |= dict.fromkeys(_read(path, parse))
    if not problems:
        raise InputError("holds no problem", os.fspath(name))
    return list(problems)


def _read(path: Path, parse: Callable[[str], list[Problem]]) -> list[Problem]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        known = ", ".join(suite_names())
        raise InputError(
            f"no suite is called so ({known}), and as a file it can't be read: {error}", str(path)
        ) from None
    problems = []
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if text and not text.startswith("#"):
            try:
                problems += parse(text)
            except InputError as error:
                raise InputError(str(error), f"{path}, line {number}") from None
    return problems
