"""Trains the ranking of tuning parameters from a perf-db. Needs the extra `train`.

The model is a softmax over a solver's configs whose scores are sums over parameter values (see
`foretune.miopen.config_ranking`); boosted trees score the values. Only shapes of the training
part are learnt from, and what is reported is measured on the others.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import compress
from math import log
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt
from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts, device_facts
from foretune.miopen.baselines.kernel_tuning_net import KernelTuningNet
from foretune.miopen.config_grammar import parameter_names, parse_config
from foretune.miopen.config_ranking import FOREST_FILE, FORMAT_VERSION, TABLE_FILE, model_name
from foretune.miopen.find_db import FindRecord, read_find_db
from foretune.miopen.keys import (
    format_find_key,
    format_perf_key,
    is_perf_key_exact,
    parse_find_key,
)
from foretune.miopen.names import (
    USUAL_COMPUTE_UNITS,
    DatabaseFile,
    find_databases,
    parse_arch,
)
from foretune.miopen.perf_db import PerfRecord, read_perf_db
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.features.conv import (
    DTYPE_CODES,
    FEATURE_VERSION,
    LAYOUT_CODES,
    RAW_NAMES,
    raw_features,
    raw_numbers,
)
from foretune.predictor.forest import Forest, save_forests
from foretune.predictor.split import TRAIN_END, shape_position

Indices = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]

#: A config is learnt if the training part has it this often for the data type.
LEAST_SEEN = 3
# A parameter with more values than this is left out, or cut into ranges if it is a number.
_MOST_VALUES = 32
# A parameter's values all move a config's score, so the step is shared out among parameters.
_WHOLE_STEP = 1.3
_LARGEST_STEP = 0.3
_TOPS = (1, 5, 10)
_FORWARD_KEY = re.compile("-F(?:_[a-zA-Z0-9_]+)?$")


@dataclass(frozen=True)
class ConfigTable:
    """Problems that one solver was tuned for, in one direction.

    Attributes
    ----------
    solver, direction : str
    raw : array of shape (problems, `RAW_NAMES`)
    position : array of shape (problems,)
        Place of each problem's shape in the split.
    configs : list of str
        The config that won each.
    dtypes : list of str
    held_out_keys : list of str
        Find-db keys of the problems that aren't in the training part, in order.
    """

    solver: str
    direction: str
    raw: Floats
    position: Floats
    configs: list[str]
    dtypes: list[str]
    held_out_keys: list[str]

    def thin(self, share: float) -> ConfigTable:
        """Keep about this share of the shapes."""
        if share >= 1:
            return self
        keep = (self.position * 2**20) % 1 < share
        return ConfigTable(
            self.solver,
            self.direction,
            self.raw[keep],
            self.position[keep],
            list(compress(self.configs, keep)),
            list(compress(self.dtypes, keep)),
            list(compress(self.held_out_keys, keep[~self.is_training])),
        )

    @property
    def is_training(self) -> npt.NDArray[np.bool_]:
        """Which problems may be learnt from."""
        return self.position < TRAIN_END


@dataclass
class _Rows:
    raw: list[list[float]] = field(default_factory=list)
    position: list[float] = field(default_factory=list)
    configs: list[str] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    held_out_keys: list[str] = field(default_factory=list)


def tuned_problems(
    records: Iterable[PerfRecord],
    found: Iterable[FindRecord] = (),
    report: Callable[[PerfRecord, str], None] | None = None,
) -> list[ConfigTable]:
    """Sort a perf-db's records by solver and direction.

    A perf-db key doesn't say the size of x for gradients with a stride. Where the find-db of the
    same device has problems with that key, those are taken (each of them was run with the
    config), else the smallest size. Problems whose key is shared with a shape outside the
    training part are not learnt from.

    Parameters
    ----------
    records : iterable of PerfRecord
        The perf-db of a device.
    found : iterable of FindRecord, optional
        The find-db of the same device.
    report : callable, optional
        Told of each record that can't be read, and why; such as `PerfDbReader.report`.

    Returns
    -------
    list of ConfigTable
        Sorted by solver and direction. Problems with types or layouts that no feature describes
        are left out.
    """
    strided = _strided_problems(found)
    tables: defaultdict[tuple[str, str], _Rows] = defaultdict(_Rows)
    for record in records:
        try:
            problem = record.problem
            for solver, config in record.params.items():
                _check_config(solver, config)
        except InputError as error:
            if report:
                report(record, f"{error}; the line is skipped")
            continue
        if problem.dtype not in DTYPE_CODES or problem.layout not in LAYOUT_CODES:
            continue
        problems = strided.get(record.key, [problem])
        position = max(map(shape_position, problems))
        for problem in problems:
            raw = raw_numbers(problem)
            key = format_find_key(problem) if position >= TRAIN_END else ""
            for solver, config in record.params.items():
                rows = tables[solver, problem.direction]
                rows.raw.append(raw)
                rows.position.append(position)
                rows.configs.append(config)
                rows.dtypes.append(problem.dtype)
                if key:
                    rows.held_out_keys.append(key)
    return [
        ConfigTable(
            solver,
            direction,
            np.array(rows.raw, np.float64).reshape(-1, len(RAW_NAMES)),
            np.array(rows.position),
            rows.configs,
            rows.dtypes,
            rows.held_out_keys,
        )
        for (solver, direction), rows in sorted(tables.items())
    ]


def _strided_problems(found: Iterable[FindRecord]) -> dict[str, list[ConvProblem]]:
    """Problems by perf-db key, for keys that don't say the size of x."""
    strided: defaultdict[str, list[ConvProblem]] = defaultdict(list)
    for record in found:
        # Parsing is most of the time here, and forward keys are exact.
        if _FORWARD_KEY.search(record.key):
            continue
        try:
            problem = record.problem
        except InputError:
            continue
        if not is_perf_key_exact(problem):
            strided[format_perf_key(problem)].append(problem)
    return strided


@cache
def _check_config(solver: str, config: str) -> None:
    parse_config(solver, config)


@dataclass(frozen=True)
class ConfigModel:
    """A trained model of one solver and direction.

    Attributes
    ----------
    configs : tuple of str
        All that were learnt.
    counts : mapping of str to array of shape (configs,)
        Data type -> how often training shapes had each.
    outputs : array of shape (parameters, configs)
        The forest's outputs that add up to a config's score; the number of outputs is none.
    forest : Forest
    """

    configs: tuple[str, ...]
    counts: Mapping[str, Indices]
    outputs: Indices
    forest: Forest

    def to_dict(self) -> dict[str, Any]:
        """Give all but the forest, as `ConfigRanking` reads it."""
        usual = {}
        for dtype, counts in self.counts.items():
            members = np.flatnonzero(counts)
            shares = counts[members] / counts.sum()
            usual[dtype] = {
                "configs": " ".join(map(str, members)),
                "log_share": " ".join(f"{log(share):.3f}" for share in shares),
            }
        # Numbers as text: a start reads the whole file, but takes apart few of the models.
        outputs = [" ".join(map(str, row)) for row in self.outputs]
        return {"configs": self.configs, "outputs": outputs, "usual": usual}

    def scores(self, rows: npt.NDArray[np.float32], dtype: str) -> Floats:
        """Score every config, minus infinity where the data type doesn't have it."""
        counts = self.counts[dtype]
        with np.errstate(divide="ignore"):
            usual = np.log(counts / counts.sum())
        raw = np.pad(self.forest.predict(rows), ((0, 0), (0, 1)))
        total = np.tile(usual, (len(rows), 1))
        for group in self.outputs:
            total += raw[:, group]
        return total


def default_settings(problems: int) -> TreeSettings:
    """Trees for a solver that was tuned for so many problems."""
    steps = ((20_000, 31), (8_000, 21), (4_000, 15))
    leaves = next((leaves for least, leaves in steps if problems >= least), 7)
    return TreeSettings(
        rounds=40, leaves=leaves, feature_fraction=0.3, bagging_fraction=0.8, min_rows=10
    )


def fit_configs(
    table: ConfigTable, device: DeviceFacts, settings: TreeSettings | None = None
) -> ConfigModel | None:
    """Learn a solver's configs from the training part of its problems.

    Parameters
    ----------
    table : ConfigTable
        Tuned problems.
    device : DeviceFacts
        The device they were tuned on.
    settings : TreeSettings, optional
        Its learning rate isn't used: the step is shared out among a solver's parameters.
        Default: `default_settings`.

    Returns
    -------
    ConfigModel or None
        None if no config was seen often enough.
    """
    pairs = list(zip(table.dtypes, table.configs, strict=True))
    learnt = np.flatnonzero(table.is_training)
    frequent = Counter(pairs[i] for i in learnt)
    seen = {pair: count for pair, count in frequent.items() if count >= LEAST_SEEN}
    if not seen:
        return None
    configs = tuple(sorted({config for _, config in seen}))
    column = {config: i for i, config in enumerate(configs)}
    counts = {
        dtype: np.array([seen.get((dtype, config), 0) for config in configs], np.intp)
        for dtype in sorted({dtype for dtype, _ in seen})
    }
    outputs = _share_outputs(table.solver, configs, counts)
    settings = settings or default_settings(len(table.position))
    chosen = [i for i in learnt if pairs[i] in seen]
    rows = raw_features(table.raw[chosen], table.direction, device)
    winner = np.array([column[table.configs[i]] for i in chosen], np.intp)
    dtypes = np.array([list(counts).index(table.dtypes[i]) for i in chosen], np.intp)
    forest = _train(rows, winner, dtypes, list(counts.values()), outputs, settings)
    return ConfigModel(configs, counts, outputs, forest)


def _share_outputs(solver: str, configs: Sequence[str], counts: Mapping[str, Indices]) -> Indices:
    """Give each config its outputs, one row a parameter that tells configs apart."""
    columns: dict[bytes, int] = {}
    rows = []
    for values in _parameters(solver, configs, counts):
        distinct = sorted(set(values))
        row = np.full(len(configs), -1)
        # Of two values one is enough: only the difference counts.
        for value in distinct[len(distinct) == 2 :]:
            has = np.array([other == value for other in values])
            row[has] = columns.setdefault(has.tobytes(), len(columns))
        rows.append(row)
    outputs = np.array(rows, np.intp).reshape(-1, len(configs))
    outputs[outputs < 0] = len(columns)
    return outputs


def _parameters(
    solver: str, configs: Sequence[str], counts: Mapping[str, Indices]
) -> list[list[str]]:
    """Values of the parameters that tell configs apart, and of the first ones joined to a tile.

    A parameter that follows from another one, or from the data type, adds nothing. The first
    ones (kernel, block, tile) act together, which sums don't show, so what they are together is
    one more.
    """
    named = [
        dict(zip(parameter_names(solver, config), parse_config(solver, config), strict=True))
        for config in configs
    ]
    columns = []
    for name in dict.fromkeys(name for values in named for name in values):
        values = [config.get(name, "") for config in named]
        of_types = [
            {value for value, count in zip(values, seen, strict=True) if count}
            for seen in counts.values()
        ]
        if max(map(len, of_types)) < 2:
            continue
        if len(set(values)) > _MOST_VALUES:
            if not all(value.isdecimal() for value in values) or len(named[0]) > 1:
                continue
            values = _ranges(list(map(int, values)), sum(counts.values()))
        columns.append(values)
    kept: list[list[str]] = []
    # Finer ones first, so that coarser ones that follow from them are found.
    for values in sorted(columns, key=lambda column: -len(set(column))):
        if not any(_follows(values, other) for other in kept):
            kept.append(values)
    tile = _tile(columns)
    if tile and not any(_follows(tile, other) for other in kept):
        kept.append(tile)
    return kept


def _tile(columns: Sequence[Sequence[str]]) -> list[str]:
    """Join the first parameters, as many as there are before a word."""
    tile: list[str] = []
    for values in columns:
        is_kernel = all(value.endswith("<") for value in values)
        if not is_kernel and not all(value.isdecimal() for value in values):
            break
        joined = [f"{a},{b}" for a, b in zip(tile or [""] * len(values), values, strict=True)]
        if len(set(joined)) > _MOST_VALUES:
            break
        tile = joined
    return tile


def _follows(values: Sequence[str], other: Sequence[str]) -> bool:
    return len(set(zip(other, values, strict=True))) == len(set(other))


def _ranges(numbers: Sequence[int], counts: Any) -> list[str]:
    """Cut numbers into ranges, narrow ones where many were seen."""
    order = np.argsort(numbers)
    # The root, so that one value that nearly always wins doesn't leave one range to the rest.
    weights = np.sqrt(counts[order])
    below = np.cumsum(weights) - weights
    part = np.empty(len(numbers), np.intp)
    part[order] = below * _MOST_VALUES / weights.sum()
    return [f"{number:03}" for number in part]


def _train(
    rows: npt.NDArray[np.float32],
    winner: Indices,
    dtypes: Indices,
    counts: Sequence[Indices],
    outputs: Indices,
    settings: TreeSettings,
) -> Forest:
    """Boost trees for the outputs on the likelihood of the winning configs."""
    number = int(outputs.max(initial=0))
    if number == 0:
        return Forest(
            threshold_counts=np.zeros(rows.shape[1], np.intp),
            thresholds=np.empty(0, np.float32),
            node_features=np.empty(0, np.intp),
            node_bins=np.empty(0, np.intp),
            node_left_leaves=np.empty(0, np.intp),
            tree_leaves=np.empty(0, np.intp),
            leaves=np.empty(0, np.float32),
            output_trees=np.empty(0, np.intp),
            bias=np.empty(0),
        )
    # Single precision halves the time, most of which goes into these products.
    has = np.zeros((outputs.shape[1], number + 1), np.float32)
    for group in outputs:
        has[np.arange(len(group)), group] = 1
    has = has[:, :number]
    usual = np.log(np.array(counts) / np.sum(counts, axis=1, keepdims=True) + 1e-12)
    usual = usual.astype(np.float32)[dtypes]
    labels = has[winner]

    def objective(scores: Floats, _: lightgbm.Dataset) -> tuple[Floats, Floats]:
        shares = scores.reshape(-1, number).astype(np.float32) @ has.T
        shares += usual
        shares -= shares.max(axis=1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=1, keepdims=True)
        expected = shares @ has
        gradient, hessian = expected - labels, 1.5 * expected * (1 - expected) + 1e-6
        return (gradient, hessian) if number > 1 else (gradient.ravel(), hessian.ravel())

    together = float(has.sum(axis=1)[winner].mean())
    parameters = settings.parameters() | {
        "objective": objective,
        "learning_rate": min(_LARGEST_STEP, _WHOLE_STEP / max(1.0, together)),
    }
    if number > 1:
        parameters["num_class"] = number
    dataset = lightgbm.Dataset(
        rows, np.zeros(len(rows)), params={"max_bin": settings.max_bin, "verbose": -1}
    )
    booster = lightgbm.train(parameters, dataset, settings.rounds)
    return Forest.from_lightgbm(booster, leaf_type="float16")


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
    table: ConfigTable, model: ConfigModel, device: DeviceFacts, nets: Path | None = None
) -> list[ConfigScores]:
    """Measure a model on the problems that it didn't learn from, for each data type.

    Parameters
    ----------
    table : ConfigTable
        Tuned problems.
    model : ConfigModel
        What `fit_configs` learnt from them.
    device : DeviceFacts
        The device they were tuned on.
    nets : Path, optional
        Folder with AMD's kernel-tuning nets, to measure those too.
    """
    held_out = np.flatnonzero(~table.is_training)
    rows = raw_features(table.raw[held_out], table.direction, device)
    dtypes = np.array([table.dtypes[i] for i in held_out])
    truth = np.array([table.configs[i] for i in held_out], object)
    results = []
    for dtype, counts in model.counts.items():
        here = np.flatnonzero(dtypes == dtype)
        if not here.size:
            continue
        wanted = truth[here].tolist()
        agree = _Agreement(table.solver, {*model.configs, *table.configs}, model, dtype)
        scores = model.scores(rows[here], dtype)
        order = np.argsort(-scores, axis=1, kind="stable")[:, : max(_TOPS)]
        ranked = [[model.configs[i] for i in line] for line in order]
        usual = [model.configs[i] for i in np.argsort(-counts, kind="stable")[: max(_TOPS)]]
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
                configs=int(np.count_nonzero(counts)),
                top_1=top_1,
                top_5=top_5,
                top_10=top_10,
                parameters=_mean(by_parameter.values()),
                by_parameter=by_parameter,
                usual_top_1=usual_1,
                usual_top_5=usual_5,
                usual_top_10=usual_10,
                usual_parameters=_mean(agree.by_parameter(usual[:1] * len(here), wanted).values()),
                **_beside_net(table, device, nets, here, dtype, picks, wanted, agree),
            )
        )
    return results


class _Agreement:
    """Compares configs of one data type parameter by parameter."""

    def __init__(self, solver: str, configs: set[str], model: ConfigModel, dtype: str) -> None:
        self._values = {
            config: dict(
                zip(parameter_names(solver, config), parse_config(solver, config), strict=True)
            )
            for config in configs
        }
        members = [model.configs[i] for i in np.flatnonzero(model.counts[dtype])]
        names = dict.fromkeys(name for config in members for name in self._values[config])
        self._names = [
            name
            for name in names
            if len({self._values[config].get(name) for config in members}) > 1
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
    here: Indices,
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
    problems = [parse_find_key(table.held_out_keys[i]) for i in here]
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


@dataclass(frozen=True)
class _Trained:
    """What comes back from a worker; a forest that was used can't be pickled itself."""

    name: str
    packed: bytes
    content: dict[str, Any]
    scores: list[ConfigScores]


def _fit_and_score(
    table: ConfigTable, device: DeviceFacts, nets: Path | None, settings: TreeSettings | None
) -> _Trained | None:
    model = fit_configs(table, device, settings)
    if model is None:
        return None
    name = model_name(table.solver, table.direction)
    scores = score_configs(table, model, device, nets)
    return _Trained(name, model.forest.to_bytes(), model.to_dict(), scores)


def train_configs(
    folder: str | os.PathLike[str],
    arch: str,
    out: str | os.PathLike[str],
    *,
    workers: int = 0,
    share: float = 1.0,
    settings: TreeSettings | None = None,
    on_progress: Progress | None = None,
) -> dict[str, Any]:
    """Train the ranking of every tunable solver of an arch, and write what `ConfigRanking` reads.

    The same databases give the same files, whatever the number of workers.

    Parameters
    ----------
    folder : path-like
        Databases, and AMD's kernel-tuning nets to compare with if they are there.
    arch : str
        Of the perf-dbs of an arch one is learnt from, that of its usual compute units if there is
        one; other counts are answered by the same model.
    out : path-like
        Where ``configs.json`` and ``configs.forests`` go.
    workers : int, default 0
        Solvers trained at the same time, one thread each; 0 takes the machine's processors.
    share : float, default 1.0
        Share of the shapes to use, for trials.
    settings : TreeSettings, optional
        How trees are grown. Default: `default_settings`.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.

    Returns
    -------
    dict
        For JSON: "perf_db", "compute_units", "skipped" (lines that can't be used) and "scores",
        the fields of a `ConfigScores` each. Empty, and nothing is written, where the arch has no
        perf-db.

    Raises
    ------
    InputError
        If the perf-db has nothing to learn from.

    Examples
    --------
    >>> import tempfile
    >>> train_configs("/opt/rocm/share/miopen/db", "gfx942", "bundle")  # doctest: +SKIP
    >>> with tempfile.TemporaryDirectory() as without_databases:
    ...     train_configs(without_databases, "gfx908", without_databases)
    {}
    """
    databases = [file for file in find_databases(folder, arch) if not file.name.user]
    file = _usual_perf_db(databases, arch)
    if file is None:
        return {}
    name = file.name
    reader = read_perf_db(file.path)
    found: Iterable[FindRecord] = ()
    for other in databases:
        if other.name.kind == "find-db" and other.name.compute_units == name.compute_units:
            found = read_find_db(other.path)
    tables = tuned_problems(reader, found, reader.report)
    tables = [table.thin(share) for table in tables]
    device = device_facts(name.arch, name.compute_units)
    scores = train_tables(
        [table for table in tables if len(table.position)],
        device,
        Path(out),
        workers=workers,
        nets=Path(folder),
        settings=settings,
        on_progress=on_progress,
    )
    return {
        "perf_db": file.path.name,
        "compute_units": name.compute_units,
        "skipped": len(reader.issues),
        "scores": [asdict(score) for score in scores],
    }


def _usual_perf_db(databases: Iterable[DatabaseFile], arch: str) -> DatabaseFile | None:
    usual = USUAL_COMPUTE_UNITS.get(parse_arch(arch), ())
    by_units = {file.name.compute_units: file for file in databases if file.name.kind == "perf-db"}
    for units in (*usual, *sorted(by_units, reverse=True)):
        if units in by_units:
            return by_units[units]
    return None


def train_tables(
    tables: Sequence[ConfigTable],
    device: DeviceFacts,
    folder: Path,
    *,
    workers: int = 1,
    nets: Path | None = None,
    settings: TreeSettings | None = None,
    on_progress: Progress | None = None,
) -> list[ConfigScores]:
    """Train, score and write the models of tuned problems; see `train_configs`.

    Parameters
    ----------
    tables : sequence of ConfigTable
        What `tuned_problems` gave.
    device : DeviceFacts
        The device that they were tuned on.
    folder : Path
        Where the files go.
    workers, settings, on_progress
        As for `train_configs`.
    nets : Path, optional
        Folder with AMD's kernel-tuning nets.

    Returns
    -------
    list of ConfigScores
        One for each solver, direction and data type, on shapes that were not learnt from.
    """
    workers = workers or os.cpu_count() or 1
    # The longest first, so that no worker is left with a long one at the end.
    tables = sorted(tables, key=lambda table: -len(table.position))
    done: list[_Trained | None] = []

    def progress() -> None:
        if on_progress:
            on_progress("configs", len(done), len(tables))

    progress()
    if workers == 1:
        for table in tables:
            done.append(_fit_and_score(table, device, nets, settings))
            progress()
    else:
        # A fork of a process whose OpenMP has run may hang.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            futures = [
                pool.submit(_fit_and_score, table, device, nets, settings) for table in tables
            ]
            for future in futures:
                done.append(future.result())
                progress()
    models = sorted((entry for entry in done if entry), key=lambda entry: entry.name)
    if not models:
        raise InputError(
            f"no config won {LEAST_SEEN} problems of the training part; nothing to learn",
            "perf-db",
        )
    folder.mkdir(parents=True, exist_ok=True)
    save_forests(
        folder / FOREST_FILE, {model.name: Forest.from_bytes(model.packed) for model in models}
    )
    content = {
        "format_version": FORMAT_VERSION,
        "feature_version": FEATURE_VERSION,
        "arch": device.arch,
        "compute_units": device.compute_units,
        "models": {model.name: model.content for model in models},
    }
    (folder / TABLE_FILE).write_text(json.dumps(content, separators=(",", ":")) + "\n")
    return [score for model in models for score in model.scores]
