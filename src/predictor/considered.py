"""What a decision tells of the candidates that it looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from foretune.kernels.found import FoundSolution
from foretune.kernels.records import BannedCandidate, MeasuredCandidate
from foretune.predictor.candidates import CandidateRanking
from foretune.predictor.decision import Considered

if TYPE_CHECKING:
    from foretune.predictor.trials import Trial

#: Candidates that a decision tells of.
MOST_TOLD = 32


def told_of(
    ranking: CandidateRanking | None,
    trials: Mapping[str, Trial],
    notes: Mapping[str, str],
    banned: Mapping[str, BannedCandidate],
) -> tuple[Considered, ...]:
    """Tell of candidates: measured ones by time, then the model's, then those left out."""
    if ranking is not None and not trials and not notes and not banned:
        # The usual case, in which a decision takes less than a millisecond altogether.
        return tuple(
            Considered(one.solver, one.config, one.predicted_ms)
            for one in ranking.candidates[:MOST_TOLD]
        )
    rows: dict[str, Considered] = {}
    predicted = {}
    if ranking is not None:
        predicted = {one.key: one.predicted_ms for one in ranking.candidates}
    for key, trial in trials.items():
        rows[key] = Considered(
            trial.candidate.solver.id,
            trial.candidate.config.key,
            predicted.get(key),
            None if trial.measured is None else trial.measured.time_ms,
            "" if trial.measured is not None else f"{trial.status}: {trial.reason}",
        )
    for one in ranking.candidates if ranking is not None else ():
        note = notes.get(one.key, "")
        rows.setdefault(one.key, Considered(one.solver, one.config, one.predicted_ms, None, note))
    for key, ban in banned.items():
        rows.setdefault(key, Considered(*names_of(key), note=f"not used, {ban.reason}"))
    ordered = sorted(
        rows.values(),
        key=lambda row: (row.measured_ms is None, row.measured_ms or 0.0),
    )
    return tuple(ordered[:MOST_TOLD])


def with_bans(
    rows: Sequence[Considered], banned: Mapping[str, BannedCandidate]
) -> tuple[Considered, ...]:
    """Say of each whether it must not be used."""

    def note(row: Considered) -> str:
        ban = banned.get(f"{row.solver}{{{row.config}}}" if row.config else row.solver)
        return "" if ban is None else f"not used, {ban.reason}"

    return tuple(replace(row, note=note(row)) for row in rows) if banned else tuple(rows)


def names_of(key: str) -> tuple[str, str]:
    """Solver and config of a candidate's text form."""
    name, _, config = key.removesuffix("}").partition("{")
    return name, config


def of_solution(solution: FoundSolution) -> Considered:
    """Tell of what find found."""
    return Considered(solution.solver, solution.config, measured_ms=solution.time_ms)


def of_measured(one: MeasuredCandidate) -> Considered:
    """Tell of what was measured alone."""
    return Considered(one.solver, one.config, one.predicted_ms, one.time_ms)
