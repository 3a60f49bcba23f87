"""What a ladder keeps in the user's database; whatever is wrong with that costs no answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from foretune.errors import InputError
from foretune.kernels.found import Found, FoundSolution, LeftOut
from foretune.kernels.problem import Problem
from foretune.kernels.problem_text import format_problem
from foretune.kernels.records import BannedCandidate, MeasuredCandidate, MeasuredFor
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.store import Store
from foretune.log import logger
from foretune.predictor.drift import RECENT, Drift, drift_of
from foretune.predictor.limits import Limits

if TYPE_CHECKING:
    from foretune.predictor.trials import Trial

#: Solutions that are kept of a full find.
_MOST_STORED = 32
T = TypeVar("T")


class UserDatabase:
    """A store, for one device.

    What is wrong with it is said once, as a `RuntimeWarning` and in the log. One that can't be had
    at all is replaced by one that ends with this process.

    Parameters
    ----------
    store : Store
    device : DeviceProperties

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> database = UserDatabase(Store(":memory:"), device)
    >>> database.ban("ConvNaive", ConvProblem("F", 1, 8, (8, 8), 8, (3, 3)), "crashed")
    >>> list(database.banned())
    ['ConvNaive']
    """

    def __init__(self, store: Store, device: DeviceProperties) -> None:
        self._store = store
        self._device = device
        self._told: set[str] = set()

    @property
    def note(self) -> str:
        """What a person should know of the store; "" if nothing."""
        return self._store.note

    def found(self, problem: Problem, limits: Limits) -> Found | None:
        """Give what a full find found within limits."""
        return self._ask(
            lambda store: store.get(problem, self._device, limits.workspace, limits.deterministic)
        )

    def measured(self, problem: Problem, limits: Limits) -> list[MeasuredCandidate]:
        """Give single candidates that were measured and keep to limits, the fastest first."""
        return [
            one
            for one in self._ask(lambda store: store.measured(problem, self._device))
            if limits.workspace is None or one.workspace <= limits.workspace
            if not (limits.deterministic and one.adds_atomically)
        ]

    def measured_for(self, problem: Problem) -> MeasuredFor | None:
        """Give what single candidates are an answer to."""
        return self._ask(lambda store: store.measured_for(problem, self._device))

    def banned(self) -> dict[str, BannedCandidate]:
        """Give who must not be used on the device."""
        return self._ask(lambda store: store.banned(self._device))

    def forget(self, problem: Problem) -> None:
        """Drop what is known of a problem."""
        self._ask(lambda store: store.forget(problem, self._device))

    def ban(self, key: str, problem: Problem, reason: str) -> None:
        """Use a candidate no more."""
        banned = BannedCandidate(key, format_problem(problem), reason)
        self._ask(lambda store: store.ban(banned, self._device))
        logger().warning("%s isn't used any more: %s", key, reason)

    def keep(
        self, problem: Problem, trials: Mapping[str, Trial], asked: MeasuredFor | None = None
    ) -> None:
        """Keep what single candidates took, and who must not be used; tell of drift."""
        measured = [one.measured for one in trials.values() if one.measured is not None]
        self._ask(lambda store: store.put_measured(problem, measured, self._device, asked))
        for key, trial in trials.items():
            if trial.is_fault:
                self.ban(key, problem, f"{trial.status}: {trial.reason}")
        drift = self.drift()
        if drift is not None and drift.is_large and "drift" not in self._told:
            self._told.add("drift")
            logger().warning("%s", drift)

    def keep_found(
        self,
        problem: Problem,
        trials: Mapping[str, Trial],
        left_out: Mapping[str, str],
        limits: Limits,
    ) -> None:
        """Keep a full find."""
        measured = [one.measured for one in trials.values() if one.measured is not None]
        measured.sort(key=lambda one: one.time_ms)
        reasons = {**left_out, **{key: one.reason for key, one in trials.items() if one.reason}}
        found = Found(
            problem,
            self._device.name,
            tuple(map(_solution, measured[:_MOST_STORED])),
            tuple(LeftOut(key, reason) for key, reason in reasons.items()),
        )
        if measured:
            self._ask(
                lambda store: store.put(found, self._device, limits.workspace, limits.deterministic)
            )

    def drift(self) -> Drift | None:
        """Compare what was measured lately with what was predicted; None if nothing was both."""
        return drift_of(self._ask(lambda store: store.latest(self._device, RECENT)))

    def warn(self, text: str) -> None:
        """Say once that something costs its use, but no answer."""
        # Errors of a full disk differ in their words from time to time.
        kind = text.partition(" (")[0]
        if kind not in self._told:
            self._told.add(kind)
            logger().warning("%s", text)
            warnings.warn(f"foretune: {text}", RuntimeWarning, stacklevel=2)

    def _ask(self, ask: Callable[[Store], T]) -> T:
        try:
            answer = ask(self._store)
        except InputError as error:
            self.warn(f"{error}; nothing is kept for later")
            self._store = Store(":memory:")
            answer = ask(self._store)
        note = self._store.note
        if self._store.is_in_trouble:
            self.warn(note)
        elif note and note not in self._told:
            self._told.add(note)
            logger().info("%s", note)
        return answer


def _solution(one: MeasuredCandidate) -> FoundSolution:
    return FoundSolution(
        *(one.solver, one.config, one.time_ms, one.low_ms, one.high_ms, one.samples),
        *(one.workspace, False, one.adds_atomically),
    )
