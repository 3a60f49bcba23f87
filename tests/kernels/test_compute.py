"""Computing with callers' arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
import torch

from foretune.errors import InputError
from foretune.kernels.compute import compute
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.found import Found, FoundSolution
from foretune.kernels.problem import Problem
from foretune.kernels.runtime import opencl
from foretune.kernels.runtime.compiling import Compiler
from tests.kernels.conv_reference import convolve
from tests.kernels.test_arrays import MadeUp

FORWARD = ConvProblem("F", 2, 4, (6, 5), 3, (3, 3), padding=(1, 1))
NAIVE: dict[str, Any] = {"solver": "ConvNaive", "device": "cpu"}


@pytest.fixture(autouse=True)
def _processor(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("skipif") is None and opencl.why_absent() is not None:
        pytest.skip(f"no processor to compute on: {opencl.why_absent()}")


def _array(shape: tuple[int, ...], seed: int = 0) -> npt.NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


X, W, Y = _array((2, 4, 6, 5)), _array((3, 4, 3, 3), 1), _array((2, 3, 6, 5), 2)


def _reference(problem: ConvProblem = FORWARD, **arrays: Any) -> npt.NDArray[np.float64]:
    return convolve(problem, arrays or {"x": X, "w": W})


def _close(actual: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(
        np.asarray(actual, np.float64), expected, rtol=0, atol=tolerance * np.abs(expected).max()
    )


def test_computes_every_direction() -> None:
    arrays = {"x": X, "w": W, "y": Y}
    for direction, output in (("F", "y"), ("B", "x"), ("W", "w")):
        problem = replace(FORWARD, direction=direction)
        inputs: dict[str, Any] = {name: array for name, array in arrays.items() if name != output}
        result = compute(problem, **inputs, **NAIVE)
        assert isinstance(result, np.ndarray)
        assert result.dtype == np.float32
        _close(result, _reference(problem, **inputs))


def test_scales_adds_and_has_a_bias() -> None:
    bias = _array((3,), 5)
    problem = replace(FORWARD, bias=1)
    out = Y.copy()
    same = compute(problem, x=X, w=W, bias=bias, out=out, alpha=0.5, beta=-2.0, **NAIVE)
    assert same is out
    _close(out, 0.5 * _reference() + bias[:, None, None] - 2.0 * Y)


@pytest.mark.parametrize("kind", ["logical", "memory"])
def test_channels_may_be_last(kind: str) -> None:
    problem = replace(FORWARD, layout="NHWC", weight_layout="NHWC", out_layout="NHWC")
    x, w = (np.ascontiguousarray(array.transpose(0, 2, 3, 1)) for array in (X, W))
    if kind == "memory":
        result = compute(problem, x=x, w=w, **NAIVE)
        assert result.shape == (2, 6, 5, 3)
        _close(result.transpose(0, 3, 1, 2), _reference())
    else:
        result = compute(problem, x=x.transpose(0, 3, 1, 2), w=w.transpose(0, 3, 1, 2), **NAIVE)
        assert result.shape == (2, 3, 6, 5)
        assert result.transpose(0, 2, 3, 1).flags.c_contiguous
        _close(result, _reference())


def test_torch_tensors_give_torch_tensors() -> None:
    x, w = (torch.from_numpy(array).bfloat16() for array in (X, W))
    problem = replace(FORWARD, dtype="BF16", weight_dtype="BF16", out_dtype="BF16")
    result = compute(problem, x=x, w=w, **NAIVE)
    assert isinstance(result, torch.Tensor)
    assert result.dtype == torch.bfloat16
    expected = torch.nn.functional.conv2d(x.double(), w.double(), padding=1)
    _close(result.float().numpy(), expected.numpy(), 2e-2)
    out = torch.empty(2, 3, 6, 5, dtype=torch.bfloat16)
    assert compute(problem, x=x, w=w, out=out, **NAIVE) is out
    assert torch.equal(out, result)


@pytest.mark.parametrize(
    ("dtype", "stored"),
    [("FP16", np.float16), ("BF16", ml_dtypes.bfloat16), ("BF16", np.uint16)],
)
def test_small_types_come_as_they_are(dtype: str, stored: Any) -> None:
    problem = replace(FORWARD, dtype=dtype, weight_dtype=dtype, out_dtype=dtype)
    real = ml_dtypes.bfloat16 if stored is np.uint16 else stored
    x, w = (array.astype(real).view(stored) for array in (X, W))
    result = compute(problem, x=x, w=w, **NAIVE)
    assert result.dtype == stored
    _close(result.view(real).astype(np.float64), _reference(), 2e-2)


def test_arrays_that_lie_otherwise_are_copied_on_the_host() -> None:
    aligned = np.zeros(X.size + 1, np.float32)
    shifted = aligned[1:].reshape(X.shape)
    shifted[...] = X
    strided = np.repeat(W, 2, axis=3)[..., ::2]
    read_only = X.copy()
    read_only.flags.writeable = False
    for x, w in ((shifted, strided), (np.asfortranarray(X), W), (read_only, W)):
        _close(compute(FORWARD, x=x, w=w, **NAIVE), _reference())
    out = np.zeros((2, 3, 5, 6), np.float32).transpose(0, 1, 3, 2)
    compute(FORWARD, x=X, w=W, out=out, **NAIVE)
    _close(out, _reference())


def test_memory_is_not_copied_where_it_can_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretune.kernels.runtime.device import Device

    def refused(*_: Any) -> None:
        raise AssertionError("memory was copied")

    monkeypatch.setattr(Device, "upload", refused)
    _close(compute(FORWARD, x=X, w=W, **NAIVE), _reference())


def test_the_fastest_known_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def find(problem: Problem, device: str, **options: Any) -> Found:
        asked.append((problem, device, options))
        solution = FoundSolution("ConvNaive", "THREADS=128", 1.0, 1.0, 1.0, 5, 0)
        return Found(problem, device, (solution,))

    monkeypatch.setattr("foretune.kernels.find.find", find)
    for _ in range(2):
        _close(compute(FORWARD, x=X, w=W, deterministic=True, budget=0.5), _reference())
    # It is asked once.
    assert asked == [
        (FORWARD, "cpu", {"budget": 0.5, "workspace_limit": None, "deterministic": True})
    ]


def test_a_config_may_be_text_or_mapping() -> None:
    for config in ("THREADS=128", {"THREADS": 128}):
        _close(compute(FORWARD, x=X, w=W, config=config, **NAIVE), _reference())


BIG = replace(FORWARD, dtype="INT8", weight_dtype="INT8", out_dtype="INT8")
BYTES = {"x": X.astype(np.int8), "w": W.astype(np.int8)}


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        (FORWARD, {"x": X}, "^w: is an input of the problem: it has to be given$"),
        (FORWARD, {"x": X, "w": W, "y": Y}, "^y: is what the problem computes"),
        (FORWARD, {"x": X, "w": W, "z": Y}, "^z: is no tensor of the problem: x, w, y$"),
        (FORWARD, {"x": X[:, :3], "w": W}, "^x: axis 1 has 3 elements, the problem says 4"),
        (FORWARD, {"x": X, "w": W[0]}, r"^w: has 3 axes, the problem says 4: \(3, 4, 3, 3\)$"),
        (FORWARD, {"x": X.astype(np.float16), "w": W}, "^x: elements are FP16, .* FP32$"),
        (FORWARD, {"x": X.astype(np.complex64), "w": W}, "^x: elements are complex64"),
        (FORWARD, {"x": X, "w": W, "out": Y[1:]}, "^out: axis 0 has 1 elements, .* 2"),
        (FORWARD, {"x": X, "w": W, "beta": 1.0}, "^out: beta is set"),
        (FORWARD, {"x": X, "w": W, "solver": "ConvMagic"}, "^solver: unknown solver 'ConvMagic'"),
        (FORWARD, {"x": X, "w": W, "config": "THREADS=7"}, "^config: 'THREADS=7' is no config"),
        (FORWARD, {"x": X, "w": W, "config": "A=1", "solver": None}, "^solver: a config goes with"),
        (FORWARD, {"x": X, "w": W, "config": [1]}, "^config: expected NAME=number"),
        (FORWARD, {"x": X.tolist(), "w": W}, "^x: expected a NumPy array"),
        (FORWARD, {"x": X.astype(">f4"), "w": W}, "^x: the bytes of its elements are in the order"),
        (FORWARD, {"x": X, "w": torch.empty(W.shape, device="meta")}, "^w: torch doesn't say"),
        (FORWARD, {"x": X, "w": W, "workspace_limit": -1}, "^workspace_limit: expected bytes"),
        ("conv", {"x": X, "w": W}, "^problem: expected one, such as a ConvProblem, got 'conv'$"),
        (FORWARD, {"x": X, "w": W, "device": "tpu"}, "^device: unknown device 'tpu'"),
        (FORWARD, {"x": X, "w": W, "device": "hip"}, "^device: no device; hip: "),
        (FORWARD, {"x": X, "w": W, "stream": 1}, "^stream: a processor has none"),
        (BIG, BYTES, "^solver: ConvNaive can't compute this: computes FP32, FP16, BF16"),
        (BIG, {**BYTES, "solver": None}, "^problem: no solver can compute this: computes FP32"),
        (
            FORWARD,
            {"x": MadeUp(10, X.shape), "w": W, "device": None},
            "^w: lies on cpu, not on hip",
        ),
        (FORWARD, {"x": MadeUp(10, X.shape), "w": W}, "^x: lies on hip:0, not on cpu$"),
        (
            FORWARD,
            {"x": MadeUp(10, X.shape), "w": MadeUp(10, W.shape), "device": None},
            "^device: no device; hip: ",
        ),
    ],
)
def test_says_what_is_wrong_before_anything_is_compiled(
    problem: ConvProblem, arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> None:
        raise AssertionError("the compiler was asked")

    monkeypatch.setattr(Compiler, "compile", refused)
    monkeypatch.setattr(Compiler, "compile_many", refused)
    with pytest.raises(InputError, match=message):
        compute(problem, **{**NAIVE, **arguments})


def test_says_how_much_workspace_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretune.kernels.registry import naive_solver

    naive = naive_solver("conv")
    plan = type(naive).plan

    def hungry(self: Any, *arguments: Any) -> Any:
        return replace(plan(self, *arguments), workspace=1 << 50)

    monkeypatch.setattr(type(naive), "plan", hungry)
    with pytest.raises(InputError, match=f"ConvNaive.* needs {1 << 50} bytes of workspace, 9 are"):
        compute(FORWARD, x=X, w=W, alpha=3.5, workspace_limit=9, **NAIVE)
    with pytest.raises(InputError, match=f"needs {1 << 50} bytes of workspace, more than the dev"):
        compute(FORWARD, x=X, w=W, alpha=3.5, **NAIVE)


def test_an_output_over_an_input_is_refused() -> None:
    same = replace(FORWARD, out_channels=4)
    w = _array((4, 4, 3, 3))
    x = X.copy()
    with pytest.raises(InputError, match=r"^out: lies over x"):
        compute(same, x=x, w=w, out=x, **NAIVE)
    one = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), X.shape, 4 * (0,))
    with pytest.raises(InputError, match=r"^out: some of its elements share memory"):
        compute(same, x=x, w=w, out=one, **NAIVE)
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(InputError, match=r"^out: can't be written"):
        compute(same, x=x, w=w, out=fixed, **NAIVE)


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")


@gpu
def test_gpu_tensors_stay_where_they_are() -> None:
    x, w = torch.from_numpy(X).cuda(), torch.from_numpy(W).cuda()
    result = compute(FORWARD, x=x, w=w, solver="ConvNaive")
    assert result.is_cuda
    _close(result.cpu().numpy(), _reference())
    with pytest.raises(InputError, match=r"^x: strides are"):
        compute(FORWARD, x=x.to(memory_format=torch.channels_last), w=w, solver="ConvNaive")
    shifted = torch.zeros(X.size + 1, device="cuda")[1:].view(X.shape)
    with pytest.raises(InputError, match=r"^x: starts at an address"):
        compute(FORWARD, x=shifted, w=w, solver="ConvNaive")
    with pytest.raises(InputError, match=r"^w: lies on cpu, not on"):
        compute(FORWARD, x=x, w=W, solver="ConvNaive")


@gpu
def test_the_callers_stream_is_kept() -> None:
    # The input is ready only after a long wait on the caller's stream, and it's changed after.
    w = torch.from_numpy(W).cuda()
    for pass_stream in (True, False):
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.stream(stream):
            x = torch.zeros(X.shape, device="cuda")
            torch.cuda._sleep(50_000_000)  # type: ignore[no-untyped-call]
            x.copy_(torch.from_numpy(X).pin_memory(), non_blocking=True)
            options: dict[str, Any] = {"stream": stream} if pass_stream else {}
            result = compute(FORWARD, x=x, w=w, solver="ConvNaive", **options)
            x.zero_()
            assert not stream.query(), "it waited"
        stream.synchronize()
        _close(result.cpu().numpy(), _reference())


@gpu
def test_host_arrays_travel_to_a_gpu_that_is_asked_for() -> None:
    device = "hip" if torch.version.hip else "cuda"
    out = Y.copy()
    compute(FORWARD, x=X, w=W, out=out, beta=1.0, solver="ConvNaive", device=device)
    _close(out, _reference() + Y)
    out = np.zeros((2, 3, 5, 6), np.float32).transpose(0, 1, 3, 2)
    compute(FORWARD, x=np.asfortranarray(X), w=W, out=out, solver="ConvNaive", device=device)
    _close(out, _reference())
