"""Features of the candidates of a convolution, without building or planning any of them.

Three parts stand beside each other in a row: the problem (`foretune.predictor.features.conv`), the
candidate's own numbers (its solver and the encoded values of its tunables), and what both together
say about the launch: blocks, waves over the device, idle work at the edges, bytes that blocks load.
The same code serves training and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil, log
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.devices import DeviceFacts
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.features.conv import FEATURE_NAMES as CONV_NAMES
from foretune.predictor.features.conv import RAW_NAMES, features_of_raw, raw_numbers

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.float32]

#: Raise when a feature's meaning changes; bundles of another version are refused.
CANDIDATE_FEATURE_VERSION = 1

#: Features of the problem that candidates are judged with.
PROBLEM_FEATURES = (
    "is_3d dtype channels_last batch in_channels_group out_channels_group groups in_px out_px taps "
    "fil_h fil_w stride_h dil_h pad_h gemm_m gemm_n gemm_k gemm_mn gemm_mk gemm_nk log_flops "
    "log_traffic intensity im2col_growth w_share x_share x_per_y roofline math_per_memory "
    "align_cg align_kg align_out_px align_in_px align_gemm_k align_out_w waves_128x128 "
    "wave_fill_128x128 waves_64x64 depth_per_wave winograd_fill_2 is_1x1 is_3x3 unit_stride "
    "depthwise padded_share"
).split()
_PROBLEM_AT = np.array([CONV_NAMES.index(name) for name in PROBLEM_FEATURES])
_LOG_FLOPS = PROBLEM_FEATURES.index("log_flops")
_LOG_TRAFFIC = PROBLEM_FEATURES.index("log_traffic")
#: Where the binary logarithm of the roofline time in seconds stands.
ROOFLINE_AT = PROBLEM_FEATURES.index("roofline")
_RAW = {name: place for place, name in enumerate(RAW_NAMES)}

#: Features of the device, for models of several.
DEVICE_FEATURES = ("units", "wave_size", "local_memory", "l2_bytes", "peak_flops", "bandwidth_gbs")

#: Tunables of all solvers; a candidate without one has `ABSENT` there.
TUNABLES = (
    "MATRIX TILE_M TILE_N TILE_K TILE_H TILE_W WAVES_M WAVES_N STAGES BAND SPLIT_K THREAD_M "
    "THREAD_N PASSES PAD UNROLL_K VECTOR ATOMIC M_FIRST IMAGES TRANSFORM PIXELS PER_K CHANNELS "
    "ROWS COLUMNS THREADS TAPS PARTS"
).split()
ABSENT = -1.0

#: What problem and candidate say together.
LAUNCH_FEATURES = (
    "blocks waves wave_fill fill_m fill_n steps block_work waste loaded reload threads_per_unit "
    "split_bytes math_ns memory_ns estimate_ns outputs_per_thread resident resident_waves "
    "resident_fill"
).split()

#: Threads and blocks that a compute unit holds at most, near enough for all GPUs.
_UNIT_THREADS, _UNIT_BLOCKS = 2048.0, 32.0

DIRECTION_CODES = {"F": 0, "B": 1, "W": 2}


@dataclass(frozen=True)
class CandidateDevice(DeviceFacts):
    """A device as features see it, whatever its driver leaves unsaid.

    Parameters
    ----------
    properties : DeviceProperties
        Of the device.
    """

    properties: DeviceProperties

    def peak_flops(self, element_bytes: int) -> float:
        """Rate in operations per second of units that are all alike: a scale, not a promise."""
        per_clock = 256 if element_bytes >= 4 else 2048
        return per_clock * self.compute_units * self.clock_mhz * 1e6


@lru_cache(maxsize=64)
def candidate_device(properties: DeviceProperties) -> CandidateDevice:
    """Describe a device for features; what its driver doesn't say is estimated from its units.

    Examples
    --------
    >>> candidate_device(DeviceProperties("opencl", "a processor", "cpu", 4, 1, 65536, 1024))\
.bandwidth_gbs
    40.0
    """
    is_gpu = properties.wave_size > 1
    return CandidateDevice(
        properties.arch,
        properties.name,
        properties.compute_units,
        properties.clock_mhz or (1500 if is_gpu else 3000),
        properties.bandwidth_gbs or (1000.0 if is_gpu else 10.0 * properties.compute_units),
        properties,
    )


class Extents(NamedTuple):
    """A problem as a solver sees it: `parts` products of m x n outputs, k deep."""

    m: float
    n: float
    k: float
    parts: float


class BlockShape(NamedTuple):
    """What a candidate's block computes: m x n outputs, in steps of k, by so many threads.

    `local` is the local memory that its tiles take, in bytes.
    """

    m: float
    n: float
    k: float
    split: float
    threads: float
    local: float = 0


_Config = Mapping[str, int]
#: Numbers of the problem in the order of `RAW_NAMES`, and the direction.
_Numbers = Sequence[float]


def _gemm(raw: _Numbers, direction: str) -> Extents:
    (
        _is_3d, _dtype, _bytes, _last, n, c, k, g,
        in_d, in_h, in_w, out_d, out_h, out_w, fil_d, fil_h, fil_w,
        _pad_d, _pad_h, _pad_w, stride_d, stride_h, stride_w, *_,
    ) = raw  # fmt: skip
    taps, out_px = fil_d * fil_h * fil_w, out_d * out_h * out_w
    if direction == "F":
        return Extents(k / g, n * out_px, c / g * taps, g)
    if direction == "W":
        return Extents(k / g, c / g * taps, n * out_px, g)
    # Places of x fall into classes by the taps that reach them.
    classes = stride_d * stride_h * stride_w
    deep = ceil(fil_d / stride_d) * ceil(fil_h / stride_h) * ceil(fil_w / stride_w)
    pixels = ceil(in_d / stride_d) * ceil(in_h / stride_h) * ceil(in_w / stride_w)
    return Extents(c / g, n * pixels, k / g * deep, g * classes)


def _pixels_first(raw: _Numbers, direction: str) -> Extents:
    extents = _gemm(raw, direction)
    if direction == "W":
        return extents
    return Extents(extents.n, extents.m, extents.k, extents.parts)


def _winograd(out: int, raw: _Numbers, direction: str) -> Extents:
    n, c, k, g = raw[4:8]
    height, width = raw[12:14] if direction == "F" else raw[9:11]
    tiles = n * ceil(height / out) * ceil(width / out)
    target, source = (k / g, c / g) if direction == "F" else (c / g, k / g)
    rows, columns = (tiles, target) if raw[_RAW["channels_last"]] else (target, tiles)
    return Extents(rows, columns, source, (out + 2) ** 2 * g)


def _fourier(raw: _Numbers, direction: str) -> Extents:
    n, c, k, g = raw[4:8]
    height, width = raw[12:14] if direction == "F" else raw[9:11]
    reach = max((raw[15] - 1) * raw[24], (raw[16] - 1) * raw[25])
    size = 16 if 2 * reach <= 16 else 32
    out = max(1, size - reach)
    tiles = n * ceil(height / out) * ceil(width / out)
    target, source = (k / g, c / g) if direction == "F" else (c / g, k / g)
    return Extents(2 * target, tiles, 2 * source, size * (size // 2 + 1) * g)


def _images(raw: _Numbers, direction: str) -> Extents:
    extents = _gemm(raw, direction)
    return Extents(extents.m, extents.n / raw[4], extents.k, extents.parts * raw[4])


def _channels(raw: _Numbers, direction: str) -> Extents:
    n, c, k, _ = raw[4:8]
    taps = raw[14] * raw[15] * raw[16]
    out_px, in_px = raw[11] * raw[12] * raw[13], raw[8] * raw[9] * raw[10]
    if direction == "W":
        return Extents(k, taps, n * out_px, 1)
    return Extents(k, n * out_px, taps, 1) if direction == "F" else Extents(c, n * in_px, taps, 1)


def _tiled(config: _Config) -> BlockShape:
    m, n, k = config["TILE_M"], config["TILE_N"], config["TILE_K"]
    threads = m // config.get("THREAD_M", m) * (n // config["THREAD_N"])
    local = 4 * config.get("STAGES", 1) * k * (m + n)
    return BlockShape(m, n, k, config["SPLIT_K"], threads, local)


def _matrix_cores(config: _Config) -> BlockShape:
    m, n, k = config["TILE_M"], config["TILE_N"], config["TILE_K"]
    wave = 128 if config["MATRIX"] == 64 else config["WAVE"]
    threads = config["WAVES_M"] * config["WAVES_N"] * wave
    return BlockShape(m, n, k, config["SPLIT_K"], threads, 2 * config["STAGES"] * k * (m + n))


def _direct(config: _Config) -> BlockShape:
    pixels = config["TILE_H"] * config["TILE_W"]
    threads = pixels // config["PIXELS"] * (config["TILE_K"] // config["PER_K"])
    return BlockShape(config["TILE_K"], pixels, config["CHANNELS"], 1, threads)


def _depthwise(config: _Config) -> BlockShape:
    threads = config["THREADS"]
    if "PARTS" in config:
        return BlockShape(config["CHANNELS"], config["TAPS"], 1, config["PARTS"], threads)
    pixels = config["ROWS"] * config["COLUMNS"] * threads
    return BlockShape(config["VECTOR"], pixels, 1, 1, threads)


def _outputs(config: _Config) -> BlockShape:
    return BlockShape(1, config.get("THREADS", 64), 1, 1, config.get("THREADS", 64))


@dataclass(frozen=True)
class _View:
    """How a solver sees problems and configs."""

    extents: Callable[[_Numbers, str], Extents]
    block: Callable[[_Config], BlockShape]


_VIEWS = {
    "Conv1x1Gemm": _View(_gemm, _tiled),
    "ConvDepthwise": _View(_channels, _depthwise),
    "ConvDirect": _View(_images, _direct),
    "ConvFFT": _View(_fourier, _tiled),
    "ConvIm2colGemm": _View(_gemm, _tiled),
    "ConvImplicitGemm": _View(_gemm, _tiled),
    "ConvMatrixCoreGemm": _View(_pixels_first, _matrix_cores),
    "ConvWinograd2x2": _View(partial(_winograd, 2), _tiled),
    "ConvWinograd4x4": _View(partial(_winograd, 4), _tiled),
}
#: A solver that nothing is known of: a thread for each output.
_PLAIN = _View(_gemm, _outputs)


class CandidateTable:
    """What can be said of candidates before the problem is known.

    Parameters
    ----------
    solvers : sequence of str
        Ids; a candidate's solver is its place here, which learning sees.
    candidates : sequence of (int, mapping)
        Place of the solver, and the config.
    """

    def __init__(
        self, solvers: Sequence[str], candidates: Sequence[tuple[int, Mapping[str, int]]]
    ) -> None:
        self.solvers = tuple(solvers)
        self._views = [_VIEWS.get(solver, _PLAIN) for solver in solvers]
        self.solver = np.array([place for place, _ in candidates], np.intp)
        self.own: Rows = np.full((len(candidates), 1 + len(TUNABLES)), ABSENT, np.float32)
        self.own[:, 0] = self.solver
        column = {name: 1 + place for place, name in enumerate(TUNABLES)}
        blocks = []
        for row, (place, config) in enumerate(candidates):
            for name, value in config.items():
                if name in column:
                    self.own[row, column[name]] = value
            blocks.append(self._views[place].block(config))
        self._blocks: Floats = np.array(blocks, np.float64).reshape(-1, len(BlockShape._fields)).T

    def __len__(self) -> int:
        return len(self.solver)

    def rows(self, view: ProblemView, chosen: npt.NDArray[np.intp] | None = None) -> Rows:
        """Features of candidates for a problem, shape (candidates, features).

        Parameters
        ----------
        view : ProblemView
        chosen : array of int, optional
            Candidates. Default: all.
        """
        own, blocks, solver = self.own, self._blocks, self.solver
        if chosen is not None:
            own, blocks, solver = own[chosen], blocks[:, chosen], solver[chosen]
        width, own_width = view.row.size, own.shape[1]
        rows: Rows = np.empty((len(own), width + own_width + len(LAUNCH_FEATURES)), np.float32)
        rows[:, :width] = view.row
        rows[:, width : width + own_width] = own
        self._launch(view, solver, blocks, rows[:, width + own_width :].T)
        return rows

    def _launch(
        self, view: ProblemView, solver: npt.NDArray[np.intp], blocks: Floats, out: Rows
    ) -> None:
        extents = [of.extents(view.raw, view.direction) for of in self._views]
        m, n, k, parts = np.array(extents, np.float64)[solver].T
        tile_m, tile_n, tile_k, split, threads, local = blocks
        units, element = view.device.compute_units, view.raw[_RAW["element_bytes"]]
        rows, columns = np.ceil(m / tile_m), np.ceil(n / tile_n)
        count = rows * columns * parts * split
        waves = count / units
        whole_waves = np.ceil(waves)
        steps = np.ceil(k / (tile_k * split))
        depth = steps * tile_k
        work = tile_m * tile_n * depth
        loaded = (tile_m + tile_n) * depth * count * element
        split_bytes = np.where(split > 1, 4 * split * m * n * parts, 0.0)
        out[0] = count
        out[1] = waves
        out[2] = waves / whole_waves
        out[3] = m / (rows * tile_m)
        out[4] = n / (columns * tile_n)
        out[5] = steps
        out[6] = work
        out[7] = 2 * count * work / view.flops
        out[8] = loaded
        out[9] = loaded / view.traffic
        out[10] = count * threads / units
        out[11] = split_bytes
        out[12] = 2e9 * work * whole_waves * units / view.peak
        out[13] = 1e9 * (view.traffic + 2 * split_bytes) / view.bandwidth
        np.maximum(out[12], out[13], out=out[14])
        # Blocks that a unit has room for at a time.
        resident = np.minimum(_UNIT_THREADS / threads, view.local_memory / np.maximum(local, 1.0))
        resident = np.clip(np.floor(resident), 1.0, _UNIT_BLOCKS)
        rounds = waves / resident
        out[15] = tile_m * tile_n / threads
        out[16] = resident
        out[17] = rounds
        out[18] = rounds / np.ceil(rounds)


class ProblemView:
    """What is computed of a problem once for all its candidates.

    Parameters
    ----------
    problem : ConvProblem
    properties : DeviceProperties
    with_device : bool, default False
        Whether features of the device are among those of the problem.

    Attributes
    ----------
    row : array
        Features of the problem.

    Examples
    --------
    >>> device = DeviceProperties("cuda", "NVIDIA H200", "sm_90", 132, 32, 49152, 1024, 1980, 4814.)
    >>> view = ProblemView(ConvProblem("F", 8, 64, (56, 56), 64, (3, 3), padding=(1, 1)), device)
    >>> table = CandidateTable(["ConvNaive"], [(0, {"THREADS": 64}), (0, {"THREADS": 128})])
    >>> table.rows(view).shape == (2, len(feature_names()))
    True
    """

    def __init__(
        self, problem: ConvProblem, properties: DeviceProperties, *, with_device: bool = False
    ) -> None:
        self.device = candidate_device(properties)
        self.direction = problem.direction
        self.raw = raw_numbers(problem)
        everything = features_of_raw(self.raw, problem.direction, self.device)
        self.direction_code = DIRECTION_CODES[problem.direction]
        of_device = _device_features(self.device) if with_device else ()
        self.row: Rows = np.array(
            (*everything[_PROBLEM_AT].tolist(), self.direction_code, *of_device), np.float32
        )
        self.flops = 2.0 ** float(self.row[_LOG_FLOPS])
        self.traffic = 2.0 ** float(self.row[_LOG_TRAFFIC])
        self.peak = self.device.peak_flops(int(self.raw[_RAW["element_bytes"]]))
        self.bandwidth = self.device.bandwidth_gbs * 1e9
        self.local_memory = max(properties.local_memory, properties.dynamic_local_memory)

    @property
    def log_roofline(self) -> float:
        """Natural logarithm of the roofline time in milliseconds."""
        return float(self.row[ROOFLINE_AT]) * log(2) + log(1e3)


def _device_features(device: CandidateDevice) -> tuple[float, ...]:
    properties = device.properties
    return (
        *(properties.compute_units, properties.wave_size, properties.local_memory),
        *(float(properties.l2_bytes), device.peak_flops(4), device.bandwidth_gbs),
    )


def problem_feature_names(*, with_device: bool = False) -> tuple[str, ...]:
    """Names of the features in the row of a `ProblemView`."""
    return (*PROBLEM_FEATURES, "direction", *(DEVICE_FEATURES if with_device else ()))


def feature_names(*, with_device: bool = False) -> tuple[str, ...]:
    """Names of the features in a row of `CandidateTable.rows`.

    Examples
    --------
    >>> feature_names()[-1]
    'resident_fill'
    """
    return (
        *problem_feature_names(with_device=with_device),
        "solver",
        *TUNABLES,
        *LAUNCH_FEATURES,
    )


def parse_config(text: str) -> dict[str, int]:
    """Read a config's text form, whatever its space.

    Examples
    --------
    >>> parse_config("TILE=64,UNROLL=4")
    {'TILE': 64, 'UNROLL': 4}
    """
    pairs = (part.partition("=") for part in filter(None, text.split(",")))
    return {name: int(value) for name, _, value in pairs}
