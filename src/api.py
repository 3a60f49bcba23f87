"""Questions to any family of kernels: what the package's public names stand for."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol, TypeGuard

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.driver import parse_problem_line
from foretune.miopen.predictor import DEFAULT_RISK, MIOpenPredictor, shipped_models
from foretune.predictor.ranking import JUDGED

if TYPE_CHECKING:
    import os

    from foretune.kernels.find import Found
    from foretune.kernels.problem import Problem
    from foretune.predictor.prediction import Prediction


class _Family(Protocol):
    """Predicts for one family of kernels."""

    def predict(self, problem: ConvProblem, top: int) -> Prediction: ...

    def predict_many(self, problems: Iterable[ConvProblem], top: int) -> list[Prediction]: ...


def _miopen_family(
    arch: str, units: int | None, risk: float, miopen: str, models: str | os.PathLike[str] | None
) -> _Family:
    return MIOpenPredictor(arch, units, risk=risk, miopen=miopen, models=models)


def _kernels_family(
    arch: str, units: int | None, risk: float, miopen: str, models: str | os.PathLike[str] | None
) -> _Family:
    # Who asks for MIOpen's solvers must not pay for its import.
    from foretune.predictor.kernels.predictor import KernelPredictor

    if miopen != "any":
        raise InputError("only MIOpen's solvers depend on its release", "MIOpen version")
    return KernelPredictor(arch, units, risk=risk, models=models)


#: Whose kernels -> what predicts for them.
FAMILIES = {"miopen": _miopen_family, "kernels": _kernels_family}
DEFAULT_TOP = JUDGED


class Predictor:
    """Predicts for one device.

    Make one for many problems: it loads its model once, and remembers its answers.

    Parameters
    ----------
    arch : str
        "gfx942", or as a device reports it: "gfx90a:sramecc+:xnack-". An arch without a model
        gets answers without solutions, never accepted.
    compute_units : int, optional
        Default: the arch's usual count.
    risk : float, default 0.05
        Share of accepted answers that may turn out slower than 1.10 times the best.
    family : {'miopen', 'kernels'}
        Whose kernels: MIOpen's solvers or foretune's own library.
    miopen : str, default 'any'
        MIOpen release whose solvers may be picked, such as "3.6"; "any" takes every solver that
        the databases know.
    models : path-like, optional
        Folder with a model for each arch. Default: the models that come with foretune.

    Raises
    ------
    InputError
        If an argument can't be understood.

    Examples
    --------
    >>> predictor = Predictor("gfx942", 304)
    >>> answers = predictor.predict_many(
    ...     [ConvProblem("F", n, 64, (56, 56), 64, (3, 3), padding=(1, 1)) for n in (16, 32)]
    ... )
    >>> [len(answer.solutions) > 0 for answer in answers]
    [True, True]
    """

    def __init__(
        self,
        arch: str,
        compute_units: int | None = None,
        *,
        risk: float = DEFAULT_RISK,
        family: str = "miopen",
        miopen: str = "any",
        models: str | os.PathLike[str] | None = None,
    ) -> None:
        make = FAMILIES.get(family) if isinstance(family, str) else None
        if make is None:
            raise InputError(f"expected one of {', '.join(FAMILIES)}, got {family!r}", "family")
        self._family = make(arch, compute_units, risk, miopen, models)

    def predict(self, problem: ConvProblem | str, top: int = DEFAULT_TOP) -> Prediction:
        """Answer one problem.

        Parameters
        ----------
        problem : ConvProblem or str
            As text a find-db key, or a MIOpenDriver line that names one direction.
        top : int, default 4
            Solutions to give at most.
        """
        _check_top(top)
        if not isinstance(problem, ConvProblem):
            problem = _one_problem(problem)
        return self._family.predict(problem, top)

    def predict_many(
        self, problems: Iterable[ConvProblem | str], top: int = DEFAULT_TOP
    ) -> list[Prediction]:
        """Answer many problems, in order; together, which is several times as quick."""
        if isinstance(problems, str | ConvProblem):
            raise InputError(f"expected several, got {problems!r}; predict takes one", "problems")
        _check_top(top)
        return self._family.predict_many(
            [p if isinstance(p, ConvProblem) else _one_problem(p) for p in problems], top
        )


def predict(
    problem: ConvProblem | str,
    arch: str,
    compute_units: int | None = None,
    *,
    risk: float = DEFAULT_RISK,
    top: int = DEFAULT_TOP,
    family: str = "miopen",
    miopen: str = "any",
) -> Prediction:
    """Tell which kernel and config win for a problem, and how sure that is.

    Parameters
    ----------
    problem : ConvProblem or str
        As text a find-db key, or a MIOpenDriver line that names one direction.
    arch, compute_units, risk, family, miopen
        As for `Predictor`, the last few of which are kept loaded.
    top : int, default 4
        Solutions to give at most.

    Returns
    -------
    Prediction
        Solutions, the best first, and whether the first may be used without measuring.

    Raises
    ------
    InputError
        If an argument can't be understood.

    Examples
    --------
    >>> answer = predict(
    ...     "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F", arch="gfx942", compute_units=304
    ... )
    >>> answer.problem.batch, answer.arch, len(answer.solutions) > 0
    (32, 'gfx942', True)
    """
    try:
        predictor = _kept_predictor(arch, compute_units, risk, family, miopen)
    except TypeError:  # an argument can't be looked up; this says which
        predictor = Predictor(arch, compute_units, risk=risk, family=family, miopen=miopen)
    return predictor.predict(problem, top)


def find(
    problem: Problem | str,
    device: str = "",
    *,
    budget: float = 10.0,
    workspace_limit: int | None = None,
    deterministic: bool = False,
    enforce: bool = False,
) -> Found:
    """Measure foretune's own kernels for a problem on a device, and rank them by time.

    The answer is kept in the user's store, and served from there when it is asked for again.

    Parameters
    ----------
    problem : ConvProblem, problem of another operation, or str
        As text a find-db key, or a MIOpenDriver line that names one direction.
    device, budget, workspace_limit, deterministic, enforce
        As for `foretune.kernels.find.find`.

    Returns
    -------
    Found
        Candidates, the fastest first, and why others were left out.

    Raises
    ------
    InputError
        If an argument can't be understood, there is no such device, or the tensors don't fit on it.

    Examples
    --------
    >>> found = find(ConvProblem("F", 1, 8, (8, 8), 8, (3, 3)), device="cpu", budget=1)
    >>> found.solutions[0].time_ms > 0, found.solutions[0].workspace >= 0
    (True, True)
    """
    # The path that predicts must not pay for these.
    from foretune.kernels.find import find as find_on

    return find_on(
        problem if _is_problem(problem) else _one_problem(problem),
        device,
        budget=budget,
        workspace_limit=workspace_limit,
        deterministic=deterministic,
        enforce=enforce,
    )


def known_archs() -> tuple[str, ...]:
    """Archs that a model comes for.

    Examples
    --------
    >>> "gfx942" in known_archs()
    True
    """
    return tuple(sorted(path.name for path in shipped_models().glob("gfx*") if path.is_dir()))


@lru_cache(maxsize=8)
def _kept_predictor(
    arch: str, compute_units: int | None, risk: float, family: str, miopen: str
) -> Predictor:
    return Predictor(arch, compute_units, risk=risk, family=family, miopen=miopen)


def _is_problem(problem: Problem | str) -> TypeGuard[Problem]:
    return hasattr(problem, "operation")


def _check_top(top: int) -> None:
    if not isinstance(top, int) or top < 1:
        raise InputError(f"expected at least 1, a whole number, got {top!r}", "top")


def _one_problem(text: object) -> ConvProblem:
    if not isinstance(text, str):
        raise InputError(
            f"expected a ConvProblem, a find-db key or a MIOpenDriver line, got {text!r}", "problem"
        )
    problems = parse_problem_line(text)
    if len(problems) > 1:
        directions = ", ".join(problem.direction for problem in problems)
        raise InputError(
            f"the line names {len(problems)} problems (directions {directions}), expected one; "
            "say which by -F 1, 2 or 4, or give the list from "
            "foretune.miopen.driver.parse_driver_line to Predictor.predict_many",
            "driver line, -F",
        )
    return problems[0]
