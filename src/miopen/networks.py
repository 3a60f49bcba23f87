"""Convolutions of well-known networks, and what finding their solvers takes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.suites import read_suite
from foretune.miopen.driver import parse_driver_line

#: Runs of one candidate in MIOpen's find: one to warm up and seven that count (newer releases).
RUNS = 8
#: Types that a network is looked at in.
TYPES = ("FP32", "FP16", "BF16")
#: Suites that come with foretune and are networks.
SUITES = ("resnet50", "mobilenet", "unet")

Networks = Mapping[str, Counter[ConvProblem]]


def read_networks(folder: str | os.PathLike[str]) -> Networks:
    """Read the convolutions of each network in a folder, counted.

    Parameters
    ----------
    folder : path-like
        Of files (*.txt), one for each network, with a MIOpenDriver line for each layer and
        direction. Lines of other operations are left out; a line that stands twice counts twice.

    Raises
    ------
    InputError
        If the folder holds no such line.
    """
    networks = {}
    for path in sorted(Path(folder).glob("*.txt")):
        problems: Counter[ConvProblem] = Counter()
        for line in _lines(path):
            try:
                problems.update(parse_driver_line(line))
            except InputError:  # pooling, batch normalisation
                continue
        if problems:
            networks[path.stem] = problems
    if not networks:
        raise InputError(
            "holds no *.txt with MIOpenDriver lines of convolutions", os.fspath(folder)
        )
    return networks


def suite_networks() -> Networks:
    """Networks that come with foretune.

    Examples
    --------
    >>> list(suite_networks())
    ['resnet50', 'mobilenet', 'unet']
    """
    return {
        name: Counter(p for p in read_suite(name) if isinstance(p, ConvProblem)) for name in SUITES
    }


def in_types(networks: Networks, types: Iterable[str] = TYPES) -> Networks:
    """Take networks in other data types, each layer in each type."""
    types = tuple(types)
    return {
        name: Counter(
            {
                as_type(problem, dtype): count
                for dtype in types
                for problem, count in problems.items()
            }
        )
        for name, problems in networks.items()
    }


def as_type(problem: ConvProblem, dtype: str) -> ConvProblem:
    """Take a problem in another data type.

    Examples
    --------
    >>> as_type(ConvProblem("F", 1, 8, (8, 8), 8, (1, 1)), "FP16").out_dtype
    'FP16'
    """
    return replace(problem, dtype=dtype, weight_dtype=dtype, out_dtype=dtype)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", str(path)) from None
