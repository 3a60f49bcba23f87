"""What a model of one device's configs tells about another device.

    python benchmarks/config_transfer.py ../shared/benchmark-hub/convolution_milo_*.json.gz

For each pair of exhaustive runs of one kernel: a forest learns all times of the older device. It is
asked for the newer one's fastest config: alone, and with 10, 50 or 200 configs of the newer device,
drawn at random and measured, from which a second forest learns by how much the first one errs
there. Beside it: a forest of the measured configs only, and measuring as many as the first
forest ranks first. Slowdowns are of the one pick over the best recorded, or of the best measured,
as geometric means over ten draws. All runs are of one problem, so nothing is said about problems
of other sizes. Needs foretune[train].
"""

from __future__ import annotations

import argparse
from itertools import permutations

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr
from sklearn.ensemble import ExtraTreesRegressor

from foretune.predictor.benchmark_hub import RecordedRun, read_benchmark_hub

Floats = npt.NDArray[np.float64]
COUNTS = (10, 50, 200)


def features(run: RecordedRun) -> Floats:
    """Encode all configs of a run."""
    return np.array([run.space.encode(config) for config in run.configs()], np.float64)


def forest(rows: Floats, times: Floats, seed: int) -> ExtraTreesRegressor:
    """Learn the logarithms of times."""
    trees = ExtraTreesRegressor(100, max_features=0.7, random_state=seed, n_jobs=1)
    return trees.fit(rows, np.log(times))


def study(older: RecordedRun, newer: RecordedRun, repeats: int) -> list[str]:
    """Give the cells of a row: rank correlation, and slowdowns by what was measured."""
    old, new = features(older), features(newer)
    old_times, times = older.table["time_ms"].to_numpy(), newer.table["time_ms"].to_numpy()
    runs = np.isfinite(times)
    told = np.isfinite(old_times)
    guess = forest(old[told], old_times[told], 0).predict(new)
    best = float(np.nanmin(times))
    rank = float(spearmanr(guess[runs], times[runs]).statistic)
    order = np.argsort(guess, kind="stable")
    # What fails on the newer device is not known before it is tried.
    first = next(place for place in order if runs[place])
    cells = [f"{rank:.3f}", f"{times[first] / best:.3f}"]
    candidates = np.flatnonzero(runs)
    for count in COUNTS:
        joint: list[float] = []
        alone: list[float] = []
        for seed in range(repeats):
            drawn = np.random.default_rng(seed).choice(candidates, count, replace=False)
            for found, offset in ((joint, guess), (alone, np.zeros(len(new)))):
                rows = np.column_stack([new, offset])
                trees = forest(rows[drawn], times[drawn] / np.exp(offset[drawn]), seed)
                answers = offset + trees.predict(rows)
                pick = candidates[answers[candidates].argmin()]
                found.append(float(np.log(min(times[pick], times[drawn].min()) / best)))
        top = np.nanmin(times[order[:count]]) / best
        cells.append(f"{np.exp(np.mean(joint)):.3f} / {np.exp(np.mean(alone)):.3f} / {top:.3f}")
    return cells


def main() -> None:
    """Study all pairs and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--repeats", type=int, default=10)
    options = parser.parse_args()
    runs = {
        file.rpartition("_")[2].partition(".")[0]: read_benchmark_hub(file)
        for file in options.files
    }
    print("| from | to | rank correlation | pick, nothing measured |", end="")
    print("".join(f" {count} measured: both / alone / first ranked |" for count in COUNTS))
    print("|---" * (4 + len(COUNTS)) + "|")
    for older, newer in permutations(runs, 2):
        cells = study(runs[older], runs[newer], options.repeats)
        print(f"| {older} | {newer} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
