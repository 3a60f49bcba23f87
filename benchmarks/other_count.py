"""Does an accepted answer hold on a device of another compute-unit count? gfx90a has two.

Run with ``python benchmarks/other_count.py share/miopen/db``. Asks the shipped model as if for one
count and scores the picks accepted at 5% on what was measured on either, on shapes that training
never saw. The model learnt from both counts, so a count without any data would fare worse.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np

from foretune.miopen.dataset import cached_table
from foretune.miopen.learning import learning_parts
from foretune.miopen.predictor import naive_flags, runnable_flags, shipped_models
from foretune.predictor.acceptance import Acceptance, to_bits
from foretune.predictor.bundle import RankingBundle
from foretune.predictor.evaluate import Outcomes, evaluate
from foretune.predictor.split import TRAIN_END

ARCH, RISK = "gfx90a", 0.05


def main() -> None:
    """Measure and print."""
    bundle = RankingBundle(shipped_models() / ARCH)
    acceptance = Acceptance(bundle.calibration)
    parts = learning_parts(cached_table(sys.argv[1], ARCH)).parts
    counts = [device.compute_units for device in parts["F"].devices]
    for asked, count in enumerate(counts):
        for measured, other in enumerate(counts):
            outcomes, accepted = [], []
            for direction, data in parts.items():
                unseen = data.take((data.position >= TRAIN_END) & (data.device == measured))
                model = bundle.ranking(direction)
                may_run = runnable_flags(model.candidates, ARCH)
                result, _ = evaluate(
                    model,
                    replace(unseen, device=np.full(len(unseen), asked)),
                    may_run,
                    naive_flags(model.candidates),
                )
                outcomes.append(result)
                bits = to_bits(may_run)
                verdicts = [
                    acceptance.judge(count, direction, bits, RISK, score).accepted
                    for score in result.score.tolist()
                ]
                accepted.append(result.sure & np.array(verdicts, bool))
            together = Outcomes.join(outcomes)
            given = together.delivered(np.concatenate(accepted), RISK)
            print(
                f"asked for {count} CU, measured on {other} CU: top-1 {together.summary().top1:.1%}"
                f", coverage {given.coverage:.1%}, achieved risk {given.risk:.1%} by record, "
                f"{given.risk_by_shape:.1%} by shape",
                flush=True,
            )


if __name__ == "__main__":
    main()
