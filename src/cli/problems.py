"""Problems as people write them: find-db keys, driver lines, foretune's own text."""

from __future__ import annotations

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import expand_problems, format_problem
from foretune.miopen.driver import parse_problem_line
from foretune.miopen.keys import format_find_key


def parse_problems(text: str) -> list[Problem]:
    """Read what a person wrote; one text may name several problems.

    Raises
    ------
    InputError
        If it is none.

    Examples
    --------
    >>> [problem.operation for problem in parse_problems("MIOpenDriver conv -F 0")]
    ['conv', 'conv', 'conv']
    >>> parse_problems("conv direction=F batch=1 in_channels=3 in_size=8x8 out_channels=4 "
    ...                "filter_size=3x3")[0].flops
    7776
    """
    if "=" in text and "MIOpenDriver" not in text:
        return expand_problems(text)
    return list(parse_problem_line(text))


def name_of(problem: Problem) -> str:
    """Name a problem by its find-db key, if it has one."""
    if isinstance(problem, ConvProblem):
        return format_find_key(problem)
    return format_problem(problem)
