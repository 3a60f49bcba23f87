"""Workspace of MIOpen's solvers in bytes, by exact formula.

Every formula here agrees with every item of the find-dbs that AMD ships in the current format
(MI100, MI210, MI250X, MI300X); `tests/miopen/test_workspace.py` proves it over the whole files.
The three MLIR solvers without xdlops, `ConvAsmImplicitGemmV4R1Dynamic*` and
`ConvCkIgemmFwdV6r1DlopsNchw` occur only on gfx906; theirs are proved on its legacy file, with
which all the other formulas agree too.

In the formulas b is the bytes of one element, C, K and N channels and images, G groups, and a
size in brackets such as [OH, OW] stands for all spatial dimensions. The problem is the physical
one, so x has C channels and y has K in all three directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from types import MappingProxyType

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import DTYPE_BYTES

#: A formula: (problem, arch) -> bytes.
Formula = Callable[[ConvProblem, str], int]

_HALF = frozenset({"FP16", "BF16"})
_CHANNELS_LAST = frozenset({"NHWC", "NDHWC"})

# On these archs the fp32 copy counts its bytes, on MI300X it is rounded up. It is likely that the
# release which recorded the database makes the difference, so archs newer than those round up.
_UNALIGNED_COPY = ("gfx908", "gfx90a")

# GEMM tiles (M, N, K) of rocMLIR's backward-weights kernel. Where one of them divides the GEMM,
# no padding is needed, the kernel adds atomically, and half types do so in an fp32 filter. The
# larger tiles in its list are multiples of these.
_MLIR_TILES = ((32, 64, 4), (8, 64, 8), (4, 64, 16), (16, 16, 16))

_FFT_PADDING = 64
# Side of the transform for an image of that size; 32 otherwise.
_FFT_SIDES: Mapping[tuple[int, ...], int] = MappingProxyType({(7, 7): 12, (14, 14): 18})


def workspace_bytes(solver: str, problem: ConvProblem, arch: str) -> int | None:
    """Bytes of workspace that a solver needs for a problem that it can compute.

    Parameters
    ----------
    solver : str
        MIOpen's solver id.
    problem : ConvProblem
        A problem to which the solver applies; for others the number means nothing.
    arch : str
        Such as "gfx90a", or as devices report it: "gfx90a:sramecc+:xnack-".

    Returns
    -------
    int or None
        None if no formula is proven for the solver. Solvers go by the ids of the shipped
        databases (`foretune.miopen.solvers.table_name`).

    Examples
    --------
    >>> problem = ConvProblem("F", 1, 64, (56, 56), 64, (3, 3), padding=(1, 1))
    >>> workspace_bytes("GemmFwdRest", problem, "gfx942")
    7225344
    >>> workspace_bytes("SolverOfTheFuture", problem, "gfx942") is None
    True
    """
    formula = FORMULAS.get(solver)
    return None if formula is None else formula(problem, arch)


def _none(_problem: ConvProblem, _arch: str) -> int:
    return 0


def _ck_dlops(_problem: ConvProblem, _arch: str) -> int:
    """Count one page, for descriptors that a kernel prepares."""
    return 4096


def _gemm_columns(problem: ConvProblem, _arch: str) -> int:
    """Im2col matrix of one image, all groups: C * [Y, X] * [OH, OW] * b."""
    return (
        problem.in_channels
        * prod(problem.filter_size)
        * prod(problem.out_size)
        * DTYPE_BYTES[problem.dtype]
    )


def _gemm_transposes(problem: ConvProblem, _arch: str) -> int:
    """Both image tensors transposed, x sampled at the stride: N * (C + K) * [OH, OW] * b."""
    return (
        problem.batch
        * (problem.in_channels + problem.out_channels)
        * prod(problem.out_size)
        * DTYPE_BYTES[problem.dtype]
    )


def _sampled_input(problem: ConvProblem, _arch: str) -> int:
    """Copy x at the stride, N * C * [OH, OW] * b, unless the stride is 1."""
    if max(problem.stride) == 1:
        return 0
    return problem.batch * problem.in_channels * prod(problem.out_size) * DTYPE_BYTES[problem.dtype]


def _ocl_wrw_1x1(problem: ConvProblem, arch: str) -> int:
    """As `_sampled_input`, where the kernel works in two passes."""
    two_passes = problem.batch >= 16 or 2 * problem.in_channels > problem.out_channels
    return _sampled_input(problem, arch) if two_passes and not any(problem.padding) else 0


def _ocl_wrw_2(images_per_group: int, problem: ConvProblem, _arch: str) -> int:
    """One filter for each group of images, if there is more than one group."""
    return _partial_filters(problem, -(-problem.batch // images_per_group))


def _ocl_wrw_53(problem: ConvProblem, _arch: str) -> int:
    """As `_ocl_wrw_2`; how many images a group loops over depends on the size."""
    if problem.in_channels * problem.out_channels <= 8 * 1024:
        images = 1
    elif problem.batch <= 16 or problem.out_size[1] <= 32:
        images = problem.batch
    else:
        images = 4
    return _partial_filters(problem, -(-problem.batch // images))


def _partial_filters(problem: ConvProblem, count: int) -> int:
    return count * problem.weight_bytes if count > 1 else 0


def _float_filter_if_half(problem: ConvProblem, _arch: str) -> int:
    """Add into an fp32 filter, for half types."""
    return _float_filter(problem) if problem.dtype in _HALF else 0


def _float_grouped_filter_if_half(problem: ConvProblem, _arch: str) -> int:
    """As `_float_filter_if_half`, but counted as if each group had a whole filter."""
    return problem.groups * _float_filter(problem) if problem.dtype in _HALF else 0


def _float_filter(problem: ConvProblem) -> int:
    return (
        4
        * problem.out_channels
        * (problem.in_channels // problem.groups)
        * prod(problem.filter_size)
    )


def _mlir_wrw_xdlops(problem: ConvProblem, _arch: str) -> int:
    """Add into an fp32 filter, for half types where the GEMM needs no padding."""
    if problem.dtype not in _HALF:
        return 0
    m = problem.out_channels // problem.groups
    n = problem.in_channels // problem.groups * prod(problem.filter_size)
    k = problem.batch * prod(problem.out_size)
    for tile_m, tile_n, tile_k in _MLIR_TILES:
        if not (m % tile_m or n % tile_n or k % tile_k):
            return _float_filter(problem)
    return 0


def _asm_v4r1_wrw(problem: ConvProblem, _arch: str) -> int:
    """One filter for each group of images; their number is a power of 2 up to 32."""
    gemm_n = problem.in_channels * prod(problem.filter_size)
    tile_k = 4 if problem.out_channels % 128 or gemm_n % 128 else 16
    pixels = prod(problem.out_size)
    # The solver's search for the exponent starts at 1 and stays there if nothing divides.
    exponent = 1
    for candidate in range(6):
        if problem.batch % (1 << candidate) or (pixels << candidate) % tile_k:
            break
        exponent = candidate
    return problem.weight_bytes << exponent if exponent else 0


def _asm_igemm_nhwc(problem: ConvProblem, arch: str) -> int:
    """NHWC copies of the tensors that have to be moved, and an fp32 result for half types.

    A tensor with one channel or one pixel is the same in both layouts and is not copied.
    """
    total = 0
    if problem.layout not in _CHANNELS_LAST:
        c, k = problem.in_channels, problem.out_channels
        if c > 1 and prod(problem.in_size) > 1:
            total += _aligned(problem.in_bytes)
        if c > problem.groups and prod(problem.filter_size) > 1:
            total += _aligned(problem.weight_bytes)
        if k > 1 and prod(problem.out_size) > 1:
            total += _aligned(problem.out_bytes)
    if problem.dtype in _HALF:
        result = {"F": problem.out_bytes, "B": problem.in_bytes, "W": problem.weight_bytes}
        copy = 2 * result[problem.direction]
        total += copy if arch.startswith(_UNALIGNED_COPY) else _aligned(copy)
    return total


def _ck_grouped(problem: ConvProblem, _arch: str) -> int:
    """Channels-last copies of all three tensors."""
    if problem.layout in _CHANNELS_LAST:
        return 0
    return _aligned(problem.in_bytes) + _aligned(problem.weight_bytes) + _aligned(problem.out_bytes)


def _ck_grouped_wrw(problem: ConvProblem, arch: str) -> int:
    """As `_ck_grouped`; half types with odd channels a group also take an x of 4-byte elements."""
    total = _ck_grouped(problem, arch)
    groups = problem.groups
    if problem.dtype in _HALF and (
        problem.in_channels // groups % 2 or problem.out_channels // groups % 2
    ):
        copy = 2 * problem.in_bytes
        total += copy if problem.layout in _CHANNELS_LAST else _aligned(copy)
    return total


def _winograd_multipass(
    filter_h: int, tile_h: int, filter_w: int, tile_w: int, problem: ConvProblem, _arch: str
) -> int:
    """Transform x, y and filter: X * (T*C + T*K + C*K) * b for T tiles of X points."""
    # The 7-tap kernels compute a stride-2 filter whatever is asked.
    strides = (2, 2) if 7 in (filter_h, filter_w) else problem.stride[-2:]
    points = ((tile_h - 1) * strides[0] + filter_h) * ((tile_w - 1) * strides[1] + filter_w)
    out_h, out_w = problem.out_size[-2:]
    tiles = problem.batch * -(-out_h // tile_h) * -(-out_w // tile_w)
    c, k = problem.in_channels, problem.out_channels
    return points * (tiles * (c + k) + c * k) * DTYPE_BYTES[problem.dtype]


def _fft(problem: ConvProblem, _arch: str) -> int:
    """Spectra of the two operands or of the result, whichever is more, twice."""
    side = _FFT_SIDES.get(problem.in_size, 32)
    x = problem.batch * problem.in_channels + _FFT_PADDING
    w = problem.out_channels * problem.in_channels + _FFT_PADDING
    y = problem.batch * problem.out_channels + _FFT_PADDING
    operands, result = (x + w, y) if problem.direction == "F" else (y + w, x)
    return 2 * 2 * 4 * side * (1 + side // 2) * max(operands, result)


def _aligned(size: int) -> int:
    return -(-size // 256) * 256


def _registry() -> dict[str, Formula]:
    formulas: dict[str, Formula] = dict.fromkeys(
        (
            "ConvAsm1x1UV2",
            "ConvAsm3x3U",
            "ConvAsm5x10u2v2b1",
            "ConvAsm5x10u2v2f1",
            "ConvAsmBwdWrW3x3",
            "ConvAsmImplicitGemmGTCDynamicBwdXdlops",
            "ConvAsmImplicitGemmGTCDynamicFwdXdlops",
            "ConvAsmImplicitGemmV4R1DynamicBwd",
            "ConvAsmImplicitGemmV4R1DynamicFwd",
            "ConvAsmImplicitGemmV4R1DynamicFwd_1x1",
            "ConvBinWinograd3x3U",
            "ConvBinWinogradRxS",
            "ConvBinWinogradRxSf2x3",
            "ConvBinWinogradRxSf2x3g1",
            "ConvBinWinogradRxSf3x2",
            "ConvDirectNaiveConvBwd",
            "ConvDirectNaiveConvFwd",
            "ConvDirectNaiveConvWrw",
            "ConvHipImplicitGemmBwdDataV1R1",
            "ConvHipImplicitGemmBwdDataV4R1Xdlops",
            "ConvHipImplicitGemmBwdXdlops",
            "ConvHipImplicitGemmForwardV4R4Xdlops",
            "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm",
            "ConvHipImplicitGemmForwardV4R5Xdlops",
            "ConvHipImplicitGemmFwdXdlops",
            "ConvHipImplicitGemmV4R1Fwd",
            "ConvHipImplicitGemmV4R1WrW",
            "ConvHipImplicitGemmV4R4Fwd",
            "ConvHipImplicitGemmV4R4WrW",
            "ConvMlirIgemmBwd",
            "ConvMlirIgemmBwdXdlops",
            "ConvMlirIgemmFwd",
            "ConvMlirIgemmFwdXdlops",
            "ConvMlirIgemmWrW",
            "ConvOclDirectFwd",
            "ConvOclDirectFwd11x11",
            "ConvOclDirectFwd1x1",
            "ConvOclDirectFwdGen",
            "GemmBwd1x1_stride1",
            "GemmFwd1x1_0_1",
            "GemmWrw1x1_stride1",
        ),
        _none,
    )
    formulas |= dict.fromkeys(("GemmFwdRest", "GemmBwdRest", "GemmWrwUniversal"), _gemm_columns)
    formulas |= dict.fromkeys(("GemmFwd1x1_0_2", "GemmBwd1x1_stride2"), _gemm_transposes)
    formulas |= dict.fromkeys(("ConvAsm1x1U", "ConvAsmBwdWrW1x1"), _sampled_input)
    formulas["ConvOclBwdWrW1x1"] = _ocl_wrw_1x1
    formulas["ConvOclBwdWrW53"] = _ocl_wrw_53
    formulas["ConvOclBwdWrW2NonTunable"] = partial(_ocl_wrw_2, 1)
    for images in (1, 2, 4, 8, 16):
        formulas[f"ConvOclBwdWrW2<{images}>"] = partial(_ocl_wrw_2, images)
    formulas |= dict.fromkeys(
        ("ConvHipImplicitGemmWrwV4R4Xdlops", "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm"),
        _float_grouped_filter_if_half,
    )
    formulas["ConvAsmImplicitGemmGTCDynamicWrwXdlops"] = _float_filter_if_half
    formulas["ConvAsmImplicitGemmV4R1DynamicWrw"] = _asm_v4r1_wrw
    formulas["ConvCkIgemmFwdV6r1DlopsNchw"] = _ck_dlops
    formulas["ConvMlirIgemmWrWXdlops"] = _mlir_wrw_xdlops
    for direction in ("Fwd", "Bwd", "Wrw"):
        formulas[f"ConvAsmImplicitGemmGTCDynamic{direction}XdlopsNHWC"] = _asm_igemm_nhwc
        ck = _ck_grouped_wrw if direction == "Wrw" else _ck_grouped
        formulas[f"ConvHipImplicitGemmGroup{direction}Xdlops"] = ck
        formulas[f"ConvHipImplicitGemm3DGroup{direction}Xdlops"] = ck
    for tiles in (
        *((3, tile, 3, tile) for tile in (2, 3, 4, 5, 6)),
        *((5, tile, 5, tile) for tile in (3, 4)),
        *((7, tile, 7, tile) for tile in (2, 3)),
        *((7, tile, 1, 1) for tile in (2, 3)),
        *((1, 1, 7, tile) for tile in (2, 3)),
    ):
        shown = tiles[:2] if tiles[:2] == tiles[2:] else tiles
        name = f"ConvWinograd3x3MultipassWrW<{'-'.join(map(str, shown))}>"
        formulas[name] = partial(_winograd_multipass, *tiles)
    formulas["fft"] = _fft
    return formulas


#: Solver id -> its formula.
FORMULAS: Mapping[str, Formula] = MappingProxyType(_registry())
