"""The few configs of each solver that together lose least: what is ranked, and measured first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.problem_text import format_problem, parse_problem
from foretune.kernels.solver import Candidate

if TYPE_CHECKING:
    from foretune.kernels.task import Pace, Task

#: Configs that each solver of a problem gets before those of the fastest are preferred.
_FAIR_TRIES = 6


def choose_portfolio(
    costs: npt.NDArray[np.float64], count: int, weights: npt.NDArray[np.float64] | None = None
) -> list[int]:
    """Order candidates greedily, so that each next one saves most over those before it.

    Parameters
    ----------
    costs : array of shape (problems, candidates)
        What picking a candidate costs, such as its log slowdown; infinite where it can't run.
    count : int
        Candidates at most; fewer when no other saves anything.
    weights : array of shape (problems,), optional

    Examples
    --------
    >>> choose_portfolio(np.array([[0.0, 1.0, 0.3], [1.0, 0.0, 0.3], [9.0, 0.0, 0.3]]), 3)
    [2, 1, 0]
    """
    worst = np.where(np.isfinite(costs), costs, 0.0).max(initial=0.0) + 1.0
    bounded = np.minimum(costs, worst)
    share = np.ones(len(costs)) if weights is None else weights
    reached = np.full(len(costs), worst)
    chosen: list[int] = []
    while len(chosen) < count:
        saved = share @ np.maximum(reached[:, None] - bounded, 0.0)
        best = int(saved.argmax()) if saved.size else -1
        if best < 0 or saved[best] <= 1e-12:
            break
        chosen.append(best)
        reached = np.minimum(reached, bounded[:, best])
    return chosen


def write_portfolio(path: str | os.PathLike[str], keys: Iterable[str]) -> None:
    """Write candidates' keys, one a line, the most useful of each solver first."""
    Path(path).write_text("".join(f"{key}\n" for key in keys), encoding="utf-8")


#: What begins the lines of a single problem.
_FOR = "for "
#: Problem's text, or "" for every problem -> solver -> texts of its configs.
Portfolio = dict[str, dict[str, list[str]]]


def read_portfolio(path: str | os.PathLike[str]) -> Portfolio:
    """Read candidates, one a line as ``Solver{NAME=value,...}``; "#" begins a comment.

    After a line ``for PROBLEM`` they are for that problem alone.

    Returns
    -------
    dict
        Problem's canonical text, "" for every problem -> solver -> texts of its configs, in the
        order of the file.

    Raises
    ------
    InputError
        If the file can't be read, or a line is no candidate.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"can't be read: {error}", str(path)) from None
    found: Portfolio = {"": {}}
    section = found[""]
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        where = f"{path}, line {number}"
        if text.startswith(_FOR):
            try:
                problem = format_problem(parse_problem(text.removeprefix(_FOR)))
            except InputError as error:
                raise InputError(str(error), where) from None
            section = found.setdefault(problem, {})
        elif text:
            solver, brace, config = text.partition("{")
            if not solver.isidentifier() or (brace and not config.endswith("}")):
                raise InputError(f"expected Solver{{NAME=value,...}}, got {text!r}", where)
            section.setdefault(solver, []).append(config.removesuffix("}"))
    return found


class PortfolioChooser:
    """Lets a tuning run try the same candidates on all problems, before it searches.

    What is measured everywhere can be compared everywhere; and kernels are built once for many
    problems.

    Parameters
    ----------
    portfolio : mapping
        Of `read_portfolio`. What is for a problem alone comes before what is for all.
    """

    def __init__(self, portfolio: Mapping[str, Mapping[str, Sequence[str]]]) -> None:
        self._portfolio = portfolio

    def choose(self, task: Task, count: int, pace: Pace) -> list[Candidate[Any]]:  # noqa: ARG002
        """Give candidates that were not tried; the fastest solver so far gets half of a batch."""
        own = self._portfolio.get(task.text, {})
        first = [
            candidate for solver in task.searches for candidate in self._untried(task, solver, own)
        ]
        return first[:count] or self._from_all(task, count)

    def _from_all(self, task: Task, count: int) -> list[Candidate[Any]]:
        for_all = self._portfolio.get("", {})
        ranked = sorted(task.searches, key=lambda solver: task.searches[solver].best_ms or 1e30)
        waiting = {solver: self._untried(task, solver, for_all) for solver in ranked}
        chosen: list[Candidate[Any]] = []

        def take(solver: Any, wanted: int) -> None:
            some = waiting[solver][: max(0, min(wanted, count - len(chosen)))]
            del waiting[solver][: len(some)]
            chosen.extend(some)

        for solver in ranked:
            take(solver, _FAIR_TRIES - task.given[solver.id])
        share = count - len(chosen)
        for solver in ranked:
            share = -(-share // 2)
            take(solver, share)
        return chosen

    def _untried(
        self, task: Task, solver: Any, portfolio: Mapping[str, Sequence[str]]
    ) -> list[Candidate[Any]]:
        search = task.searches[solver]
        found = []
        for text in portfolio.get(solver.id, ()):
            try:
                config = search.space.parse(text)
            except InputError:
                continue  # not every config is one of every problem's space
            if not search.is_proposed(config):
                found.append(Candidate(solver, config))
        return found
