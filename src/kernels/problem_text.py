"""Problems of any operation as one line of text and back: the key of every store.

The line is the operation and the fields that differ from their defaults, in the order in which the
class declares them: ``conv direction=F batch=1 in_channels=3 in_size=8x8 ...``. Equal problems have
equal lines. What a person writes may leave out whatever the class fills in.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from itertools import product
from typing import Any, get_args, get_origin, get_type_hints

from foretune.errors import InputError
from foretune.kernels.problem import Problem

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)
_VALUE = re.compile(r"[^\s=|]*")


def format_problem(problem: Problem) -> str:
    """Canonical text of a problem.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> format_problem(ConvProblem("F", 1, 3, (8, 8), 4, (3, 3)))[:58]
    'conv direction=F batch=1 in_channels=3 in_size=8x8 out_cha'
    """
    described: Any = problem
    return _formatted(described)


@lru_cache(maxsize=16384)
def _formatted(problem: Any) -> str:
    words = [problem.operation]
    cls: Any = type(problem)
    for name, (default, write, _) in _fields(cls).items():
        value = getattr(problem, name)
        if value != default:
            words.append(f"{name}={write(value)}")
    return " ".join(words)


def parse_problem(text: str) -> Problem:
    """Read a problem from its text; fields in any order.

    Raises
    ------
    InputError
        If it is none; the message names the field.

    Examples
    --------
    >>> parse_problem("conv direction=F batch=1 in_channels=3 in_size=8x8 "
    ...               "out_channels=4 filter_size=3x3").out_size
    (6, 6)
    """
    problems = expand_problems(text)
    if len(problems) > 1:
        raise InputError(f"expected one problem, got {len(problems)}", f"problem {text!r}")
    return problems[0]


def expand_problems(text: str) -> list[Problem]:
    """Read a line that may give several values for a field, separated by "|".

    Examples
    --------
    >>> problems = expand_problems("conv direction=F|B|W batch=1 in_channels=3 in_size=8x8 "
    ...                            "out_channels=4 filter_size=3x3 dtype=FP32|FP16")
    >>> [(problem.direction, problem.dtype) for problem in problems][:3]
    [('F', 'FP32'), ('F', 'FP16'), ('B', 'FP32')]
    """
    where = f"problem {text!r}"
    operation, *words = text.split() or [""]
    cls = _problem_class(operation, where)
    fields = _fields(cls)
    values: dict[str, list[Any]] = {}
    for word in words:
        name, equals, choices = word.partition("=")
        if name not in fields or not equals:
            known = ", ".join(fields)
            raise InputError(f"expected FIELD=value, got {word!r}; fields are {known}", where)
        if name in values:
            raise InputError("is given twice", f"{where}, {name}")
        try:
            values[name] = [fields[name][2](choice) for choice in choices.split("|")]
        except ValueError:
            raise InputError(f"can't be read: {choices!r}", f"{where}, {name}") from None
    made = []
    for chosen in product(*values.values()):
        try:
            made.append(cls(**dict(zip(values, chosen, strict=True))))
        except InputError as error:
            raise InputError(error.message, f"{where}, {error.where}") from None
        except TypeError:
            required = [name for name, (default, _, _) in fields.items() if default is _REQUIRED]
            missing = ", ".join(name for name in required if name not in values)
            raise InputError(f"missing: {missing}", where) from None
    return made


#: Stands for the default of a field that has none.
_REQUIRED = object()


def _problem_class(operation: str, where: str) -> Any:
    module: Any = None
    if _WORD.fullmatch(operation):
        try:
            module = import_module(f"foretune.kernels.{operation}.problem")
        except ModuleNotFoundError as error:
            if not str(error.name).startswith("foretune."):
                raise
    for value in vars(module).values() if module else ():
        if dataclasses.is_dataclass(value) and getattr(value, "operation", "") == operation:
            return value
    raise InputError(f"no operation is called {operation!r}", where)


@lru_cache(maxsize=64)
def _fields(cls: Any) -> dict[str, tuple[Any, Callable[[Any], str], Callable[[str], Any]]]:
    """Default, writer and reader of every field."""
    hints = get_type_hints(cls)
    return {
        field.name: (
            _REQUIRED if field.default is dataclasses.MISSING else field.default,
            *_codec(hints[field.name]),
        )
        for field in dataclasses.fields(cls)
    }


def _codec(kind: Any) -> tuple[Callable[[Any], str], Callable[[str], Any]]:
    """How values of a type are written and read."""
    if get_origin(kind) is tuple:
        write, read = _codec(get_args(kind)[0])
        return (
            lambda values: "x".join(map(write, values)),
            lambda text: tuple(map(read, text.split("x"))) if text else (),
        )
    return _CODECS[kind]


def _read_word(text: str) -> str:
    if not _VALUE.fullmatch(text):
        raise ValueError(text)
    return text


def _read_int(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,19}", text, re.ASCII):
        raise ValueError(text)
    return int(text)


_CODECS: dict[Any, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    int: (str, _read_int),
    float: (repr, float),
    bool: (lambda value: str(int(value)), lambda text: bool(("0", "1").index(text))),
    str: (str, _read_word),
}
