"""Which engine answers one row of a tree ensemble soonest? Every contender in one run.

A forest of 2,000 trees, 31 leaves, 16 classes and 128 features is trained on made-up data, then
each contender loads it and scores the same rows one by one, taking turns. A second part starts a
fresh process for each contender: import, load, first answer.

Run ``python benchmarks/forest_engines.py``. Contenders whose packages are absent are named and
left out (``pip install lightgbm llvmlite onnx onnxruntime treelite`` for all of them).
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FEATURES, CLASSES = 128, 16
Row = npt.NDArray[np.float32]
Scorer = Callable[[Row], npt.NDArray[Any]]


def make_rows(count: int, seed: int) -> Row:
    """Half the columns smooth, half on a coarse grid, as sizes and flags are."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, FEATURES))
    rows[:, 64:] = np.round(np.exp2(rows[:, 64:] * 2) * 4) / 4
    return rows.astype(np.float32)


def train(folder: Path, leaves: int, rounds: int) -> None:
    """Train the ensemble and write it in each contender's format."""
    import lightgbm

    rows = make_rows(12_000, 0)
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(FEATURES, CLASSES)) * (rng.random((FEATURES, CLASSES)) < 0.15)
    scores = np.tanh(rows) @ weights + rng.gumbel(size=(len(rows), CLASSES))
    parameters = {
        "objective": "multiclass",
        "num_class": CLASSES,
        "num_leaves": leaves,
        "max_bin": 127,
        "min_data_in_leaf": 5,
        "feature_fraction": 0.5,
        "min_sum_hessian_in_leaf": 0.1,
        "num_threads": 1,
        "verbose": -1,
    }
    data = lightgbm.Dataset(rows, scores.argmax(axis=1))
    booster = lightgbm.train(parameters, data, rounds)
    booster.save_model(folder / "model.txt")
    prepare(folder)


def prepare(folder: Path) -> None:
    """Write the other formats beside ``model.txt``."""
    from foretune.predictor.forest import Forest, save_forests

    text = (folder / "model.txt").read_text()
    save_forests(folder / "model.forests", {"rank": Forest.from_lightgbm(text)})
    if importlib.util.find_spec("onnx"):
        (folder / "model.onnx").write_bytes(_as_onnx(text))
    if importlib.util.find_spec("treelite"):
        treelite = importlib.import_module("treelite")
        treelite.frontend.load_lightgbm_model(folder / "model.txt").serialize(
            folder / "model.treelite"
        )


def _as_onnx(text: str) -> bytes:
    """Write the trees as one TreeEnsembleRegressor that adds up raw scores."""
    from foretune.predictor.forest.lightgbm_text import parse_model_text

    helper = importlib.import_module("onnx.helper")
    model = parse_model_text(text)
    fields = (
        *("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids"),
        *("missing_value_tracks_true", "hitrates"),
    )
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in fields}
    targets: dict[str, list[Any]] = {
        f"target_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")
    }

    def add(tree: int, node: int, feature: int, mode: str, value: float, yes: int, no: int) -> None:
        for name, item in zip(
            nodes, (tree, node, feature, mode, value, yes, no, 0, 1.0), strict=True
        ):
            nodes[name].append(item)

    for number, tree in enumerate(model.trees):
        inner = len(tree.features)
        # Children by number: inner nodes in pre-order first, then the leaves from left to right.
        pending = [(0, 0, inner + 1)]
        while pending:
            node, first, size = pending.pop()
            if size == 1:
                continue
            left = tree.left_leaves[node]
            yes = node + 1 if left > 1 else inner + first
            no = node + left if size - left > 1 else inner + first + left
            threshold = np.float32(tree.thresholds[node])
            if threshold > tree.thresholds[node]:
                threshold = np.nextafter(threshold, np.float32(-np.inf))
            add(number, node, tree.features[node], "BRANCH_LEQ", float(threshold), yes, no)
            pending += [(node + 1, first, left), (node + left, first + left, size - left)]
        for leaf, value in enumerate(tree.leaves):
            add(number, inner + leaf, 0, "LEAF", 0.0, 0, 0)
            item = (number, inner + leaf, number % model.num_outputs, float(value))
            for name, part in zip(targets, item, strict=True):
                targets[name].append(part)
    node = helper.make_node(
        "TreeEnsembleRegressor",
        ["row"],
        ["scores"],
        domain="ai.onnx.ml",
        n_targets=model.num_outputs,
        aggregate_function="SUM",
        post_transform="NONE",
        **nodes,
        **targets,
    )
    graph = helper.make_graph(
        [node],
        "forest",
        [helper.make_tensor_value_info("row", 1, [None, model.num_features])],
        [helper.make_tensor_value_info("scores", 1, [None, model.num_outputs])],
    )
    versions = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    data: bytes = helper.make_model(graph, opset_imports=versions, ir_version=8).SerializeToString()
    return data


def _forest(engine: str) -> Callable[[Path], Scorer]:
    def load(folder: Path) -> Scorer:
        from foretune.predictor.forest import load_forests

        forest = load_forests(folder / "model.forests")["rank"]
        forest.engine = engine  # type: ignore[assignment]
        return forest.predict_one

    return load


def _lightgbm_library(folder: Path) -> Scorer:
    """LightGBM's shared library through ctypes, with its fast path for single rows."""
    # find_spec doesn't run the package, whose import costs more than all else here.
    spec = importlib.util.find_spec("lightgbm")
    if spec is None or spec.origin is None:
        raise ImportError("lightgbm")
    library = ctypes.CDLL(str(Path(spec.origin).parent / "lib" / "lib_lightgbm.so"))

    def check(status: int) -> None:
        if status:
            raise RuntimeError("LightGBM's library reports an error")

    booster, rounds, config = ctypes.c_void_p(), ctypes.c_int(), ctypes.c_void_p()
    name = str(folder / "model.txt").encode()
    check(
        library.LGBM_BoosterCreateFromModelfile(name, ctypes.byref(rounds), ctypes.byref(booster))
    )
    raw_score, float32 = 1, 0
    check(
        library.LGBM_BoosterPredictForMatSingleRowFastInit(
            booster, raw_score, 0, -1, float32, FEATURES, b"num_threads=1", ctypes.byref(config)
        )
    )
    row = np.empty(FEATURES, np.float32)
    scores = np.empty(CLASSES)
    length = ctypes.c_int64()
    arguments = (
        config,
        ctypes.c_void_p(row.ctypes.data),
        ctypes.byref(length),
        ctypes.c_void_p(scores.ctypes.data),
    )
    call = library.LGBM_BoosterPredictForMatSingleRowFast

    def score(new: Row) -> npt.NDArray[Any]:
        row[:] = new
        check(call(*arguments))
        return scores.copy()

    return score


def _onnxruntime(folder: Path) -> Scorer:
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(
        str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
    )

    def score(row: Row) -> npt.NDArray[Any]:
        scores: npt.NDArray[Any] = session.run(None, {"row": row[np.newaxis]})[0][0]
        return scores

    return score


def _treelite(folder: Path) -> Scorer:
    treelite = importlib.import_module("treelite")
    model = treelite.Model.deserialize(folder / "model.treelite")

    def score(row: Row) -> npt.NDArray[Any]:
        raw = treelite.gtil.predict(model, row[np.newaxis], nthread=1, pred_margin=True)
        return np.ravel(raw)

    return score


CONTENDERS: dict[str, tuple[Callable[[Path], Scorer], tuple[str, ...]]] = {
    "foretune, llvmlite": (_forest("llvm"), ("llvmlite",)),
    "foretune, numpy": (_forest("numpy"), ()),
    "LightGBM library": (_lightgbm_library, ("lightgbm",)),
    "ONNX Runtime": (_onnxruntime, ("onnx", "onnxruntime")),
    "treelite GTIL": (_treelite, ("treelite",)),
}


def available() -> list[str]:
    """Name the contenders that can run here."""
    names = []
    for name, (_, packages) in CONTENDERS.items():
        absent = [package for package in packages if not importlib.util.find_spec(package)]
        if absent:
            print(f"left out: {name} (no {', '.join(absent)})")
        else:
            names.append(name)
    return names


def warm(folder: Path, repeats: int) -> None:
    """Load once, then let the contenders take turns row by row."""
    rows = make_rows(repeats, 2)
    scorers = {name: CONTENDERS[name][0](folder) for name in available()}
    expected: npt.NDArray[Any] | None = None
    for name, scorer in scorers.items():
        for row in rows[:20]:
            answer = scorer(row)
        expected = answer if expected is None else expected
        print(f"  {name}: differs by {np.abs(answer - expected).max():.1e}")
    # Blocks, not single rows: nobody runs with the caches that another one left behind.
    times: dict[str, list[float]] = {name: [] for name in scorers}
    block = 25
    for start in range(0, repeats, block):
        for name, scorer in scorers.items():
            for row in rows[start : start + block]:
                before = time.perf_counter()
                scorer(row)
                times[name].append(time.perf_counter() - before)
    best = min(statistics.median(spent) for spent in times.values())
    print(f"{'one row, warm, one thread':28}{'median':>10}{'10%':>10}{'ratio':>8}")
    for name, spent in times.items():
        median, low = statistics.median(spent), statistics.quantiles(spent, n=10)[0]
        print(f"{name:28}{median * 1e6:>7.1f} us{low * 1e6:>7.1f} us{median / best:>8.2f}")


def cold(folder: Path, repeats: int) -> None:
    """Time fresh processes: whole run, and what loading and the first answer take within it."""
    cases = ["nothing", "numpy", *available()]
    spent: dict[str, list[tuple[float, float, float, float]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name in cases:
            command = [sys.executable, __file__, "--child", name, "--folder", str(folder)]
            if name == "nothing":
                command = [sys.executable, "-c", "print(0, 0)"]
            elif name == "numpy":
                command = [sys.executable, "-c", "import numpy; print(0, 0)"]
            before, cpu_before = time.perf_counter(), _cpu_of_children()
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            wall, cpu = time.perf_counter() - before, _cpu_of_children() - cpu_before
            load, first = map(float, done.stdout.split())
            spent[name].append((wall, cpu, load, first))
    print(f"{'fresh process':28}{'whole':>11}{'its CPU':>11}{'load':>11}{'first':>11}")
    for name, results in spent.items():
        medians = (statistics.median(column) for column in zip(*results, strict=True))
        print(f"{name:28}" + "".join(f"{median * 1e3:>8.1f} ms" for median in medians))


def _cpu_of_children() -> float:
    """Seconds of CPU, which a busy machine disturbs less than seconds on the wall."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def child(name: str, folder: Path) -> None:
    """Load (imports included) and answer once; print both times in seconds."""
    row = np.zeros(FEATURES, np.float32)
    start = time.perf_counter()
    scorer = CONTENDERS[name][0](folder)
    loaded = time.perf_counter()
    scorer(row)
    print(loaded - start, time.perf_counter() - loaded)


def main() -> None:
    """Train once and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--leaves", type=int, default=31)
    parser.add_argument("--rounds", type=int, default=125, help="rounds of 16 trees each")
    parser.add_argument("--repeats", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="keep, or find, the trained model here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.folder)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder: Path = options.folder or Path(temporary)
        if not (folder / "model.forests").exists():
            folder.mkdir(parents=True, exist_ok=True)
            train(folder, options.leaves, options.rounds)
        for file in sorted(folder.glob("model.*")):
            print(f"{file.name}: {file.stat().st_size / 1e6:.2f} MB")
        warm(folder, options.repeats)
        cold(folder, 7)


if __name__ == "__main__":
    main()
