"""What every backend promises, and what the words of the preludes mean on each."""

from __future__ import annotations

import gc
import struct
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.runtime.device import (
    CompileError,
    Device,
    Kernel,
    KernelFacts,
    OutOfDeviceMemoryError,
    open_device,
)
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.runtime.source import prelude
from foretune.kernels.solver import (
    WORKSPACE_ALIGNMENT,
    KernelSource,
    Launch,
    Plan,
    fast_divisor,
    pack,
)
from tests.kernels.storage import to_bits

KERNELS = """
KERNEL scale_and_add(GLOBAL float* values, int count, float factor, float added) {
    int i = BLOCK_X * THREADS + THREAD;
    if (i < count) values[i] = values[i] * factor + added;
}

KERNEL places(GLOBAL int* out) {
    int block = (BLOCK_Z * 3 + BLOCK_Y) * BLOCKS_X + BLOCK_X;
    out[block * THREADS + THREAD] =
        ((BLOCKS_X * 10 + BLOCK_Z) * 10 + BLOCK_Y) * 10000 + BLOCK_X * 1000 + THREAD;
}

KERNEL reverse(GLOBAL int* values) {
    LOCAL int block[THREADS];
    int first = BLOCK_X * THREADS;
    for (int round = 0; round < 3; ++round) {
        block[THREAD] = values[first + THREAD];
        BARRIER();
        values[first + THREAD] = block[THREADS - 1 - THREAD];
        BARRIER();
    }
}

typedef struct {
    int a;
    float b;
    int more[30];
    wide last;
} Many;

KERNEL take(GLOBAL float* out, GLOBAL const float* absent, const Many many, wide number) {
    if (THREAD == 0 && BLOCK_X == 0)
        out[0] = absent ? -1.0f : many.a + many.b + many.more[29] + (float)(many.last - number);
}

KERNEL widen(GLOBAL const ushort* halves, GLOBAL float* from_half, GLOBAL float* from_bfloat) {
    int i = BLOCK_X * THREADS + THREAD;
    from_half[i] = half_to_float(halves[i]);
    from_bfloat[i] = bfloat_to_float(halves[i]);
}

KERNEL narrow(
    GLOBAL const float* values, GLOBAL ushort* halves, GLOBAL ushort* bfloats, int count) {
    int i = BLOCK_X * THREADS + THREAD;
    if (i < count) {
        halves[i] = float_to_half(values[i]);
        bfloats[i] = float_to_bfloat(values[i]);
    }
}

KERNEL add_to_one(GLOBAL float* sum, float value) { atomic_add_float(sum, value); }

KERNEL divide_all(
    GLOBAL const int* numbers, GLOBAL int* quotients, int count, FastDivisor divisor) {
    int i = BLOCK_X * THREADS + THREAD;
    if (i < count) quotients[i] = divide(numbers[i], divisor);
}

KERNEL multiply_high(GLOBAL const uint* a, GLOBAL const uint* b, GLOBAL uint* out, int count) {
    int i = BLOCK_X * THREADS + THREAD;
    if (i < count) out[i] = MUL_HIGH(a[i], b[i]);
}

KERNEL fuse(
    GLOBAL const float* a, GLOBAL const float* b, GLOBAL const float* c, GLOBAL float* out) {
    int i = BLOCK_X * THREADS + THREAD;
    out[i] = FMA(a[i], b[i], c[i]);
}

KERNEL bits(GLOBAL float* values, GLOBAL uint* words) {
    int i = BLOCK_X * THREADS + THREAD;
    words[i] = FLOAT_TO_BITS(values[i]);
    values[i] = BITS_TO_FLOAT(words[i] ^ 0x80000000u);
}

KERNEL store(GLOBAL float* out, float alpha, float beta, float added) {
    int i = BLOCK_X * THREADS + THREAD;
    store_scaled(out, i, (float)i, alpha, beta, added);
}

KERNEL spin(GLOBAL float* out, int times) {
    float value = (float)THREAD;
    for (int i = 0; i < times; ++i) value = FMA(value, 0.999f, 1.0f);
    out[BLOCK_X * THREADS + THREAD] = value;
}
"""
THREADS = 64

quick = settings(
    max_examples=20,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def device(executor: Executor) -> Device:
    return executor.device


@cache
def _binary(device: Device) -> bytes:
    source = prelude(device.properties.backend) + KERNELS
    return device.compile(source, (("THREADS", THREADS),))


@cache
def _kernel(device: Device, name: str) -> Kernel:
    return device.load(_binary(device), name)


def _run(device: Device, name: str, blocks: int, *arguments: Any) -> list[npt.NDArray[Any]]:
    """Run a kernel on copies of arrays; give the copies as it left them."""
    buffers = [
        device.upload(argument) if isinstance(argument, np.ndarray) else argument
        for argument in arguments
    ]
    _kernel(device, name).launch((blocks, 1, 1), THREADS, buffers)
    device.synchronize()
    results = []
    for argument, buffer in zip(arguments, buffers, strict=True):
        if isinstance(argument, np.ndarray):
            results.append(np.empty_like(argument))
            device.read(buffer, results[-1])
            buffer.free()
    return results


@pytest.mark.parametrize("size", [1, 3, 4096, 1_000_003])
def test_memory_keeps_what_is_written(device: Device, size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    buffer = device.alloc(size)
    device.write(buffer, data)
    out = np.zeros_like(data)
    device.read(buffer, out)
    buffer.free()
    buffer.free()
    assert (out == data).all()


def test_memory_of_no_bytes(device: Device) -> None:
    buffer = device.upload(np.empty(0, np.float32))
    device.fill(buffer, 1)
    device.read(buffer, np.empty(0, np.float32))
    buffer.free()


def test_parts_are_views(device: Device) -> None:
    whole = device.upload(np.zeros(4 * WORKSPACE_ALIGNMENT, np.uint8))
    part = whole.part(WORKSPACE_ALIGNMENT, 2 * WORKSPACE_ALIGNMENT)
    inner = part.part(WORKSPACE_ALIGNMENT, 5)
    device.fill(part, 7)
    device.write(inner, np.arange(5, dtype=np.uint8))
    expected = np.repeat(np.array([0, 7, 7, 0], np.uint8), WORKSPACE_ALIGNMENT)
    expected[2 * WORKSPACE_ALIGNMENT :][:5] = range(5)
    out = np.empty_like(expected)
    device.read(whole, out)
    assert (out == expected).all()
    inner.free()
    part.free()
    device.read(whole, out)
    assert (out == expected).all()
    whole.free()


def test_a_bound_launch_keeps_parts_that_nobody_else_holds(device: Device) -> None:
    data = np.arange(3 * WORKSPACE_ALIGNMENT, dtype=np.float32)
    whole = device.upload(data)
    add_one = _kernel(device, "scale_and_add").bind(
        (1, 1, 1),
        THREADS,
        [whole.part(WORKSPACE_ALIGNMENT, WORKSPACE_ALIGNMENT), pack(5), pack(1.0), pack(1.0)],
    )
    gc.collect()
    add_one()
    device.synchronize()
    out = np.empty_like(data)
    device.read(whole, out)
    data[WORKSPACE_ALIGNMENT // 4 :][:5] += 1
    assert (out == data).all()
    whole.free()


def test_launches_run_in_order(device: Device) -> None:
    buffer = device.upload(np.arange(1000, dtype=np.float32))
    kernel = _kernel(device, "scale_and_add")
    count = pack(1000)
    # Both are bound before either is launched.
    double = kernel.bind((16, 1, 1), THREADS, [buffer, count, pack(2.0), pack(0.0)])
    count_up = kernel.bind((16, 1, 1), THREADS, [buffer, count, pack(1.0), pack(1.0)])
    for _ in range(5):
        double()
        count_up()
    out = np.empty(1000, np.float32)
    device.read(buffer, out)
    buffer.free()
    assert (out == 32 * np.arange(1000) + 31).all()


def test_blocks_and_threads_have_places(device: Device) -> None:
    blocks = (5, 3, 2)
    buffer = device.upload(np.zeros(30 * THREADS, np.int32))
    _kernel(device, "places").launch(blocks, THREADS, [buffer])
    out = np.empty((2, 3, 5, THREADS), np.int32)
    device.read(buffer, out)
    buffer.free()
    z, y, x, thread = np.indices(out.shape)
    assert (out == ((5 * 10 + z) * 10 + y) * 10000 + x * 1000 + thread).all()


def test_threads_of_a_block_share_memory(device: Device) -> None:
    values = np.arange(10 * THREADS, dtype=np.int32)
    (out,) = _run(device, "reverse", 10, values)
    assert (out == values.reshape(10, -1)[:, ::-1].ravel()).all()


def test_kernels_tell_what_they_take(device: Device) -> None:
    sharing, alone = (_kernel(device, name).facts for name in ("reverse", "fuse"))
    assert (sharing.local_bytes, alone.local_bytes) == (4 * THREADS, 0)
    for facts in (sharing, alone):
        assert facts.spill_bytes is not None
        if device.properties.backend == "opencl":
            assert facts.registers is None
        else:
            assert facts.spill_bytes == 0
            assert facts.registers is not None
            assert 2 <= facts.registers <= 256


def test_a_plan_takes_what_its_largest_kernel_takes(executor: Executor, tmp_path: Path) -> None:
    path = tmp_path / "kernels.cl"
    path.write_text(KERNELS)
    macros = (("THREADS", THREADS),)
    kernels = [KernelSource(str(path), name, macros) for name in ("reverse", "fuse")]
    plan = Plan(tuple(Launch(kernel, (1, 1, 1), ()) for kernel in kernels))
    largest = executor.kernel(kernels[0]).facts
    # Nothing is said as long as one of them isn't there.
    assert executor.facts(plan) == KernelFacts()
    executor.kernel(kernels[1])
    assert executor.facts(plan).local_bytes == largest.local_bytes == 4 * THREADS


def test_takes_structs_numbers_and_null(device: Device) -> None:
    many = struct.pack("<if30iq", 1, 0.5, *range(30), 2**40 + 3)
    (out,) = _run(device, "take", 1, np.zeros(1, np.float32), None, many, struct.pack("<q", 2**40))
    assert out[0] == 1 + 0.5 + 29 + 3


def test_times_are_positive_and_grow_with_work(device: Device) -> None:
    buffer = device.alloc(4 * THREADS)
    kernel = _kernel(device, "spin")
    empty = kernel.bind((1, 1, 1), THREADS, [buffer, pack(0)])
    long = kernel.bind((1, 1, 1), THREADS, [buffer, pack(3_000_000)])
    device.time_ms(long)
    assert device.time_ms(long) > min(device.time_ms(empty) for _ in range(3)) > 0
    buffer.free()


def test_says_when_memory_is_out(device: Device) -> None:
    with pytest.raises(OutOfDeviceMemoryError):
        device.alloc(1 << 50)
    out = np.empty(4, np.uint8)
    device.read(device.upload(np.arange(4, dtype=np.uint8)), out)
    assert (out == range(4)).all()


def test_compile_errors_have_the_log(device: Device) -> None:
    source = prelude(device.properties.backend) + "KERNEL wrong(int a) { no_such_word = a; }"
    with pytest.raises(CompileError, match="no_such_word"):
        device.compile(source, (("THREADS", 64),))


def test_macros_decide(device: Device) -> None:
    text = "KERNEL give(GLOBAL int* out) { if (THREAD == 0) out[0] = GIVEN * 100 + THREADS; }"
    source = prelude(device.properties.backend) + text
    for given_value, threads in ((3, 32), (-4, 64)):
        binary = device.compile(source, (("GIVEN", given_value), ("THREADS", threads)))
        buffer = device.alloc(4)
        device.load(binary, "give").launch((1, 1, 1), threads, [buffer])
        out = np.empty(1, np.int32)
        device.read(buffer, out)
        buffer.free()
        assert out[0] == given_value * 100 + threads


def test_tells_properties(device: Device) -> None:
    properties = device.properties
    assert properties.name
    assert properties.arch
    assert properties.driver
    assert properties.compiler
    assert properties.compute_units >= 1
    assert properties.max_threads >= 64
    assert properties.local_memory >= 16384
    assert properties.memory_bytes > 1 << 28


@pytest.mark.parametrize("name", ["tpu", "cpu:one", ":99", "cpu:99"])
def test_says_what_is_wrong_with_a_name(name: str) -> None:
    with pytest.raises(InputError, match="device: "):
        open_device(name)


def test_every_half_and_bfloat_is_read(device: Device) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    empty = np.zeros(codes.size, np.float32)
    _, from_half, from_bfloat = _run(device, "widen", codes.size // THREADS, codes, empty, empty)
    np.testing.assert_array_equal(from_half, codes.view(np.float16).astype(np.float32))
    exact = (codes.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_array_equal(from_bfloat.view(np.uint32), exact.view(np.uint32))


def _narrow(device: Device, values: npt.NDArray[np.float32]) -> list[npt.NDArray[np.uint16]]:
    empty = np.zeros(values.size, np.uint16)
    blocks = -(-values.size // THREADS)
    return _run(device, "narrow", blocks, values, empty, empty, pack(values.size))[1:]


def test_every_half_and_bfloat_is_written(device: Device) -> None:
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        halves, _ = _narrow(device, codes.view(np.float16).astype(np.float32))
    nan = np.isnan(codes.view(np.float16))
    assert (halves[~nan] == codes[~nan]).all()
    assert np.isnan(halves[nan].view(np.float16)).all()
    values = (codes.astype(np.uint32) << 16).view(np.float32)
    _, bfloats = _narrow(device, values)
    assert (bfloats[~np.isnan(values)] == codes[~np.isnan(values)]).all()
    written = (bfloats.astype(np.uint32) << 16).view(np.float32)
    assert np.isnan(written[np.isnan(values)]).all()


@quick
@given(
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=200),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounds_to_nearest_even(device: Device, values: list[float], seed: int) -> None:
    # Values half way between two halves or bfloats, and next to that, beside the drawn ones.
    ties = np.random.default_rng(seed).integers(0, 1 << 16, 64, dtype=np.uint32) << 16
    near = np.concatenate([ties | low for low in (0x1000, 0xFFF, 0x1001, 0x8000, 0x7FFF, 0x8001)])
    all_values = np.concatenate(
        [np.array(values, np.float32), near.astype(np.uint32).view(np.float32)]
    )
    all_values = all_values[~np.isnan(all_values)]
    halves, bfloats = _narrow(device, all_values)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(halves, to_bits(all_values, "FP16"))
    np.testing.assert_array_equal(bfloats, to_bits(all_values, "BF16"))


def test_atomic_additions_all_count(device: Device) -> None:
    (total,) = _run(device, "add_to_one", 500, np.array([1000], np.float32), pack(1.0))
    assert total[0] == 1000 + 500 * THREADS


@quick
@given(
    numbers=st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=100),
    divisor=st.one_of(st.integers(1, 2**31 - 1), st.integers(1, 300)),
)
def test_divides_exactly(device: Device, numbers: list[int], divisor: int) -> None:
    edges = [n for n in (0, divisor - 1, divisor, 2**31 - 1, 2**31 - 1 - divisor) if n >= 0]
    exact = np.array(numbers + edges, np.int32)
    _, quotients = _run(
        *(device, "divide_all", -(-exact.size // THREADS)),
        *(exact, np.zeros_like(exact), pack(exact.size), pack(*fast_divisor(divisor))),
    )
    np.testing.assert_array_equal(quotients, exact // divisor)


@quick
@given(pairs=st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)), min_size=1))
def test_multiplies_high(device: Device, pairs: list[tuple[int, int]]) -> None:
    a, b = (np.array(side, np.uint32) for side in zip(*pairs, strict=True))
    out = _run(
        *(device, "multiply_high", -(-a.size // THREADS)),
        *(a, b, np.zeros_like(a), pack(a.size)),
    )[2]
    assert out.tolist() == [x * y >> 32 for x, y in pairs]


def test_fma_rounds_once(device: Device) -> None:
    generator = np.random.default_rng(0)
    a, b = generator.standard_normal((2, 10 * THREADS)).astype(np.float32)
    c = -(a * b)
    out = _run(device, "fuse", 10, a, b, c, np.zeros_like(a))[3]
    # Products of floats are exact in double, and so is what the rounding lost.
    exact = a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
    np.testing.assert_array_equal(out, exact.astype(np.float32))


def test_floats_and_bits_change_places(device: Device) -> None:
    values = np.random.default_rng(1).standard_normal(THREADS).astype(np.float32)
    negated, words = _run(device, "bits", 1, values, np.zeros(THREADS, np.uint32))
    np.testing.assert_array_equal(words, values.view(np.uint32))
    np.testing.assert_array_equal(negated, -values)


def test_old_content_is_read_only_for_beta(device: Device) -> None:
    numbers = np.arange(THREADS, dtype=np.float32)
    absent = np.full(THREADS, np.nan, np.float32)
    (out,) = _run(device, "store", 1, absent, pack(2.0), pack(0.0), pack(1.0))
    np.testing.assert_array_equal(out, 2 * numbers + 1)
    (out,) = _run(device, "store", 1, numbers, pack(2.0), pack(-1.0), pack(1.0))
    np.testing.assert_array_equal(out, numbers + 1)
