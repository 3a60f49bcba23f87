"""Whether a pick may be used without measuring, by calibrated thresholds."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from numbers import Real
from typing import Any, NamedTuple

from foretune.errors import InputError

#: Risks that thresholds are calibrated for; between two of them the lower one's is used.
RISKS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.08, 0.10, 0.15, 0.20)


def check_risk(risk: object) -> float:
    """Take a risk that a caller states, or say what is wrong with it.

    Examples
    --------
    >>> check_risk(0.05)
    0.05
    """
    if not isinstance(risk, Real) or isinstance(risk, bool) or not 0 < float(risk) < 1:
        raise InputError(f"expected a share between 0 and 1, got {risk!r}", "risk")
    return float(risk)


class Verdict(NamedTuple):
    """Accepted or not, and why."""

    accepted: bool
    reason: str


class Acceptance:
    """Thresholds of a bundle.

    Parameters
    ----------
    content : mapping
        Of calibration.json: `entries`, each with `compute_units`, `direction`, `runnable` (bit
        mask of the candidates that could be picked, hexadecimal) and `thresholds`.
    where : str
        File to name in an error.

    Raises
    ------
    InputError
        If that is not what it holds. Nothing may be accepted by a threshold that was misread.
    """

    def __init__(self, content: Mapping[str, Any], where: str = "calibration.json") -> None:
        self._entries: dict[tuple[int, str, int], dict[float, float | None]] = {}
        self._units: set[int] = set()
        try:
            for entry in content["entries"]:
                key = (int(entry["compute_units"]), entry["direction"], int(entry["runnable"], 16))
                self._units.add(key[0])
                self._entries[key] = _thresholds(entry["thresholds"])
        except (KeyError, TypeError, ValueError) as error:
            reason = f"is damaged ({type(error).__name__}: {error}); train the model again"
            raise InputError(reason, where) from None

    def judge(
        self, compute_units: int | None, direction: str, runnable: int, risk: float, score: float
    ) -> Verdict:
        """Accept a pick or not.

        Parameters
        ----------
        compute_units : int or None
        direction : str
        runnable : int
            Bit mask of the candidates that could be picked.
        risk : float
            What the caller allows.
        score : float
            Probability of being good that the model gives its pick.
        """
        if compute_units not in self._units:
            return Verdict(False, f"no data for {compute_units} units")
        entry = self._entries.get((compute_units, direction, runnable))
        if entry is None:
            return Verdict(False, "not calibrated for what this MIOpen release can run")
        stated = [level for level in entry if level <= risk + 1e-12]
        if not stated:
            return Verdict(False, f"the lowest calibrated risk is {min(entry):g}")
        threshold = entry[max(stated)]
        if threshold is None:
            return Verdict(False, f"no threshold keeps a risk of {max(stated):g} here")
        if not score >= threshold:
            return Verdict(False, f"not sure enough: score {score:.3f}, needs {threshold:.3f}")
        return Verdict(True, f"score {score:.3f} is at least {threshold:.3f}")


def _thresholds(content: Any) -> dict[float, float | None]:
    thresholds = {}
    for level in content:
        risk, score = level["risk"], level["score"]
        if not 0 < risk < 1 or not (score is None or isfinite(score)):
            raise ValueError(f"risk {risk!r}, score {score!r}")
        thresholds[risk] = score
    if not thresholds:
        raise ValueError("no thresholds")
    return thresholds


def to_bits(flags: Any) -> int:
    """Pack flags into a bit mask, the first flag lowest.

    Examples
    --------
    >>> to_bits([True, False, True])
    5
    """
    return sum(1 << i for i, flag in enumerate(flags) if flag)
