"""The ladder: who is asked, in which order, what shall compute a problem.

This process's cache; the user's database; the database that comes with foretune; the model, if it
is sure at the risk that was asked for; else its best candidates are measured; else all are, for as
long as the budget lasts. What was measured is kept in the user's database. How much may be measured
is a matter of the find mode (`foretune.predictor.find_mode`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from foretune.errors import InputError
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.records import BannedCandidate, MeasuredFor
from foretune.kernels.registry import naive_solver, solver
from foretune.kernels.runtime.device import open_device
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.solver import Candidate, Solver
from foretune.kernels.space import Config
from foretune.kernels.store import Store
from foretune.log import logger
from foretune.predictor.candidates import DEFAULT_RISK, CandidateModel, CandidateRanking
from foretune.predictor.considered import (
    MOST_TOLD,
    names_of,
    of_measured,
    of_solution,
    told_of,
    with_bans,
)
from foretune.predictor.decision import Considered, Decision
from foretune.predictor.default_candidate import default_candidate
from foretune.predictor.find_mode import FindEnforce, FindMode, find_enforce, parse_find_mode
from foretune.predictor.limits import Limits, checked_limits
from foretune.predictor.system_database import shipped_database
from foretune.predictor.user_database import UserDatabase

if TYPE_CHECKING:
    from foretune.predictor.finding import Finder
    from foretune.predictor.trials import Trial

#: Milliseconds that may be spent on a problem that is measured.
DEFAULT_BUDGET_MS = 2000.0
#: `FindEnforce.SEARCH` multiplies the budget by this.
_SEARCH = 10
#: Candidates that a model is asked for.
_TOP = 16
#: Decisions that a process remembers; a program with ever new shapes must not grow for ever.
_REMEMBERED = 16384
ModelOf = Callable[[DeviceProperties, str], CandidateModel | None]


def shipped_model(device: DeviceProperties, operation: str) -> CandidateModel | None:
    """Give the model of the user or of foretune for a device; None if there is none."""
    # It isn't needed where a database answers.
    from foretune.predictor.kernels.models import candidate_model

    return candidate_model(device, operation)


class Selector:
    """Decides for one device.

    Parameters
    ----------
    device : str, optional
        "cpu", "cuda", "hip", "cuda:1". Default: the first GPU that is there, else "cpu".
    store : Store, optional
        Where answers are looked up and kept. Default: the user's.
    model_of : callable, optional
        Gives the model for a device and an operation.
    **measuring
        Further arguments of `foretune.predictor.finding.Finder`.

    Raises
    ------
    InputError
        If there is no such device, or FORETUNE_FIND_MODE, FORETUNE_FIND_ENFORCE or FORETUNE_LOG
        holds something unknown.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> chooser = Selector("cpu", store=Store(":memory:"))
    >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
    >>> first = chooser.choose(problem, mode="FAST")
    >>> chooser.choose(problem, mode="FAST").rung, first.problem == problem
    ('process cache', True)
    """

    def __init__(
        self,
        device: str = "",
        *,
        store: Store | None = None,
        model_of: ModelOf = shipped_model,
        **measuring: Any,
    ) -> None:
        self._log = logger()
        self._mode = parse_find_mode(None)
        self._enforce = find_enforce()
        self._name = device
        self._device = open_device(device)
        self.properties = self._device.properties
        self._database = UserDatabase(Store() if store is None else store, self.properties)
        self._model_of = model_of
        self._measuring = measuring
        self._finder: Finder | None = None
        self._models: dict[str, CandidateModel | None] = {}
        self._decided: dict[tuple[Any, ...], Decision] = {}
        # Two measurements at a time would disturb each other.
        self._lock = threading.RLock()

    def choose(
        self,
        problem: Problem,
        *,
        mode: str | int | None = None,
        budget_ms: float | None = None,
        workspace_limit: int | None = None,
        deterministic: bool = False,
        risk: float = DEFAULT_RISK,
    ) -> Decision:
        """Decide what shall compute a problem.

        Parameters
        ----------
        problem : Problem
        mode : str or int, optional
            NORMAL, FAST, HYBRID or DYNAMIC_HYBRID. Default: what FORETUNE_FIND_MODE says, else
            DYNAMIC_HYBRID.
        budget_ms : float, optional
            Milliseconds after which no candidate is begun to be measured. Default: 2000.
        workspace_limit : int, optional
            Bytes that the candidate may need.
        deterministic : bool, default False
            Leave out candidates that add atomically.
        risk : float, default 0.05
            Share of unmeasured picks that may be slower than 1.10 times the best.

        Raises
        ------
        InputError
            If an argument is of no use, or no solver computes such a problem.
        """
        key = (problem, mode, workspace_limit, deterministic, risk)
        try:
            known = self._decided.get(key)
        except TypeError:  # something can't be looked up; checking says what
            known = None
        if known is not None:
            return known
        limits = checked_limits(problem, budget_ms, workspace_limit, deterministic, risk)
        chosen_mode = self._mode if mode is None else parse_find_mode(mode)
        budget = DEFAULT_BUDGET_MS if budget_ms is None else budget_ms
        with self._lock:
            known = self._decided.get(key)  # another thread may have decided meanwhile
            if known is None:
                known = self._decide(problem, chosen_mode, budget, limits)
                self._remember(key, known)
                self._tell(known)
        return known

    def reject(self, decision: Decision, reason: str) -> None:
        """Never choose again what could not be built or launched.

        Parameters
        ----------
        decision : Decision
        reason : str
            What went wrong.

        Examples
        --------
        >>> from foretune.kernels.conv.problem import ConvProblem
        >>> chooser = Selector("cpu", store=Store(":memory:"))
        >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
        >>> first = chooser.choose(problem, mode="FAST")
        >>> chooser.reject(first, "the compiler failed")
        >>> chooser.choose(problem, mode="FAST").solver == first.solver
        False
        """
        key = f"{decision.solver}{{{decision.config}}}" if decision.config else decision.solver
        with self._lock:
            self._database.ban(key, decision.problem, reason)
            for asked, known in list(self._decided.items()):
                if (known.solver, known.config) == (decision.solver, decision.config):
                    del self._decided[asked]

    def notes(self) -> tuple[str, ...]:
        """Tell what a person should know of this device's answers: drift, and who isn't used."""
        database = self._database
        drift, banned = database.drift(), database.banned()
        told = [] if drift is None else [str(drift)]
        told += [f"not used: {one.key}, {one.reason} ({one.problem})" for one in banned.values()]
        return (*told, database.note) if database.note else tuple(told)

    def explain(self, problem: Problem, **arguments: Any) -> Decision:
        """Decide as `choose` does, with the model's opinion of all that was considered.

        Parameters
        ----------
        problem : Problem
        **arguments
            As for `choose`.

        Examples
        --------
        >>> from foretune.kernels.conv.problem import ConvProblem
        >>> chooser = Selector("cpu", store=Store(":memory:"))
        >>> problem = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))
        >>> chooser.explain(problem, mode="FAST").problem == problem
        True
        """
        decision = self.choose(problem, **arguments)
        if all(one.predicted_ms is not None or one.note for one in decision.considered):
            return decision
        model = self._model(problem.operation)
        if model is None:
            return decision
        ranking = model.rank(problem, self.properties)
        predicted = {(one.solver, one.config): one.predicted_ms for one in ranking.candidates}
        considered = tuple(
            replace(one, predicted_ms=predicted.get((one.solver, one.config), one.predicted_ms))
            for one in decision.considered
        )
        return replace(decision, considered=considered)

    def close(self) -> None:
        """End measuring processes; they start again if they are needed."""
        if self._finder is not None:
            self._finder.close()

    def _decide(
        self, problem: Problem, mode: FindMode, budget_ms: float, limits: Limits
    ) -> Decision:
        reason = naive_solver(problem.operation).why_not(problem, self.properties)
        if reason is not None:
            raise InputError(f"no solver can compute this: {reason}", "problem")
        enforce = self._enforce
        banned = self._database.banned()
        if enforce is FindEnforce.DB_CLEAN:
            self._database.forget(problem)
            return self._unmeasured(problem, limits, banned)
        if enforce is not FindEnforce.NONE:
            mode = FindMode.NORMAL
        if enforce in (FindEnforce.SEARCH, FindEnforce.SEARCH_DB_UPDATE):
            budget_ms *= _SEARCH
        if enforce in (FindEnforce.NONE, FindEnforce.SEARCH):
            known = (
                self._found_before(problem, limits, banned)
                or self._measured_before(problem, mode, limits, banned)
                or self._from_system_database(problem, limits, banned)
            )
            if known is not None:
                return known
        if mode is FindMode.FAST:
            return self._unmeasured(problem, limits, banned)
        ranking = self._ranking(problem, limits, banned)
        if mode is not FindMode.NORMAL and ranking is not None and ranking.candidates:
            if ranking.accepted:
                return _by_model(problem, ranking, banned)
            return self._measure_top(
                problem, ranking, limits, budget_ms, mode is FindMode.DYNAMIC_HYBRID, banned
            )
        return self._find(problem, ranking, limits, budget_ms, banned)

    def _found_before(
        self, problem: Problem, limits: Limits, banned: Mapping[str, BannedCandidate]
    ) -> Decision | None:
        found = self._database.found(problem, limits)
        rows = [] if found is None else [of_solution(one) for one in found.solutions]
        return self._first_usable(problem, rows, banned, "user database", "found here before")

    def _measured_before(
        self,
        problem: Problem,
        mode: FindMode,
        limits: Limits,
        banned: Mapping[str, BannedCandidate],
    ) -> Decision | None:
        rows = [of_measured(one) for one in self._database.measured(problem, limits)]
        if not rows or not self._is_enough(problem, mode, limits):
            return None
        return self._first_usable(problem, rows, banned, "user database", "measured here before")

    def _is_enough(self, problem: Problem, mode: FindMode, limits: Limits) -> bool:
        """Whether single candidates that were measured are an answer.

        They are no full find, which is what NORMAL is for, and what is done without a model. Those
        measured for narrower limits are none either; nor if others, who weren't built then, are.
        """
        if mode is FindMode.FAST:
            return True
        if mode is FindMode.NORMAL or self._model(problem.operation) is None:
            return False
        asked = self._database.measured_for(problem)
        if asked is None or not asked.covers(limits.workspace, limits.deterministic):
            return False
        if not asked.skipped:
            return True
        return mode is FindMode.DYNAMIC_HYBRID and not any(
            self._is_built(problem, key) for key in asked.skipped
        )

    def _is_built(self, problem: Problem, key: str) -> bool:
        candidate = self._candidate(problem, *names_of(key))
        return candidate is not None and self._found_finder().is_built(problem, candidate)

    def _from_system_database(
        self, problem: Problem, limits: Limits, banned: Mapping[str, BannedCandidate]
    ) -> Decision | None:
        database = shipped_database(self.properties.arch, problem.operation)
        if database is None:
            return None
        rows = [
            Considered(one.solver, one.config, measured_ms=one.time_ms)
            for one in database.candidates(problem, self.properties)
        ]
        fitting = [row for row in rows if self._fits(problem, row, limits)]
        reason = f"tuned on {self.properties.name}, comes with foretune"
        return self._first_usable(problem, fitting, banned, "system database", reason)

    def _fits(self, problem: Problem, row: Considered, limits: Limits) -> bool:
        candidate = self._candidate(problem, row.solver, row.config)
        return candidate is not None and limits.allow(candidate, problem)

    def _first_usable(
        self,
        problem: Problem,
        rows: Sequence[Considered],
        banned: Mapping[str, BannedCandidate],
        rung: str,
        reason: str,
    ) -> Decision | None:
        told = with_bans(rows, banned)
        for row in told:
            if not row.note and self._candidate(problem, row.solver, row.config) is not None:
                return Decision(problem, row.solver, row.config, rung, reason, told[:MOST_TOLD])
        return None

    def _candidate(self, problem: Problem, solver_id: str, config: str) -> Candidate[Any] | None:
        """Give a candidate by its names, if it is one of this version's for the problem."""
        try:
            known = solver(problem.operation, solver_id)
            if known.why_not(problem, self.properties) is not None:
                return None
            return Candidate(known, known.space(problem, self.properties).parse(config))
        except InputError:
            return None

    def _model(self, operation: str) -> CandidateModel | None:
        if operation not in self._models:
            try:
                self._models[operation] = self._model_of(self.properties, operation)
            except InputError as error:  # a damaged file costs its use, no answer
                self._models[operation] = None
                self._database.warn(f"{error}; no model is used")
        return self._models[operation]

    def _ranking(
        self, problem: Problem, limits: Limits, banned: Mapping[str, BannedCandidate]
    ) -> CandidateRanking | None:
        model = self._model(problem.operation)
        if model is None:
            return None
        return _ranked(model, problem, self.properties, limits, banned, _TOP)

    def _unmeasured(
        self, problem: Problem, limits: Limits, banned: Mapping[str, BannedCandidate]
    ) -> Decision:
        """Answer by what is at hand, sure or not."""
        ranking = self._ranking(problem, limits, banned)
        if ranking is not None and ranking.candidates:
            decision = _by_model(problem, ranking, banned)
            if ranking.accepted:
                return decision
            if ranking.beats_default:
                return replace(decision, reason=f"nothing may be measured; {ranking.reason}")
            reason = f"{ranking.reason}, and the model's picks are no better than defaults there"
            return self._fallback(problem, limits, banned, reason, decision.considered)
        return self._fallback(problem, limits, banned, "no model knows it, nothing may be measured")

    def _fallback(
        self,
        problem: Problem,
        limits: Limits,
        excluded: Iterable[str],
        reason: str,
        told: Sequence[Considered] = (),
    ) -> Decision:
        default = self._default(problem, limits, excluded)
        return Decision(
            problem, default.solver.id, default.config.key, "fallback", reason, tuple(told)
        )

    def _default(self, problem: Problem, limits: Limits, excluded: Iterable[str]) -> Candidate[Any]:
        return default_candidate(
            problem,
            self.properties,
            workspace_limit=limits.workspace,
            deterministic=limits.deterministic,
            excluded=frozenset(excluded),
        )

    def _measure_top(
        self,
        problem: Problem,
        ranking: CandidateRanking,
        limits: Limits,
        budget_ms: float,
        is_dynamic: bool,
        banned: Mapping[str, BannedCandidate],
    ) -> Decision:
        finder = self._found_finder()
        predicted = {one.key: one.predicted_ms for one in ranking.candidates}
        named = (self._candidate(problem, one.solver, one.config) for one in ranking.candidates)
        ranked = [one for one in named if one is not None]
        default = self._default(problem, limits, banned)
        first = list({one.key: one for one in (*ranked[:1], default)}.values())
        others = [one for one in ranked if one.key not in {known.key for known in first}]
        skipped = {
            one.key: "not built yet"
            for one in others
            if is_dynamic and not finder.is_built(problem, one)
        }
        wanted = [*first, *(one for one in others if one.key not in skipped)]
        chosen = finder.affordable(problem, wanted, predicted, budget_ms)
        trials = finder.measure(problem, chosen, predicted, budget_ms)
        asked = MeasuredFor(limits.workspace, limits.deterministic, tuple(skipped)[:_TOP])
        self._database.keep(problem, trials, asked)
        notes = {**skipped, **{one.key: "no time to measure it" for one in wanted}}
        told = told_of(ranking, trials, notes, banned)
        reason = f"{ranking.reason}; the first of {_count(trials)} measured"
        return self._fastest(problem, trials, "measured top", reason, told, limits, banned)

    def _find(
        self,
        problem: Problem,
        ranking: CandidateRanking | None,
        limits: Limits,
        budget_ms: float,
        banned: Mapping[str, BannedCandidate],
    ) -> Decision:
        suggested = () if ranking is None else ranking.candidates
        named = [self._candidate(problem, one.solver, one.config) for one in suggested]
        predicted = {one.key: one.predicted_ms for one in suggested}

        def allowed(known: Solver[Any], config: Config) -> bool:
            candidate = Candidate(known, config)
            return candidate.key not in banned and limits.allow(candidate, problem)

        first = [one for one in named if one is not None]
        result = self._found_finder().find(problem, first, predicted, budget_ms, allowed)
        self._database.keep(problem, result.trials)
        if result.is_complete:
            self._database.keep_found(problem, result.trials, result.left_out, limits)
        told = told_of(ranking, result.trials, {}, banned)
        reason = f"the first of {_count(result.trials)} measured"
        return self._fastest(problem, result.trials, "find", reason, told, limits, banned)

    def _fastest(
        self,
        problem: Problem,
        trials: Mapping[str, Trial],
        rung: str,
        reason: str,
        told: tuple[Considered, ...],
        limits: Limits,
        banned: Mapping[str, BannedCandidate],
    ) -> Decision:
        fresh = [one.measured for one in trials.values() if one.measured is not None]
        # An earlier process may have had more time.
        out = {*banned, *(key for key, one in trials.items() if one.measured is None)}
        earlier = [one for one in self._database.measured(problem, limits) if one.key not in out]
        known = {one.key: one for one in (*earlier, *fresh)}.values()
        best = min(known, key=lambda one: one.time_ms, default=None)
        if best is not None:
            return Decision(problem, best.solver, best.config, rung, reason, told)
        failed = {key for key, one in trials.items() if one.status != "too slow"}
        reason = "nothing could be measured"
        if failed:
            key, trial = next((key, trials[key]) for key in trials if key in failed)
            reason = f"{reason} ({key} {trial.status}: {trial.reason})"
        return self._fallback(problem, limits, {*banned, *failed}, reason, told)

    def _found_finder(self) -> Finder:
        if self._finder is None:
            # Programs whose problems are known never measure.
            from foretune.predictor.finding import Finder

            self._finder = Finder(self._name, self._device, **self._measuring)
        return self._finder

    def _remember(self, key: tuple[Any, ...], decision: Decision) -> None:
        if len(self._decided) >= _REMEMBERED:
            self._decided.clear()
        reason = f"{decision.rung}: {decision.reason}"
        self._decided[key] = replace(decision, rung="process cache", reason=reason)

    def _tell(self, decision: Decision) -> None:
        key = f"{decision.solver}{{{decision.config}}}" if decision.config else decision.solver
        text = format_problem(decision.problem)
        self._log.info("%s: %s by %s (%s)", text, key, decision.rung, decision.reason)


@lru_cache(maxsize=16)
def selector(device: str = "") -> Selector:
    """Give this process's selector of a device.

    Parameters
    ----------
    device : str, optional
        As for `Selector`.

    Examples
    --------
    >>> selector("cpu") is selector("cpu")
    True
    """
    return Selector(device)


def _ranked(
    model: CandidateModel,
    problem: Problem,
    device: DeviceProperties,
    limits: Limits,
    banned: Mapping[str, BannedCandidate],
    top: int | None,
) -> CandidateRanking:
    return model.rank(
        problem,
        device,
        risk=limits.risk,
        workspace_limit=limits.workspace,
        deterministic=limits.deterministic,
        excluded=frozenset(banned),
        top=top,
    )


def _by_model(
    problem: Problem, ranking: CandidateRanking, banned: Mapping[str, BannedCandidate]
) -> Decision:
    first = ranking.candidates[0]
    told = told_of(ranking, {}, {}, banned)
    return Decision(problem, first.solver, first.config, "model", ranking.reason, told)


def _count(trials: Mapping[str, Trial]) -> int:
    return sum(one.measured is not None for one in trials.values())
