"""Measures the ranking of configs on shapes it didn't learn from, beside AMD's nets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foretune.errors import InputError
from foretune.kernels.devices import DeviceFacts
from foretune.miopen.baselines.kernel_tuning_net import KernelTuningNet
from foretune.miopen.config_grammar import parameter_names, parse_config
from foretune.miopen.config_ranking import Choices
from foretune.miopen.config_table import ConfigTable
from foretune.miopen.keys import parse_find_key
from foretune.predictor.features.conv import raw_features
from foretune.predictor.split import part_of

#: Parts of the split that training never sees.
HELD_OUT = ("calibrate", "test")
_TOPS = (1, 5, 10)


@dataclass(frozen=True)
class ConfigScores:
    """How well the configs of one solver and data type are ranked, on shapes not learnt from.

    Shares are of `problems`. A parameter agrees if the pick has the winner's value; those count
    that differ among the configs of the data type.

    Attributes
    ----------
    solver, direction, dtype : str
    problems, configs : int
        Problems measured on, and configs that were learnt.
    top_1, top_5, top_10 : float
        The exact winner is first, or among the first five or ten.
    parameters : float
        Mean share of parameters that agree.
    by_parameter : dict
        The same for each parameter.
    usual_top_1, usual_top_5, usual_top_10, usual_parameters : float
        The same for the configs that are most usual for the data type.
    net_problems : int
        Problems that AMD's kernel-tuning net is asked about; 0 where there is no net.
    net_top_1, net_parameters, top_1_beside_net, parameters_beside_net : float or None
        The net and this model on those.
    """

    solver: str
    direction: str
    dtype: str
    problems: int
    configs: int
    top_1: float
    top_5: float
    top_10: float
    parameters: float
    by_parameter: dict[str, float]
    usual_top_1: float
    usual_top_5: float
    usual_top_10: float
    usual_parameters: float
    net_problems: int = 0
    net_top_1: float | None = None
    net_parameters: float | None = None
    top_1_beside_net: float | None = None
    parameters_beside_net: float | None = None


def score_configs(
    table: ConfigTable,
    by_type: Mapping[str, Choices],
    device: DeviceFacts,
    nets: Path | None = None,
    parts: Collection[str] = HELD_OUT,
) -> list[ConfigScores]:
    """Measure a model on problems that it didn't learn from, for each data type.

    Parameters
    ----------
    table : ConfigTable
        Tuned problems.
    by_type : mapping of str to Choices
        What is known of the solver by data type, from a model that was just trained or a bundle.
    device : DeviceFacts
        The device they were tuned on.
    nets : Path, optional
        Folder with AMD's kernel-tuning nets, to measure those too.
    parts : collection of str
        Parts of the split to measure on, of `HELD_OUT`.
    """
    held_out = np.flatnonzero(~table.is_training)
    in_part = np.array([part_of(place) in parts for place in table.position[held_out]], bool)
    dtypes = np.array([table.dtypes[i] for i in held_out], str)
    results = []
    for dtype, choices in by_type.items():
        here = np.flatnonzero((dtypes == dtype) & in_part)
        if not here.size:
            continue
        rows = raw_features(table.raw[held_out[here]], table.direction, device)
        wanted = [table.configs[i] for i in held_out[here]]
        agree = _Agreement(table, choices)
        order = np.argsort(-choices.scores(rows), axis=1, kind="stable")[:, : max(_TOPS)]
        ranked = [[choices.configs[i] for i in line] for line in order]
        by_habit = np.argsort(-choices.usual, kind="stable")[: max(_TOPS)]
        usual = [choices.configs[i] for i in by_habit]
        picks = [line[0] for line in ranked]
        by_parameter = agree.by_parameter(picks, wanted)
        top_1, top_5, top_10 = (_hits([line[:top] for line in ranked], wanted) for top in _TOPS)
        usual_1, usual_5, usual_10 = (_hits([usual[:top]] * len(here), wanted) for top in _TOPS)
        results.append(
            ConfigScores(
                solver=table.solver,
                direction=table.direction,
                dtype=dtype,
                problems=len(here),
                configs=len(choices.configs),
                top_1=top_1,
                top_5=top_5,
                top_10=top_10,
                parameters=_mean(by_parameter.values()),
                by_parameter=by_parameter,
                usual_top_1=usual_1,
                usual_top_5=usual_5,
                usual_top_10=usual_10,
                usual_parameters=_mean(agree.by_parameter(usual[:1] * len(here), wanted).values()),
                **_beside_net(
                    table,
                    device,
                    nets,
                    [table.held_out_keys[i] for i in here],
                    dtype,
                    picks,
                    wanted,
                    agree,
                ),
            )
        )
    return results


class _Agreement:
    """Compares configs of one data type parameter by parameter."""

    def __init__(self, table: ConfigTable, choices: Choices) -> None:
        solver = table.solver
        self._values = {
            config: dict(
                zip(parameter_names(solver, config), parse_config(solver, config), strict=True)
            )
            for config in {*choices.configs, *table.configs}
        }
        configs = choices.configs
        names = dict.fromkeys(name for config in configs for name in self._values[config])
        self._names = [
            name
            for name in names
            if len({self._values[config].get(name) for config in configs}) > 1
        ]

    def by_parameter(self, picks: Sequence[str | None], wanted: Sequence[str]) -> dict[str, float]:
        """Share of picks that have the wanted config's value."""
        pairs = [
            (self._values[pick] if pick is not None else None, self._values[true])
            for pick, true in zip(picks, wanted, strict=True)
        ]
        return {
            name: _mean(
                pick is not None and pick.get(name) == true.get(name) for pick, true in pairs
            )
            for name in self._names
        }


def _beside_net(
    table: ConfigTable,
    device: DeviceFacts,
    nets: Path | None,
    keys: Sequence[str],
    dtype: str,
    picks: Sequence[str],
    wanted: Sequence[str],
    agree: _Agreement,
) -> dict[str, Any]:
    if nets is None or table.solver not in KernelTuningNet.solvers(device.arch):
        return {}
    try:
        net = KernelTuningNet.load(nets, device.arch, table.solver, device.compute_units)
    except InputError:
        return {}  # a release, or a folder of databases alone, may be without
    problems = [parse_find_key(key) for key in keys]
    asked = [i for i, problem in enumerate(problems) if net.supports(problem)]
    if not asked:
        return {}
    # Everything the solver has for the type: the net gets the same choice.
    of_type = {
        config for config, other in zip(table.configs, table.dtypes, strict=True) if other == dtype
    }
    net_picks = net.predict_many([problems[i] for i in asked], sorted(of_type))
    own, true = [picks[i] for i in asked], [wanted[i] for i in asked]
    return {
        "net_problems": len(asked),
        "net_top_1": _hits([[pick] for pick in net_picks], true),
        "net_parameters": _mean(agree.by_parameter(net_picks, true).values()),
        "top_1_beside_net": _hits([[pick] for pick in own], true),
        "parameters_beside_net": _mean(agree.by_parameter(own, true).values()),
    }


def _hits(ranked: Sequence[Sequence[str | None]], wanted: Sequence[str]) -> float:
    return _mean(true in line for line, true in zip(ranked, wanted, strict=True))


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return round(sum(listed) / len(listed), 4) if listed else 1.0
