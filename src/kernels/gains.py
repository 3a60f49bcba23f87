"""What tuning gains: the best config of a solver against its default one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import fields

from foretune.errors import InputError
from foretune.kernels.journal import Trial
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver
from foretune.kernels.runtime.properties import DeviceProperties

#: A problem counts for a space if its best config is this much faster than the default one.
WORTHWHILE = 1.2


def tuning_gains(trials: Iterable[Trial], device: DeviceProperties) -> dict[str, dict[str, float]]:
    """Tell how much faster the best config of each solver is than its default one.

    Parameters
    ----------
    trials : iterable of Trial
    device : DeviceProperties
        That they are of; default configs depend on it.

    Returns
    -------
    dict of str to dict
        By solver and problem, the default's time over the best one's: 1 if the default is the best.
        Only problems for which the default and another config were measured.

    Examples
    --------
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024)
    >>> text = "conv direction=F batch=1 in_channels=3 in_size=8x8 out_channels=4 filter_size=3x3"
    >>> default = solver("conv", "ConvNaive").default_config(parse_problem(text), device)
    >>> known = Trial(text, "ConvNaive", default.key, "measured", time_ms=3.0)
    >>> other = Trial(text, "ConvNaive", "THREADS=256", "measured", time_ms=2.0)
    >>> tuning_gains([known, other], device)["ConvNaive"][text]
    1.5
    """
    times: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for trial in trials:
        if trial.status == "measured" and trial.time_ms is not None:
            times[trial.solver, trial.problem][trial.config] = trial.time_ms
    gains: dict[str, dict[str, float]] = defaultdict(dict)
    for (name, text), configs in times.items():
        default = _default_config(name, text, device)
        if len(configs) > 1 and default in configs:
            gains[name][text] = configs[default] / min(configs.values())
    return dict(gains)


def device_of_facts(facts: dict[str, object]) -> DeviceProperties:
    """Give the device that a journal's facts describe."""
    names = {field.name for field in fields(DeviceProperties)}
    return DeviceProperties(**{name: facts[name] for name in names & set(facts)})  # type: ignore[arg-type]


def _default_config(name: str, text: str, device: DeviceProperties) -> str | None:
    problem = parse_problem(text)
    try:
        chosen = solver(problem.operation, name)
    except InputError:  # of another version
        return None
    if not chosen.is_applicable(problem, device):
        return None
    return chosen.default_config(problem, device).key
