"""Portfolios: chosen greedily, read from files, tried first by a tuning run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.journal import Journal
from foretune.kernels.problem_text import format_problem
from foretune.kernels.tune import tune
from foretune.predictor.kernels.portfolio import (
    PortfolioChooser,
    choose_portfolio,
    read_portfolio,
    write_portfolio,
)

PROBLEM = ConvProblem("W", 1, 4, (6, 6), 4, (3, 3))

_COSTS = st.lists(
    st.lists(st.sampled_from([0.0, 0.1, 0.5, 2.0, float("inf")]), min_size=4, max_size=4),
    min_size=1,
    max_size=6,
)


@settings(deadline=None, max_examples=60)
@given(_COSTS)
def test_each_choice_saves_and_all_together_reach_the_best(rows: list[list[float]]) -> None:
    costs = np.array(rows)
    chosen = choose_portfolio(costs, 4)
    assert len(set(chosen)) == len(chosen)
    reached = costs[:, chosen].min(axis=1, initial=np.inf)
    assert (reached == costs.min(axis=1)).all()
    if chosen:
        first = np.where(np.isfinite(costs), costs, costs[np.isfinite(costs)].max() + 1.0).sum(
            axis=0
        )
        assert first[chosen[0]] == pytest.approx(first.min())


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "portfolio.txt"
    write_portfolio(path, ["ConvNaive{THREADS=64}", "ConvFFT", "ConvNaive{THREADS=32}"])
    for_all = {"ConvNaive": ["THREADS=64", "THREADS=32"], "ConvFFT": [""]}
    assert read_portfolio(path) == {"": for_all}
    with path.open("a") as file:
        file.write(f"for {format_problem(PROBLEM)}\nConvNaive{{THREADS=128}}\n")
    own = {"ConvNaive": ["THREADS=128"]}
    assert read_portfolio(path) == {"": for_all, format_problem(PROBLEM): own}
    path.write_text("for conv direction=X\n")
    with pytest.raises(InputError, match="line 1"):
        read_portfolio(path)
    path.write_text("# none\nConvNaive{THREADS=64\n")
    with pytest.raises(InputError, match="line 2"):
        read_portfolio(path)
    with pytest.raises(InputError, match="can't be read"):
        read_portfolio(tmp_path / "missing.txt")


def test_a_tuning_run_tries_them_first(tmp_path: Path) -> None:
    wanted = {"ConvNaive": ["THREADS=256", "THREADS=100000"], "ConvAbsent": ["A=1"]}
    chooser = PortfolioChooser({"": {"ConvNaive": ["THREADS=32"]}, format_problem(PROBLEM): wanted})
    with closing(Journal(tmp_path / "a.journal")) as journal:
        tune([PROBLEM], journal, "cpu", sample=2, chooser=chooser)
        tried = [trial.config for trial in journal.trials() if trial.solver == "ConvNaive"]
    assert len(tried) == 2
    assert sorted(tried) == ["THREADS=256", "THREADS=64"]
