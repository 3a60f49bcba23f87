"""Do answers hold for a compute-unit count without a database? gfx90a, one count left out.

Run with ``python benchmarks/leave_one_count_out.py share/miopen/db [share]``. Trains on each of
gfx90a's two counts alone, calibrates there, and scores the picks accepted at 5% on shapes never
seen, on the same count and on the other.
"""

from __future__ import annotations

import sys

import numpy as np

from foretune.miopen.dataset import cached_table
from foretune.miopen.learning import learning_parts
from foretune.miopen.predictor import naive_flags
from foretune.predictor.calibrate import learn_then_test
from foretune.predictor.dataset import RankingData
from foretune.predictor.evaluate import Outcomes, evaluate
from foretune.predictor.split import part_of
from foretune.predictor.train import RankingTrainer

RISK = 0.05
STEPS = np.linspace(0.30, 1.0, 71)


def part(data: RankingData, units: int, *names: str) -> RankingData:
    """Keep the records of one count in some parts of the split."""
    index = [device.compute_units for device in data.devices].index(units)
    inside = np.array([part_of(position) in names for position in data.position], bool)
    return data.take(inside & (data.device == index))


def main() -> None:
    """Train, measure and print."""
    share = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    parts = learning_parts(cached_table(sys.argv[1], "gfx90a")).parts
    parts = {name: data.take((data.position * 2**20) % 1 < share) for name, data in parts.items()}
    counts = [device.compute_units for device in parts["F"].devices]
    for learnt in counts:
        trained = RankingTrainer().train(
            {name: part(data, learnt, "train") for name, data in parts.items()}
        )
        thresholds: dict[str, float] = {}
        for asked in sorted(counts, key=lambda count: count != learnt):
            outcomes, accepted = [], []
            for name, model in trained.items():
                may_run = np.ones(len(model.candidates), bool)
                naive = naive_flags(model.candidates)
                if asked == learnt:
                    taught, _ = evaluate(model, part(parts[name], learnt, "train"), may_run, naive)
                    kept = part(parts[name], learnt, "calibrate")
                    result, _ = evaluate(model, kept, may_run, naive)
                    found = learn_then_test(
                        result.score[result.sure],
                        result.bad[result.sure],
                        np.unique(kept.position[result.sure], return_inverse=True)[1],
                        np.quantile(taught.score, 1 - STEPS),
                        RISK,
                    )
                    thresholds[name] = np.inf if found.score is None else found.score
                result, _ = evaluate(
                    model, part(parts[name], asked, "calibrate", "test"), may_run, naive
                )
                outcomes.append(result)
                accepted.append(result.sure & (result.score >= thresholds[name]))
            together = Outcomes.join(outcomes)
            score = together.summary()
            given = together.delivered(np.concatenate(accepted), RISK)
            print(
                f"learnt on {learnt} CU, asked about {asked} CU: top-1 {score.top1:.1%}, slowdown "
                f"{score.slowdown:.4f}, not listed {score.not_listed:.1%}; at 5%: coverage "
                f"{given.coverage:.1%}, achieved risk {given.risk:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
