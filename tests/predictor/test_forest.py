"""Forests answer as LightGBM does, with both engines, and survive the disk."""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import lightgbm
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.predictor.forest import Forest, load_forests, model, save_forests
from foretune.predictor.forest.lightgbm_text import parse_model_text

FEATURES = 9
SIZES = [(2, 1), (15, 5), (31, 1), (32, 3), (33, 1), (63, 2), (64, 1)]
Rows = npt.NDArray[np.float32]


def _rows(seed: int, count: int) -> Rows:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, FEATURES))
    # Whole numbers make thresholds that are halves, and many rows that are equal.
    rows[:, 5:] = np.round(np.exp2(rows[:, 5:] * 2))
    return rows.astype(np.float32)


def _train(num_leaves: int, outputs: int, rounds: int = 12) -> lightgbm.Booster:
    rows = _rows(1, 1500)
    target = rows[:, 0] * rows[:, 5] + np.sin(3 * rows[:, 1]) + rows[:, 6]
    parameters: dict[str, Any] = {
        "num_leaves": num_leaves,
        "min_data_in_leaf": 3,
        "num_threads": 1,
        "verbose": -1,
        "deterministic": True,
        "max_bin": 63,
        "objective": "regression",
    }
    if outputs > 1:
        target = np.digitize(target, np.quantile(target, np.arange(1, outputs) / outputs))
        parameters |= {"objective": "multiclass", "num_class": outputs}
    return lightgbm.train(parameters, lightgbm.Dataset(rows, target), rounds)


@pytest.fixture(
    scope="module", params=[(2, 1), (15, 5), (31, 1), (32, 3), (33, 1), (63, 2), (64, 1)]
)
def booster(request: pytest.FixtureRequest) -> lightgbm.Booster:
    num_leaves, outputs = request.param
    return _train(num_leaves, outputs)


@pytest.fixture(scope="module")
def forest(booster: lightgbm.Booster) -> Forest:
    return Forest.from_lightgbm(booster)


def _with_thresholds(forest: Forest, rows: Rows) -> Rows:
    """Put every threshold, and its two neighbours, into some row."""
    rows = rows.copy()
    at = 0
    for feature, count in enumerate(forest.threshold_counts):
        exact = forest.thresholds[at : at + count]
        at += int(count)
        values = np.concatenate(
            [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, -exact - 1)]
        )
        rows[:, feature] = np.where(
            np.arange(len(rows)) % 2, np.resize(values, len(rows)) if count else 0, rows[:, feature]
        )
    return rows


def test_equals_lightgbm_also_at_thresholds(booster: lightgbm.Booster, forest: Forest) -> None:
    rows = _with_thresholds(forest, _rows(2, 800))
    raw = np.asarray(booster.predict(rows, raw_score=True)).reshape(len(rows), -1)
    np.testing.assert_allclose(forest.predict(rows), raw, rtol=1e-6, atol=1e-6)
    assert forest.num_features == FEATURES
    assert forest.num_outputs == raw.shape[1]


def test_every_decision_equals_lightgbm(booster: lightgbm.Booster, forest: Forest) -> None:
    """Leaf numbers instead of values: a wrong turn can't hide behind a small leaf."""
    lines = booster.model_to_string().splitlines()
    for at, line in enumerate(lines):
        if line.startswith("leaf_value="):
            lines[at] = "leaf_value=" + " ".join(map(str, range(len(line.split()))))
    numbered = Forest.from_lightgbm("\n".join(lines))
    rows = _with_thresholds(forest, _rows(3, 400))
    indices = np.asarray(booster.predict(rows, pred_leaf=True))
    sums = indices.reshape(len(rows), -1, forest.num_outputs).sum(axis=1)
    np.testing.assert_array_equal(numbered.predict(rows), sums)


def test_engines_give_the_same_bits(forest: Forest) -> None:
    pytest.importorskip("llvmlite", reason="the compiled engine needs llvmlite")
    rows = _with_thresholds(forest, _rows(4, 300))
    rows[0], rows[1] = np.inf, -np.inf
    packed = forest.to_bytes()
    with_numpy, with_llvm = Forest.from_bytes(packed), Forest.from_bytes(packed)
    with_numpy.engine, with_llvm.engine = "numpy", "llvm"
    expected = with_numpy.predict(rows)
    np.testing.assert_array_equal(with_llvm.predict(rows), expected)
    np.testing.assert_array_equal(with_llvm.predict(rows[::-2, :]), expected[::-2])
    np.testing.assert_array_equal([with_llvm.predict_one(row) for row in rows], expected)
    np.testing.assert_array_equal([with_numpy.predict_one(row) for row in rows], expected)


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_threads_do_not_disturb_each_other(engine: model.Engine) -> None:
    if engine == "llvm":
        pytest.importorskip("llvmlite", reason="the compiled engine needs llvmlite")
    forest = Forest.from_lightgbm(_train(31, 3))
    forest.engine = engine
    rows = _rows(5, 200)
    expected = forest.predict(rows)
    answers: list[npt.NDArray[np.float64]] = []

    def work() -> None:
        answers.append(np.array([forest.predict_one(row) for row in rows]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answers) == 4
    for answer in answers:
        np.testing.assert_array_equal(answer, expected)


def test_auto_compiles_when_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite", reason="the compiled engine needs llvmlite")
    monkeypatch.setattr(model, "_COMPILE_AFTER", 1000)
    monkeypatch.setattr(model, "_work", model._Work())
    forest = Forest.from_lightgbm(_train(7, 1, rounds=10))
    rows = _rows(6, 150)
    first = forest.predict(rows[:50])
    assert "_llvm" not in vars(forest)
    forest.predict(rows)
    assert "_llvm" in vars(forest)
    np.testing.assert_array_equal(forest.predict(rows[:50]), first)


def test_without_llvmlite_numpy_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "foretune.predictor.forest.llvm_engine", None)
    monkeypatch.setattr(model, "_COMPILE_AFTER", 0)
    forest = Forest.from_lightgbm(_train(7, 1))
    rows = _rows(7, 20)
    answer = forest.predict(rows)
    forest.engine = "llvm"
    with pytest.raises(ImportError):
        forest.predict(rows)
    forest.engine = "numpy"
    np.testing.assert_array_equal(answer, forest.predict(rows))


def test_round_trip_is_exact(forest: Forest, tmp_path: Path) -> None:
    path = tmp_path / "model.forests"
    half = _train(15, 2)
    forests = {"rank": forest, "half": Forest.from_lightgbm(half, leaf_type="float16")}
    save_forests(path, forests)
    again = load_forests(path)
    assert list(again) == ["rank", "half"]
    rows = _rows(8, 100)
    for name, before in forests.items():
        np.testing.assert_array_equal(again[name].predict(rows), before.predict(rows))
        assert again[name].to_bytes() == before.to_bytes()
    first = path.read_bytes()
    save_forests(path, again)
    assert path.read_bytes() == first


def test_half_precision_leaves_cost_little() -> None:
    booster = _train(31, 3)
    rows = _rows(9, 200)
    exact, half = (
        Forest.from_lightgbm(booster, leaf_type=kind) for kind in get_args(model.LeafType)
    )
    difference = np.abs(half.predict(rows) - exact.predict(rows)).max()
    assert 0 < difference < 1e-3
    assert len(half.to_bytes()) < len(exact.to_bytes())


def test_bias_and_constant_trees_add_up() -> None:
    rows = _rows(10, 300)
    booster = lightgbm.train(
        {"objective": "multiclass", "num_class": 3, "verbose": -1, "num_threads": 1},
        # Class 2 never occurs, so its trees are constants.
        lightgbm.Dataset(rows, (rows[:, 0] > 0).astype(int)),
        4,
    )
    raw = np.asarray(booster.predict(rows, raw_score=True))
    forest = Forest.from_lightgbm(booster, bias=[1.0, 2.0, 3.0])
    assert forest.output_trees.tolist() == [4, 4, 0]
    np.testing.assert_allclose(forest.predict(rows) - [1.0, 2.0, 3.0], raw, rtol=1e-6, atol=1e-6)
    forest = Forest.from_bytes(forest.to_bytes())
    np.testing.assert_allclose(forest.predict(rows) - [1.0, 2.0, 3.0], raw, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="3 outputs"):
        Forest.from_lightgbm(booster, bias=[1.0])


def test_forest_of_constants() -> None:
    rows = _rows(11, 50)
    booster = lightgbm.train(
        {"objective": "regression", "verbose": -1, "num_threads": 1},
        lightgbm.Dataset(rows, np.full(50, 2.5)),
        3,
    )
    forest = Forest.from_bytes(Forest.from_lightgbm(booster).to_bytes())
    assert forest.num_trees == 0
    expected = np.asarray(booster.predict(rows, raw_score=True))
    np.testing.assert_allclose(forest.predict(rows)[:, 0], expected)


_NEAR_ZERO = st.sampled_from([0.0, -0.0, 1e-35, -1e-35, 1.1e-35, -1.1e-35, 1e-40, -1e-40])


@settings(max_examples=100, deadline=None)
@given(st.one_of(_NEAR_ZERO, st.floats(width=64, allow_nan=False)), st.data())
def test_float32_thresholds_keep_every_decision(value: float, data: st.DataObject) -> None:
    rounded = model._as_float32(np.array([value]))[0]
    with np.errstate(over="ignore"):
        neighbours = [float(np.nextafter(rounded, np.float32(to))) for to in (-np.inf, np.inf)]
    x = np.float32(
        data.draw(
            st.one_of(
                st.sampled_from([float(rounded), *neighbours]),
                _NEAR_ZERO,
                st.floats(width=32, allow_nan=False),
            )
        )
    )
    as_lightgbm_sees_it = float(x) if abs(float(x)) > float(np.float32(1e-35)) else 0.0
    assert (x <= rounded) == (as_lightgbm_sees_it <= value)


@pytest.fixture(scope="module")
def packed() -> bytes:
    return Forest.from_lightgbm(_train(7, 2, rounds=3)).to_bytes()


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_change_is_noticed(packed: bytes, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(packed) - 1))
    if data.draw(st.booleans()):
        broken = packed[:at]
    else:
        flip = data.draw(st.integers(1, 255))
        broken = packed[:at] + bytes([packed[at] ^ flip]) + packed[at + 1 :]
    with pytest.raises(InputError, match=r"^model\.forests, rank: "):
        Forest.from_bytes(broken, where="model.forests, rank")
    with pytest.raises(InputError):
        Forest.from_bytes(packed + b"\0")


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_impossible_trees_are_refused_or_harmless(data: st.DataObject) -> None:
    """A checksum can be forged: the arrays themselves must never lead outside a table."""
    forest = Forest.from_lightgbm(_train(5, 1, rounds=2))
    arrays: dict[str, Any] = {
        name: np.array(getattr(forest, name))
        for name in ("node_features", "node_bins", "node_left_leaves", "tree_leaves")
    }
    name = data.draw(st.sampled_from(sorted(arrays)))
    at = data.draw(st.integers(0, arrays[name].size - 1))
    arrays[name][at] = data.draw(st.integers(0, 255))
    try:
        changed = Forest(
            threshold_counts=forest.threshold_counts,
            thresholds=forest.thresholds,
            leaves=forest.leaves,
            output_trees=forest.output_trees,
            bias=forest.bias,
            **arrays,
        )
    except InputError:
        return
    scores = changed.predict(_rows(12, 10))
    most = np.abs(forest.leaves).sum() + np.abs(forest.bias).sum()
    assert np.all(np.abs(scores) <= most)


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-40])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(bytes(data))


def _flip_index(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"rank", b"rink", 1))


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _flip,
        _flip_index,
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:25]),
        lambda path: path.write_bytes(path.read_bytes() + b"more"),
        lambda path: path.write_text("something else, of some length"),
    ],
)
def test_damaged_file_names_itself(
    packed: bytes, tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "model.forests"
    save_forests(path, {"rank": Forest.from_bytes(packed)})
    damage(path)
    with pytest.raises(InputError, match=r"model\.forests"):
        load_forests(path)["rank"]


@pytest.mark.parametrize("index", [b"[1]", b"5", b"{", b'{"rank": "1"}', b'{"rank": -1}'])
def test_an_index_of_something_else_is_told(tmp_path: Path, index: bytes) -> None:
    path = tmp_path / "model.forests"
    head = struct.pack("<II", len(index), zlib.crc32(index))
    path.write_bytes(b"foretune forests 1\n" + head + index)
    with pytest.raises(InputError, match="no index of forests"):
        load_forests(path)


def test_rows_must_fit(packed: bytes) -> None:
    forest = Forest.from_bytes(packed)
    with pytest.raises(ValueError, match="9 float32 features"):
        forest.predict_one(np.zeros(8, np.float32))
    with pytest.raises(ValueError, match="float32"):
        forest.predict_one(np.zeros(9))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"\(9,\)"):
        forest.predict(np.zeros(9, np.float32))
    assert forest.predict(np.empty((0, 9), np.float32)).shape == (0, 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("max_feature_idx", "max_feature", "not a LightGBM model"),
        ("end of trees", "end", "cut off"),
        ("num_leaves=7", "num_leaves=65", "at most 64"),
        ("num_leaves=7", "num_leaves=seven", "malformed"),
        ("num_cat=0", "num_cat=1", "categorical"),
        ("is_linear=0", "is_linear=1", "linear"),
        ("decision_type=2", "decision_type=1", "decision type 1"),
        ("decision_type=2", "decision_type=6", "special zero"),
        ("left_child=1", "left_child=0", "don't form a tree"),
        ("left_child=", "left=", "missing"),
        ("version=v4", "version=v4\naverage_output", "averaged"),
    ],
)
def test_unsupported_models_are_refused(old: str, new: str, message: str) -> None:
    text = _train(7, 1, rounds=2).model_to_string()
    assert old in text
    with pytest.raises(InputError, match=message):
        parse_model_text(text.replace(old, new))


def test_answering_imports_no_learning_library(packed: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.forests"
    save_forests(path, {"rank": Forest.from_bytes(packed)})
    code = (
        "import sys, numpy as np\n"
        "from foretune.predictor.forest import load_forests\n"
        f"load_forests({str(path)!r})['rank'].predict_one(np.zeros(9, np.float32))\n"
        "print(sorted({'lightgbm', 'pandas', 'sklearn', 'scipy', 'pyarrow', 'llvmlite'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("engine", ["numpy", "llvm"])
def test_some_outputs_alone_give_the_same_bits(engine: model.Engine) -> None:
    forest = Forest.from_lightgbm(_train(9, 4, rounds=8))
    forest.engine = engine
    rows = _rows(9, 30)
    every = forest.predict(rows)
    for outputs in ([0], [3], [2, 0], [1, 2, 3], []):
        part = forest.of_outputs(outputs)
        np.testing.assert_array_equal(part.predict(rows), every[:, outputs])
        assert part.num_outputs == len(outputs)
        for row, wanted in zip(rows[:3], every, strict=False):
            np.testing.assert_array_equal(part.predict_one(row), wanted[outputs])


def test_a_file_is_told_from_another_like_it(tmp_path: Path) -> None:
    trees = _train(5, 1, rounds=2)
    for bias in (0.0, 1.0):
        forest = Forest.from_lightgbm(trees, bias=[bias])
        save_forests(tmp_path / f"{bias}.forests", {"rank": forest})
        save_forests(tmp_path / f"{bias} again.forests", {"rank": forest})
    sums = {path.stem: load_forests(path).checksum for path in tmp_path.iterdir()}
    assert sums["0.0"] == sums["0.0 again"] != sums["1.0"] == sums["1.0 again"]
