"""Foretune's own kernels on a device that nothing was learnt of: from the other one's dataset.

    python benchmarks/device_held_out.py data/kernels/{cpu,sm_90}/conv.parquet

Of each pair of datasets: boosted trees learn one device's times (their logarithm over the
roofline's) and rank what was measured on the other: alone, and with all trials of 10 or 40 of its
problems. Scored on its other problems: rank correlation of the times of a problem's candidates,
slowdown of the first and of the best of the first four over the best that was measured. Beside it
the same trees without the first device, and the fastest of the solvers' default configs, which
`foretune find` measures first. Needs foretune[train].
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import permutations

import lightgbm
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import spearmanr

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem_text import parse_problem
from foretune.kernels.registry import solver as find_solver
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.boosting import TreeSettings, train_regression
from foretune.predictor.kernels.features import CandidateTable, ProblemView
from foretune.predictor.split import shape_position

SETTINGS = TreeSettings(250, leaves=31)
COUNTS = (0, 10, 40)


@dataclass(frozen=True)
class Measured:
    """The measured candidates of a problem: features, times, and who is a default."""

    rows: npt.NDArray[np.float32]
    times: npt.NDArray[np.float64]
    default: npt.NDArray[np.bool_]
    log_roofline: float
    position: float


def read(path: str, solvers: list[str]) -> list[Measured]:
    """Read the problems of a dataset."""
    table = pd.read_parquet(path)
    table = table[(table["status"] == "measured") & (table["operation"] == "conv")]
    names = [name for name in DeviceProperties.__dataclass_fields__ if name in table]
    facts = {name: table[name].iloc[0] for name in names}
    device = DeviceProperties(**{n: getattr(v, "item", lambda v=v: v)() for n, v in facts.items()})
    found = []
    for text, part in table.groupby("problem", observed=True, sort=True):
        problem = parse_problem(str(text))
        assert isinstance(problem, ConvProblem)
        candidates, default, times = [], [], []
        for name, config, time in zip(part["solver"], part["config"], part["time_ms"], strict=True):
            values = dict(word.split("=") for word in config.split(",") if word)
            if name in solvers:
                candidates.append((solvers.index(name), {k: int(v) for k, v in values.items()}))
                known = find_solver("conv", name).default_config(problem, device)
                default.append(known.key == config)
                times.append(time)
        view = ProblemView(problem, device, with_device=True)
        rows = CandidateTable(solvers, candidates).rows(view)
        flags, taken = np.array(default, bool), np.array(times, np.float64)
        position = shape_position(problem)
        found.append(Measured(rows, taken, flags, view.log_roofline, position))
    return found


def learn(problems: list[Measured]) -> lightgbm.Booster:
    """Learn times over those of the roofline."""
    rows = np.concatenate([known.rows for known in problems])
    target = np.concatenate([np.log(known.times) - known.log_roofline for known in problems])
    return train_regression(rows, target, SETTINGS)


def score(model: lightgbm.Booster, problems: list[Measured]) -> str:
    """Give rank correlation and slowdowns as cells."""
    ranks, first, four = [], [], []
    for known in problems:
        answers = np.asarray(model.predict(known.rows))
        order = np.argsort(answers, kind="stable")
        slowdown = known.times[order] / known.times.min()
        first.append(slowdown[0])
        four.append(slowdown[:4].min())
        ranks.append(spearmanr(answers, known.times).statistic)
    return f"{np.nanmean(ranks):.2f} | {_mean(first):.3f} | {_mean(four):.3f}"


def _mean(values: list[float]) -> float:
    return float(np.exp(np.log(values).mean()))


def main() -> None:
    """Study all pairs and print a table."""
    solvers = sorted(
        {name for path in sys.argv[1:] for name in pd.read_parquet(path)["solver"].unique()}
    )
    datasets = {path.split("/")[-2]: read(path, solvers) for path in sys.argv[1:]}
    print("| device | learnt from | its problems | tested | rank correlation | slowdown | top-4 |")
    print("|---|---|---|---|---|---|---|")
    for older, newer in permutations(datasets, 2):
        # By shape, so that what is learnt and what is asked share none.
        order = sorted(datasets[newer], key=lambda known: known.position)
        asked = order[max(COUNTS) :]
        taught = {known.position for known in order[: max(COUNTS)]}
        asked = [known for known in asked if known.position not in taught]
        of_default = [
            float(known.times[known.default].min() / known.times.min())
            for known in asked
            if known.default.any()
        ]
        print(
            f"| {newer} | fastest default | 0 | {len(of_default)} | | {_mean(of_default):.3f} | |"
        )
        for count in COUNTS:
            joint = score(learn(datasets[older] + order[:count]), asked)
            print(
                f"| {newer} | {older} and itself | {count} | {len(asked)} | {joint} |", flush=True
            )
            if count:
                alone = score(learn(order[:count]), asked)
                print(f"| {newer} | itself | {count} | {len(asked)} | {alone} |", flush=True)


if __name__ == "__main__":
    main()
