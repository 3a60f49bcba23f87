"""Features of a convolution for a tree model.

The same arithmetic serves training, on columns, and a single answer, on plain floats: it is
written once against a handful of functions (:class:`Columns`, :class:`Scalars`) that exist for
both. Sizes go in as they are (trees don't mind scale); what a tree can't easily build from them
goes in ready-made: the implicit-GEMM shape of the direction, tile and wave quantisation,
alignment, bytes, arithmetic intensity, a roofline time.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import ceil, log2
from typing import Any

import numpy as np
import numpy.typing as npt

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.kernels.problem import DTYPE_BYTES

#: Raise when a feature's meaning changes; bundles of another version are refused.
FEATURE_VERSION = 1

#: Numbers that describe a problem fully (apart from direction), in order.
RAW_NAMES = (
    "is_3d dtype element_bytes channels_last batch in_channels out_channels groups "
    "in_d in_h in_w out_d out_h out_w fil_d fil_h fil_w "
    "pad_d pad_h pad_w stride_d stride_h stride_w dil_d dil_h dil_w"
).split()

DTYPE_CODES = {"FP32": 0, "FP16": 1, "BF16": 2, "INT8": 3}
LAYOUT_CODES = {"NCHW": 0, "NCDHW": 0, "NHWC": 1, "NDHWC": 1}

_Numbers = tuple[int, ...]
# What stands for depth in the raw numbers: is_3d, then sizes and steps, then padding.
_FLAT: tuple[_Numbers, _Numbers, _Numbers] = ((0,), (1,), (0,))
_DEEP: tuple[_Numbers, _Numbers, _Numbers] = ((1,), (), ())

# Names are put together once: that takes as long as the arithmetic.
_GEMM_TILES = tuple(
    (rows, cols, f"waves_{rows}x{cols}", f"wave_fill_{rows}x{cols}")
    for rows, cols in ((256, 128), (128, 128), (128, 64), (64, 64), (32, 32))
)
_TILE_SIZES = tuple((size, f"tile_m_{size}", f"tile_n_{size}") for size in (16, 32, 64, 128, 256))
_WINOGRAD_SIZES = tuple(
    (size, f"winograd_fill_{size}", f"winograd_waves_{size}") for size in (2, 3)
)


class Scalars:
    """The functions that features are written with, for one problem."""

    log2 = staticmethod(log2)
    ceil = staticmethod(ceil)
    maximum = staticmethod(max)
    minimum = staticmethod(min)

    @staticmethod
    def alignment(value: float) -> float:
        """Largest power of two, at most 128, that divides the value."""
        whole = int(value)
        return (whole & -whole & 127) or 128


class Columns:
    """The functions that features are written with, for columns of problems."""

    log2 = staticmethod(np.log2)
    ceil = staticmethod(np.ceil)
    maximum = staticmethod(np.maximum)
    minimum = staticmethod(np.minimum)

    @staticmethod
    def alignment(value: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Largest power of two, at most 128, that divides each value."""
        whole = value.astype(np.int64)
        lowest = np.minimum(whole & -whole, 128)
        return np.where(lowest == 0, 128, lowest).astype(np.float64)


def raw_numbers(problem: ConvProblem) -> list[float]:
    """Numbers of a problem in the order of `RAW_NAMES`; 2-D is a 3-D problem of depth 1."""
    p = problem
    if len(p.in_size) == 2:
        head, lead, zero = _FLAT
    else:
        head, lead, zero = _DEEP
    return [
        *head,
        DTYPE_CODES[p.dtype],
        DTYPE_BYTES[p.dtype],
        LAYOUT_CODES[p.layout],
        p.batch,
        p.in_channels,
        p.out_channels,
        p.groups,
        *lead,
        *p.in_size,
        *lead,
        *p.out_size,
        *lead,
        *p.filter_size,
        *zero,
        *p.padding,
        *lead,
        *p.stride,
        *lead,
        *p.dilation,
    ]


def why_unsupported(problem: ConvProblem) -> str:
    """Say why a problem has no features; empty if it has.

    Examples
    --------
    >>> why_unsupported(ConvProblem("F", 1, 8, (8, 8), 8, (1, 1), dtype="FP64"))
    'no data for type FP64'
    """
    p = problem
    if p.dtype not in DTYPE_CODES:
        return f"no data for type {p.dtype}"
    if not p.dtype == p.weight_dtype == p.out_dtype:
        return "no data for tensors of unlike types"
    if p.layout not in LAYOUT_CODES:
        return f"no data for layout {p.layout}"
    if not p.layout == p.weight_layout == p.out_layout:
        return "no data for tensors of unlike layouts"
    if p.cast or p.weight_cast or p.out_cast:
        return "no data for casts"
    return "no data for a bias" if p.bias else ""


def _features(raw: Sequence[Any], direction: str, device: DeviceFacts, m: Any) -> dict[str, Any]:
    """Name -> value for one problem (`m` = Scalars) or for columns (`m` = Columns)."""
    (
        _is_3d, _dtype, b, _channels_last, n, c, k, g,
        in_d, in_h, in_w, out_d, out_h, out_w, fil_d, fil_h, fil_w,
        pad_d, pad_h, pad_w, stride_d, stride_h, stride_w, dil_d, dil_h, dil_w,
    ) = raw  # fmt: skip
    log, ceil, alignment = m.log2, m.ceil, m.alignment
    cg, kg = c / g, k / g
    in_px, out_px, taps = in_d * in_h * in_w, out_d * out_h * out_w, fil_d * fil_h * fil_w
    step = stride_d * stride_h * stride_w
    f = dict(zip(RAW_NAMES, raw, strict=True))
    f["in_channels_group"], f["out_channels_group"] = cg, kg
    f["in_px"], f["out_px"], f["taps"] = in_px, out_px, taps

    # Implicit GEMM: rows x columns x depth as solvers map the direction.
    if direction == "F":
        gm, gn, gk = kg, n * out_px, cg * taps
    elif direction == "B":
        gm, gn, gk = cg, n * in_px, kg * taps / m.minimum(step, taps)
    else:
        gm, gn, gk = kg, cg * taps, n * out_px
    f["gemm_m"], f["gemm_n"], f["gemm_k"] = gm, gn, gk
    lm, ln, lk = log(gm), log(gn), log(gk)
    f["gemm_mn"], f["gemm_mk"], f["gemm_nk"] = lm - ln, lm - lk, ln - lk
    f["gemm_mn_area"] = lm + ln

    x_bytes, w_bytes, y_bytes = n * c * in_px * b, k * cg * taps * b, n * k * out_px * b
    flops = 2.0 * n * k * out_px * cg * taps
    traffic = x_bytes + w_bytes + y_bytes
    f["x_bytes"], f["w_bytes"], f["y_bytes"] = x_bytes, w_bytes, y_bytes
    l_flops, l_traffic = log(flops), log(traffic)
    f["log_flops"], f["log_traffic"] = l_flops, l_traffic
    f["intensity"] = l_flops - l_traffic
    im2col = cg * g * taps * out_px * b
    f["im2col_bytes"] = im2col
    f["im2col_growth"] = im2col * n / traffic
    f["w_share"], f["x_share"] = w_bytes / traffic, x_bytes / traffic
    f["x_per_y"] = x_bytes / y_bytes
    seconds_math = flops / _peak(device, b, m)
    seconds_memory = traffic / (device.bandwidth_gbs * 1e9)
    f["roofline"] = log(m.maximum(m.maximum(seconds_math, seconds_memory), 1e-9))
    f["math_per_memory"] = log(seconds_math / seconds_memory)
    f["flops_per_unit"] = l_flops - log2(device.compute_units)

    f["align_c"], f["align_k"] = alignment(c), alignment(k)
    f["align_cg"], f["align_kg"], f["align_n"] = alignment(cg), alignment(kg), alignment(n)
    f["align_out_px"], f["align_in_px"] = alignment(out_px), alignment(in_px)
    f["align_gemm_n"], f["align_gemm_k"] = alignment(gn), alignment(gk)
    f["align_in_w"], f["align_out_w"] = alignment(in_w), alignment(out_w)
    f["align_in_h"], f["align_out_h"] = alignment(in_h), alignment(out_h)

    for size, of_m, of_n in _TILE_SIZES:
        f[of_m] = gm / (ceil(gm / size) * size)
        f[of_n] = gn / (ceil(gn / size) * size)
    f["tile_k_16"] = gk / (ceil(gk / 16) * 16)
    f["tile_k_64"] = gk / (ceil(gk / 64) * 64)
    units = float(device.compute_units)
    for rows, cols, name, fill_name in _GEMM_TILES:
        waves = ceil(gm / rows) * ceil(gn / cols) * g / units
        f[name] = waves
        f[fill_name] = waves / ceil(waves)
    f["depth_per_wave"] = lk - log(ceil(gm / 128) * ceil(gn / 128) * g / units)
    # GEMM solvers in NCHW run once for each image and group.
    f["image_waves"] = ceil(gm / 64) * ceil((in_px if direction == "B" else out_px) / 64) / units

    # Winograd tiles cover the plane that is written: y, for B x, for W the filter.
    if direction == "F":
        plane = out_h, out_w
    elif direction == "B":
        plane = in_h, in_w
    else:
        plane = fil_h, fil_w
    for size, fill_name, name in _WINOGRAD_SIZES:
        tiles = ceil(plane[0] / size) * ceil(plane[1] / size)
        f[fill_name] = plane[0] * plane[1] / (tiles * size * size)
        f[name] = n * g * tiles * ceil(gm / 32) / (32 * units)
    f["winograd_filter_fill"] = fil_h * fil_w / (ceil(fil_h / 3) * ceil(fil_w / 3) * 9)

    f["is_1x1"] = (taps == 1) * 1.0
    f["is_3x3"] = ((fil_h == 3) & (fil_w == 3)) * 1.0
    f["unit_stride"] = (step == 1) * 1.0
    f["no_padding"] = (pad_d + pad_h + pad_w == 0) * 1.0
    f["unit_dilation"] = (dil_d * dil_h * dil_w == 1) * 1.0
    f["depthwise"] = ((g == c) & (g > 1)) * 1.0
    f["same_size"] = (in_px == out_px) * 1.0
    f["square_filter"] = (fil_h == fil_w) * 1.0
    f["log_w_bytes"], f["log_x_bytes"] = log(w_bytes), log(x_bytes)
    f["c_per_k"] = cg / kg
    f["px_per_channel"] = out_px / k
    f["left_over_h"] = (in_h + 2 * pad_h - dil_h * (fil_h - 1) - 1) % stride_h
    f["padded_share"] = (in_h * in_w) / ((in_h + 2 * pad_h) * (in_w + 2 * pad_w))
    f["compute_units"] = raw[0] * 0.0 + units
    return f


def _peak(device: DeviceFacts, element_bytes: Any, m: Any) -> Any:
    if m is Scalars:
        return device.peak_flops(int(element_bytes))
    peaks = np.ones(9)
    for size in (1, 2, 4, 8):
        peaks[size] = device.peak_flops(size)
    return peaks[element_bytes.astype(np.int64)]


def feature_row(problem: ConvProblem, device: DeviceFacts) -> npt.NDArray[np.float32]:
    """Features of one problem, shape (features,), in the order of `FEATURE_NAMES`.

    Examples
    --------
    >>> from foretune.kernels.devices import device_facts
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (3, 3), padding=(1, 1))
    >>> row = feature_row(problem, device_facts("gfx942"))
    >>> float(row[FEATURE_NAMES.index("gemm_k")])
    576.0
    """
    return features_of_raw(raw_numbers(problem), problem.direction, device)


def features_of_raw(
    raw: list[float], direction: str, device: DeviceFacts
) -> npt.NDArray[np.float32]:
    """Features of one problem from its raw numbers, shape (features,)."""
    values = _features(raw, direction, device, Scalars).values()
    # Sizes that no device holds come out as infinite, which is outside whatever was learnt. An
    # `array` takes numbers in half of the time that numpy does, and says nothing of those.
    return np.frombuffer(array("f", values), np.float32)


def feature_matrix(
    problems: Iterable[ConvProblem], direction: str, device: DeviceFacts
) -> npt.NDArray[np.float32]:
    """Features of many problems of one direction, shape (problems, features)."""
    raw = np.array([raw_numbers(problem) for problem in problems], dtype=np.float64)
    return raw_features(raw.reshape(-1, len(RAW_NAMES)), direction, device)


def raw_features(
    raw: npt.NDArray[np.float64], direction: str, device: DeviceFacts
) -> npt.NDArray[np.float32]:
    """Features from raw numbers of shape (problems, `RAW_NAMES`)."""
    columns = _features([raw[:, i] for i in range(raw.shape[1])], direction, device, Columns)
    return np.stack([np.asarray(column, np.float32) for column in columns.values()], axis=1)


FEATURE_NAMES: tuple[str, ...] = tuple(
    _features(
        raw_numbers(ConvProblem("F", 1, 1, (1, 1), 1, (1, 1))),
        "F",
        DeviceFacts("gfx90a", "", 104, 1700, 1638.4),
        Scalars,
    )
)

#: Where the binary logarithm of the roofline time in seconds stands.
ROOFLINE_AT = FEATURE_NAMES.index("roofline")
