"""One problem and columns of problems have the same features."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import KNOWN_DEVICES, device_facts
from foretune.predictor.features.conv import (
    FEATURE_NAMES,
    feature_matrix,
    feature_row,
    why_unsupported,
)
from tests.strategies import problems

LEARNT = problems(
    dtypes=("FP32", "FP16", "BF16", "INT8"), uniform=True, casts=False, biases=False
).filter(lambda problem: not why_unsupported(problem))


@settings(max_examples=200, deadline=None)
@given(LEARNT, st.sampled_from(KNOWN_DEVICES))
def test_one_row_equals_the_matrix(problem: ConvProblem, device: object) -> None:
    facts = next(known for known in KNOWN_DEVICES if known == device)
    row = feature_row(problem, facts)
    (of_matrix,) = feature_matrix([problem], problem.direction, facts)
    # The two logarithms, numpy's and the C library's, may differ in the last bit of a double.
    np.testing.assert_array_max_ulp(row, of_matrix, 1)
    assert np.isfinite(row).all()
    assert row.shape == (len(FEATURE_NAMES),)


def test_features_of_a_known_problem() -> None:
    problem = ConvProblem(
        "W", 32, 64, (56, 56), 128, (3, 3), (2, 2), (1, 1), groups=2, dtype="FP16"
    )
    row = dict(zip(FEATURE_NAMES, feature_row(problem, device_facts("gfx90a")), strict=True))
    assert row["gemm_m"] == 64
    assert row["gemm_n"] == 32 * 9
    assert row["gemm_k"] == 32 * 28 * 28
    assert row["x_bytes"] == problem.in_bytes
    assert row["w_bytes"] == problem.weight_bytes
    assert row["y_bytes"] == problem.out_bytes
    assert row["log_flops"] == pytest.approx(np.log2(problem.flops))
    assert row["align_c"] == 64
    assert (row["is_3x3"], row["unit_stride"], row["depthwise"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"dtype": "FP64"}, "FP64"),
        ({"dtype": "INT8", "out_dtype": "INT32"}, "unlike types"),
        ({"layout": "CHWN"}, "CHWN"),
        ({"out_layout": "NHWC"}, "unlike layouts"),
        ({"cast": "FP8"}, "casts"),
        ({"bias": 1}, "bias"),
    ],
)
def test_what_was_never_learnt_is_named(change: dict[str, object], word: str) -> None:
    problem = ConvProblem("F", 1, 8, (8, 8), 8, (1, 1), **change)  # type: ignore[arg-type]
    assert word in why_unsupported(problem)
