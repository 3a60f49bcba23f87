"""What older GPUs' databases tell about a new one, and how much must be tuned on it.

Learns the ranking of MIOpen's solvers for MI300X (gfx942) from the databases of MI100, MI210 and
MI250X together with 0%, 1%, 5%, 20% or 100% of MI300X's training shapes, and scores the picks on
MI300X problems of shapes that no training saw, on any device. Three ways to use the new device's
records:

- joined: added to the older ones; the device's compute units and rates are features
- weighted: as joined, repeated until they are as many as the older ones, 20 times at most
- alone: without the older ones

The set-up is reduced, and the same for all: a share of the older devices' shapes, a third of the
trees of the shipped models. So compare its figures with each other.

    python benchmarks/new_hardware.py run share/miopen/db --out transfer.jsonl --workers 2
    python benchmarks/new_hardware.py table transfer.jsonl

One JSON line is written for each training that ends; those in the file aren't done again. Needs
foretune[train]; 2 minutes a training on a quiet core.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.devices import DeviceFacts
from foretune.miopen.dataset import cached_table
from foretune.miopen.learning import learning_parts, restrict
from foretune.miopen.predictor import naive_flags, runnable_flags
from foretune.miopen.solvers import runnable
from foretune.predictor.dataset import RankingData
from foretune.predictor.evaluate import evaluate
from foretune.predictor.split import TRAIN_END
from foretune.predictor.train import RankingSettings, RankingTrainer

OLD, NEW = ("gfx908", "gfx90a"), "gfx942"
DIRECTIONS = ("F", "B", "W")
SHARES = (0.0, 0.01, 0.05, 0.2, 1.0)
WAYS = ("joined", "weighted", "alone")
#: Share of the older devices' shapes that is learnt from.
OLD_SHARE = 0.25
_MOST_REPEATS = 20


@dataclass(frozen=True)
class Job:
    """One training."""

    direction: str
    way: str
    share: float


def jobs() -> Iterator[Job]:
    """Give the trainings, those that say most first."""
    for shares, ways in (((0.0, 0.05, 1.0), WAYS), ((0.01, 0.2), WAYS)):
        for share in shares:
            for direction in DIRECTIONS:
                for way in ways:
                    # Without records of the new device there is one way only.
                    if share or way == "joined":
                        yield Job(direction, way, share)


def settings(divisor: int) -> RankingSettings:
    """Give the shipped models' settings with fewer trees."""
    usual = RankingSettings()
    return replace(
        usual,
        shares=replace(usual.shares, rounds=usual.shares.rounds // divisor),
        # A bag of a single listing would be empty.
        times=replace(usual.times, rounds=usual.times.rounds // divisor, bagging_fraction=1.0),
        judge=replace(usual.judge, rounds=usual.judge.rounds // divisor),
        least_listings=10,
    )


def prepare(folder: str, cache: Path) -> None:
    """Write the records of every arch and direction as arrays, where they are not yet."""
    cache.mkdir(parents=True, exist_ok=True)
    for arch in (*OLD, NEW):
        if all(_file(cache, arch, direction).exists() for direction in DIRECTIONS):
            continue
        parts = learning_parts(cached_table(folder, arch, cache)).parts
        for direction in DIRECTIONS:
            data = parts[direction]
            temporary = cache / f"{os.getpid()}.npz"
            np.savez_compressed(
                temporary,
                candidates=np.array(data.candidates),
                devices=json.dumps([asdict(device) for device in data.devices]),
                raw=data.raw.astype(np.int64),
                times=data.times.astype(np.float32),
                device=data.device.astype(np.int8),
                position=data.position,
            )
            temporary.replace(_file(cache, arch, direction))


def _file(cache: Path, arch: str, direction: str) -> Path:
    return cache / f"{arch}-{direction}.npz"


def load(cache: Path, arch: str, direction: str) -> RankingData:
    """Read what `prepare` wrote."""
    with np.load(_file(cache, arch, direction)) as stored:
        raw = stored["raw"].astype(np.float64)
        return RankingData(
            direction,
            tuple(stored["candidates"].tolist()),
            tuple(DeviceFacts(**facts) for facts in json.loads(str(stored["devices"]))),
            raw,
            stored["times"].astype(np.float64),
            stored["device"].astype(np.int64),
            stored["position"],
            np.full(len(raw), ""),
        )


def join(parts: Sequence[RankingData]) -> RankingData:
    """Put the records of several devices together."""
    candidates = tuple(sorted({name for part in parts for name in part.candidates}))
    devices: list[DeviceFacts] = []
    times, device = [], []
    for part in parts:
        matrix = np.full((len(part), len(candidates)), np.inf)
        matrix[:, [candidates.index(name) for name in part.candidates]] = part.times
        times.append(matrix)
        device.append(part.device + len(devices))
        devices += part.devices
    return RankingData(
        parts[0].direction,
        candidates,
        tuple(devices),
        np.concatenate([part.raw for part in parts]),
        np.concatenate(times),
        np.concatenate(device),
        np.concatenate([part.position for part in parts]),
        np.concatenate([part.names for part in parts]),
    )


def _part(position: npt.NDArray[np.float64], share: float, shift: int) -> npt.NDArray[np.bool_]:
    """Rows of a share of the training shapes; larger shares hold the smaller ones."""
    return np.asarray((position < TRAIN_END) & ((position * 2**shift) % 1 < share))


def run_job(
    job: Job, cache: Path, divisor: int, thin: float, miopen: str = "any"
) -> dict[str, Any]:
    """Train and score."""
    began = time.monotonic()
    new = load(cache, NEW, job.direction)
    test = new.take(new.position >= TRAIN_END)
    own = new.take(_part(new.position, job.share * thin, 20))
    taught = []
    older = 0
    if job.way != "alone":
        for arch in OLD:
            data = load(cache, arch, job.direction)
            taught.append(data.take(_part(data.position, OLD_SHARE * thin, 10)))
        older = sum(map(len, taught))
    if len(own):
        repeats = min(_MOST_REPEATS, max(1, older // len(own))) if job.way == "weighted" else 1
        taught += [own] * repeats
    data = join(taught)
    usual = settings(divisor)
    model = RankingTrainer(usual, 1).train({job.direction: data})[job.direction]
    may_run = runnable_flags(model.candidates, NEW, miopen)
    test = restrict(test, runnable(NEW, "any"))
    outcomes, _ = evaluate(model, test, may_run, naive_flags(model.candidates))
    return {
        **asdict(job),
        "older": older,
        "own": len(own),
        **outcomes.summary().to_dict(),
        "divisor": divisor,
        "seconds": round(time.monotonic() - began, 1),
    }


def run(options: argparse.Namespace) -> None:
    """Do all trainings, some at a time, each in a process that can be ended."""
    until = time.monotonic() + options.seconds
    cache = Path(options.cache)
    prepare(options.db, cache)
    out = Path(options.out)
    done = set()
    if out.exists():
        lines = out.read_text(encoding="utf-8").splitlines()
        done = {(r["direction"], r["way"], r["share"]) for r in map(json.loads, lines)}
    waiting = [job for job in jobs() if (job.direction, job.way, job.share) not in done]
    running: dict[subprocess.Popen[str], Job] = {}
    while (waiting or running) and time.monotonic() < until:
        while waiting and len(running) < options.workers:
            job = waiting.pop(0)
            names = ("thin", "divisor", "miopen")
            asked = json.dumps({**asdict(job), **{name: getattr(options, name) for name in names}})
            command = [sys.executable, __file__, "job", options.cache, asked]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, text=True, start_new_session=True
            )
            running[process] = job
        time.sleep(0.2)
        for process in [process for process in running if process.poll() is not None]:
            job = running.pop(process)
            answer = process.communicate()[0]
            if process.returncode == 0:
                with out.open("a", encoding="utf-8") as file:
                    file.write(answer.strip() + "\n")
            print(job, "done" if process.returncode == 0 else "failed", flush=True)
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
    print(f"{len(waiting) + len(running)} trainings are left", flush=True)


def table(path: str) -> None:
    """Print the figures of all directions together, as Markdown."""
    rows: dict[tuple[str, float], list[dict[str, Any]]] = defaultdict(list)
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        rows[row["way"], row["share"]].append(row)
    print("| way | its shapes | its records | directions | problems | top-1 | slowdown |", end="")
    print(" >1.1x | >2x | not listed | top-3 measured |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for way in WAYS:
        for share in SHARES:
            some = rows.get((way, share))
            if some:
                print(_row(way, share, some))


def _row(way: str, share: float, some: list[dict[str, Any]]) -> str:
    count = sum(row["problems"] for row in some)
    listed = [row["problems"] * (1 - row["not_listed"]) for row in some]
    three = [row["problems"] * (1 - row["top3_not_listed"]) for row in some]

    def mean(name: str, weights: list[float]) -> float:
        total = sum(w * float(row[name]) for w, row in zip(weights, some, strict=True))
        return total / sum(weights)

    def geometric(name: str, weights: list[float]) -> float:
        logs = [w * log(row[name]) for w, row in zip(weights, some, strict=True)]
        return exp(sum(logs) / sum(weights))

    each = [float(row["problems"]) for row in some]
    return (
        f"| {way} | {share:.0%} | {sum(row['own'] for row in some):,} | "
        f"{' '.join(sorted(row['direction'] for row in some))} | {count:,} | "
        f"{mean('top1', each):.1%} | {geometric('slowdown', listed):.4f} | "
        f"{mean('above_1_1x', listed):.1%} | {mean('above_2x', listed):.2%} | "
        f"{mean('not_listed', each):.1%} | {geometric('top3_slowdown', three):.4f} |"
    )


def main() -> None:
    """Read the arguments and do what they ask for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    verbs = parser.add_subparsers(dest="verb", required=True)
    running = verbs.add_parser("run", help="train and score")
    running.add_argument("db", help="folder of find-dbs")
    running.add_argument("--out", required=True, help="file of JSON lines")
    running.add_argument("--cache", default="new-hardware-cache", help="folder for parsed records")
    running.add_argument("--workers", type=int, default=1, help="trainings at a time")
    running.add_argument("--seconds", type=float, default=float("inf"), help="stop after these")
    running.add_argument("--thin", type=float, default=1.0, help="share of all shapes, for trials")
    running.add_argument("--divisor", type=int, default=3, help="divides the shipped trees")
    running.add_argument(
        "--miopen", default="any", help="pick only what this release runs on the new device"
    )
    one = verbs.add_parser("job", help="one training, for the verb run")
    one.add_argument("cache")
    one.add_argument("job")
    showing = verbs.add_parser("table", help="print the figures as Markdown")
    showing.add_argument("file")
    options = parser.parse_args()
    if options.verb == "run":
        run(options)
    elif options.verb == "table":
        table(options.file)
    else:
        asked = json.loads(options.job)
        job = Job(asked["direction"], asked["way"], asked["share"])
        how = (asked["divisor"], asked["thin"], asked["miopen"])
        print(json.dumps(run_job(job, Path(options.cache), *how)))


if __name__ == "__main__":
    main()
