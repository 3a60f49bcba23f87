"""What whole networks lose by predicted solvers, and the search that they are spared.

Run with ``python benchmarks/networks.py share/miopen/db workloads``: a folder of MIOpen's find-dbs
and one of files with a MIOpenDriver line for each layer and direction (a line that stands twice
counts twice). For each network, data type and device:

* tuned / picked: the sum over layers of the best listed time over the sum of the pick's time. A
  pick that the record doesn't list is at least as slow as the slowest that it lists, where the
  record is full (MIOpen writes the best four); such picks count as the slowest listed, and are
  counted.
* accepted: the same over the layers whose answer is accepted at a stated risk of 5%.
* unseen: the same over the layers whose shape training left out.
* find: the time that MIOpen's find spends running the kernels. It is the sum of all listed times
  above zero, times the runs of one measurement (one to warm up and seven that count, as in newer
  releases). A lower bound: candidates that lost to four others aren't listed, and neither
  compiling nor the tuning of parameters is in it.

Only problems that the find-db holds can be scored.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.find_db import FindRecord, read_find_db
from foretune.miopen.keys import format_find_key
from foretune.miopen.names import find_databases
from foretune.miopen.networks import RUNS, TYPES, as_type, read_networks
from foretune.miopen.predictor import MIOpenPredictor
from foretune.predictor.split import part_of, shape_position

RISK = 0.05


@dataclass(frozen=True)
class Layer:
    """A layer's direction as it was measured, and as it is predicted.

    Attributes
    ----------
    count : int
        How often the network has it.
    tuned_ms, picked_ms : float
        Best listed time and the pick's.
    find_ms : float
        Sum of the listed times.
    listed, accepted, unseen : bool
        Whether the record lists the pick, whether the pick is accepted, and whether training left
        the shape out.
    """

    count: int
    tuned_ms: float
    picked_ms: float
    find_ms: float
    listed: bool
    accepted: bool
    unseen: bool


def layers(
    problems: Mapping[ConvProblem, int],
    records: Mapping[str, FindRecord],
    predictor: MIOpenPredictor,
) -> Iterator[Layer]:
    """Layers that the find-db holds."""
    for problem, count in problems.items():
        record = records.get(format_find_key(problem))
        times = {i.solver: i.time_ms for i in record.items if i.time_ms > 0} if record else {}
        if not times:
            continue
        answer = predictor.predict(problem)
        pick = answer.solutions[0].solver
        yield Layer(
            count,
            min(times.values()),
            times.get(pick, max(times.values())),
            sum(times.values()),
            pick in times,
            answer.accepted,
            part_of(shape_position(problem)) != "train",
        )


def efficiency(some: Iterable[Layer]) -> str:
    """Sum of tuned times over sum of picked times, in percent."""
    kept = list(some)
    picked = sum(layer.count * layer.picked_ms for layer in kept)
    tuned = sum(layer.count * layer.tuned_ms for layer in kept)
    return f"{tuned / picked:.1%}" if picked else ""


def main() -> None:
    """Measure and print a table."""
    databases, workloads = Path(sys.argv[1]), Path(sys.argv[2])
    networks = read_networks(workloads)
    wanted = {
        format_find_key(as_type(problem, dtype))
        for problems in networks.values()
        for problem in problems
        for dtype in TYPES
    }
    titles = (
        "device network type layers scored unseen accepted tuned/picked accepted unseen "
        "not-listed tuned-ms find-ms"
    )
    columns = titles.split()
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for file in find_databases(databases):
        if file.name.kind != "find-db" or file.name.arch == "gfx906":
            continue
        predictor = MIOpenPredictor(file.name.arch, file.name.compute_units, risk=RISK)
        records = {r.key: r for r in read_find_db(file.path) if r.key in wanted}
        for network, problems in networks.items():
            for dtype in TYPES:
                typed = Counter({as_type(p, dtype): count for p, count in problems.items()})
                found = list(layers(typed, records, predictor))
                if not found:
                    continue
                cells = (
                    f"{file.name.arch}/{file.name.compute_units}",
                    network,
                    dtype,
                    f"{len(typed)}",
                    f"{len(found)}",
                    f"{sum(layer.unseen for layer in found)}",
                    f"{sum(layer.accepted for layer in found)}",
                    efficiency(found),
                    efficiency(layer for layer in found if layer.accepted),
                    efficiency(layer for layer in found if layer.unseen),
                    f"{sum(not layer.listed for layer in found)}",
                    f"{sum(layer.count * layer.tuned_ms for layer in found):.1f}",
                    # A find is done once for each problem, however often the network has it.
                    f"{RUNS * sum(layer.find_ms for layer in found):.0f}",
                )
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
