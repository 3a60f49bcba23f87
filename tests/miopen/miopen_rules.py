"""MIOpen's own rules for reading a user database, written anew from its public source.

Nothing of foretune is imported: this is what its files are checked by. A finding is anything that
makes a call fail, or makes MIOpen skip an entry, so that it would have been written for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, inf, isfinite, prod

BYTES = {"FP32": 4, "FP16": 2, "BF16": 2}
WORDS = {"F": "Fwd", "B": "BwdData", "W": "BwdWeights"}
KINDS = ("GEMM", "Direct", "FFT", "Winograd", "ImplicitGEMM")
ALGORITHMS = {f"miopenConvolution{word}Algo{kind}" for word in WORDS.values() for kind in KINDS}

# Whose algorithm is which, and in which directions; the first pattern that fits.
SOLVERS = (
    (r"GemmFwd(1x1_0_[12]|Rest)", "GEMM", "F"),
    (r"GemmBwd(1x1_stride[12]|Rest)", "GEMM", "B"),
    (r"GemmWrw(1x1_stride1|Universal)", "GEMM", "W"),
    (r"fft", "FFT", "FB"),
    (r"ConvBinWinograd3x3U", "Winograd", "FB"),
    (r"ConvBinWinogradRxS(f2x3|f3x2|f2x3g1)?", "Winograd", "FBW"),
    (r"ConvWinograd3x3MultipassWrW<[\d-]+>", "Winograd", "W"),
    (r"ConvDirectNaiveConvFwd|ConvAsm5x10u2v2f1|Conv(Ocl|Hip)DirectFwd11x11", "Direct", "F"),
    (r"ConvOclDirectFwdGen", "Direct", "F"),
    (r"ConvDirectNaiveConvBwd|ConvAsm5x10u2v2b1", "Direct", "B"),
    (r"ConvDirectNaiveConvWrw|ConvAsmBwdWrW[13]x[13]", "Direct", "W"),
    (r"ConvOclBwdWrW(1x1|53|2NonTunable|2<\d+>)", "Direct", "W"),
    (r"ConvAsm(1x1UV?2?|3x3U)|Conv(Ocl|Hip)DirectFwd(1x1)?", "Direct", "FB"),
    (r"Conv(Asm|Hip|Mlir|Ck)I(mplicitG|g)emm\w*W(rw|rW)\w*", "ImplicitGEMM", "W"),
    (r"Conv(Asm|Hip|Mlir|Ck)I(mplicitG|g)emm\w*Bwd\w*", "ImplicitGEMM", "B"),
    (r"Conv(Asm|Hip|Mlir|Ck)I(mplicitG|g)emm\w*(Fwd|Forward)\w*", "ImplicitGEMM", "F"),
)
# Solvers with static kernels, off by default on gfx942 and newer.
DEPRECATED = re.compile(
    r"ConvAsm1x1UV?2?|ConvAsm3x3U|ConvAsm5x10.*|ConvAsm7x7.*|ConvAsmBwdWrW[13]x[13]"
    r"|ConvCkIgemmFwdV6r1DlopsNchw|ConvOcl.*|ConvHipDirectFwd"
    r"|ConvHipImplicitGemm(BwdDataV[14]R1|ForwardV4R[45]|V4R[14]|WrwV4R4).*"
)
GONE_IN_3_6 = re.compile(
    r"ConvOclDirectFwd(Gen|1x1|11x11)?|ConvOclBwdWrW(1x1|2.*)|ConvHipImplicitGemm[FB]wdXdlops"
)
# From 3.5 on these take the most that any kernel of CK's needs.
ASKS_CK = re.compile(r"ConvHipImplicitGemm(Group(Bwd|Wrw)|3DGroupWrw)Xdlops")
CAME_IN_3_6 = re.compile(r"ConvHipDirectFwd(11x11)?|ConvHipBwdWrW53")

#: Numbers in a config that is a list, by solver.
LIST_LENGTHS = (
    (r"ConvAsm1x1U", 8),
    (r"ConvAsm1x1UV2", 10),
    (r"ConvAsm3x3U", 3),
    (r"ConvAsmBwdWrW1x1", 10),
    (r"ConvAsmBwdWrW3x3", 6),
    (r"ConvBinWinogradRxSf(2x3|3x2)", 1),
    (r"Conv(Ocl|Hip)DirectFwd(1x1)?", 9),
    (r"ConvOclBwdWrW2<\d+>", 5),
    (r"ConvHipImplicitGemm(BwdDataV1R1|V4R4Fwd|V4R4WrW)", 6),
    (r"ConvHipImplicitGemmV4R1(Fwd|WrW)", 16),
    (r"ConvHipImplicitGemmForwardV4R[45]Xdlops", 9),
    (r"ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm", 12),
    (r"ConvHipImplicitGemmWrwV4R4Xdlops", 8),
    (r"ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm", 11),
    (r"ConvMlirIgemm(Fwd|Bwd|WrW)", 6),
    (r"ConvMlirIgemm(Fwd|Bwd|WrW)Xdlops", 8),
)
INSTANCE = re.compile(r"Device\w+<\w[^<>;=]*(?:, \w[^<>;=,]*)*>(\+\d+| \w+)?")
INSTANCE_WORDS = {"F": "Fwd", "B": "BwdData", "W": "BwdWeight"}


@dataclass(frozen=True)
class Physical:
    """A find-db key's convolution, x with C channels and y with K in every direction."""

    direction: str
    n: int
    c: int
    x: tuple[int, ...]
    k: int
    y: tuple[int, ...]
    w: tuple[int, ...]
    stride: tuple[int, ...]
    pad: tuple[int, ...]
    layout: str
    dtype: str
    groups: int

    @property
    def size(self) -> int:
        return BYTES[self.dtype]

    @property
    def x_bytes(self) -> int:
        return self.n * self.c * prod(self.x) * self.size

    @property
    def y_bytes(self) -> int:
        return self.n * self.k * prod(self.y) * self.size

    @property
    def w_bytes(self) -> int:
        return self.k * (self.c // self.groups) * prod(self.w) * self.size


def parse_key(key: str) -> Physical:
    """Take a find-db key apart; ValueError if it is none."""
    three = key.split("-")[4].count("x") == 2
    d = 3 if three else 2
    number, size = r"(\d+)", r"(\d+" + r"x\d+" * (d - 1) + ")"
    sizes = "-".join([number] * d)
    pattern = (
        rf"{number}-{sizes}-{size}-{number}-{sizes}-{number}-{size}-{size}-{size}-0-"
        r"([A-Z]+)(?:-([A-Z]+)-([A-Z]+))?-(FP32|FP16|BF16)-([FBW])(?:_g(\d+))?"
    )
    match = re.fullmatch(pattern, key)
    if not match:
        raise ValueError(f"no key: {key}")
    part = list(match.groups())
    first, a, w = int(part[0]), part[1 : 1 + d], part[1 + d]
    second, b = int(part[2 + d]), part[3 + d : 3 + 2 * d]
    n, pad, stride, _, layout, wei, out, dtype, direction, groups = part[3 + 2 * d :]
    if wei and not layout == wei == out:
        raise ValueError(f"layouts differ: {key}")
    if (layout in ("NCHW", "NCDHW")) != (wei is None):
        raise ValueError(f"layouts are written otherwise: {key}")

    def ints(text: str) -> tuple[int, ...]:
        return tuple(map(int, text.split("x")))

    x, y = tuple(map(int, a)), tuple(map(int, b))
    c, k = first, second
    if direction != "F":
        c, k, x, y = k, c, y, x
    return Physical(
        direction, int(n), c, x, k, y, ints(w), ints(stride), ints(pad), layout, dtype,
        int(groups or 1),
    )  # fmt: skip


def up(size: int) -> int:
    return ceil(size / 256) * 256


def im2col(p: Physical, m: Machine) -> int:
    need = p.c * prod(p.w) * prod(p.y) * p.size
    if m.release < (3, 6):
        return need
    if p.direction == "W" and p.dtype == "BF16" and p.n > 1:
        return up(need) + 2 * p.w_bytes
    # One pixel of output is computed by one GEMM over all images.
    return need * p.n if p.direction == "B" and set(p.y) == {1} else need


def none(_p: Physical, _m: Machine) -> int:
    return 0


def subsampled(p: Physical, _m: Machine) -> int:
    return p.n * p.c * prod(p.y) * p.size if max(p.stride) > 1 else 0


def nhwc_copies(p: Physical, m: Machine) -> int:
    need = 0
    if p.layout not in ("NHWC", "NDHWC"):
        need += up(p.x_bytes) * (p.c > 1 and prod(p.x) > 1)
        need += up(p.w_bytes) * (p.c // p.groups > 1 and prod(p.w) > 1)
        need += up(p.y_bytes) * (p.k > 1 and prod(p.y) > 1)
    if p.dtype != "FP32":
        fp32 = 2 * {"F": p.y_bytes, "B": p.x_bytes, "W": p.w_bytes}[p.direction]
        need += fp32 if m.release < (3, 3) else up(fp32)
    return need


def grouped_copies(p: Physical, _m: Machine) -> int:
    """Give what CK's grouped solvers asked for before they asked CK itself."""
    last = p.layout in ("NHWC", "NDHWC")
    need = 0 if last else up(p.x_bytes) + up(p.w_bytes) + up(p.y_bytes)
    odd = p.c // p.groups % 2 or p.k // p.groups % 2
    if p.direction == "W" and p.dtype != "FP32" and odd:
        need += 2 * p.x_bytes if last else up(2 * p.x_bytes)
    return need


def fp32_filter(p: Physical, _m: Machine) -> int:
    return p.w_bytes * 2 if p.dtype != "FP32" else 0


def fp32_filter_of_each_group(p: Physical, m: Machine) -> int:
    return fp32_filter(p, m) * p.groups


def mlir_filter(p: Physical, m: Machine) -> int:
    rows, columns = p.k // p.groups, p.c // p.groups * prod(p.w)
    depth = p.n * prod(p.y)
    tiles = ((32, 64, 4), (8, 64, 8), (4, 64, 16), (16, 16, 16))
    fits = any(rows % a == columns % b == depth % c == 0 for a, b, c in tiles)
    return fp32_filter(p, m) if fits else 0


def transposes(p: Physical, _m: Machine) -> int:
    return p.n * (p.c + p.k) * prod(p.y) * p.size


def filters(images: Callable[[Physical], int] | int) -> Callable[[Physical, Machine], int]:
    def need(p: Physical, _m: Machine) -> int:
        parts = ceil(p.n / (images if isinstance(images, int) else images(p)))
        return parts * p.w_bytes if parts > 1 else 0

    return need


def images_of_53(p: Physical) -> int:
    if p.c * p.k <= 8192:
        return 1
    return p.n if p.n <= 16 or p.y[1] <= 32 else 4


def ocl_1x1(p: Physical, m: Machine) -> int:
    return subsampled(p, m) if (p.n >= 16 or 2 * p.c > p.k) and not any(p.pad) else 0


def fft(p: Physical, _m: Machine) -> int:
    s = 12 if p.x == (7, 7) else 18 if p.x == (14, 14) else 32
    x, w, y = p.n * p.c + 64, p.c * p.k + 64, p.n * p.k + 64
    most = max(x + w, y) if p.direction == "F" else max(y + w, x)
    return 16 * s * (1 + s // 2) * most


def multipass(solver: str) -> Callable[[Physical, Machine], int]:
    fh, th, *rest = map(int, re.findall(r"\d+", solver.partition("<")[2]))
    fw, tw = rest or (fh, th)

    def need(p: Physical, _m: Machine) -> int:
        sh, sw = (2, 2) if 7 in (fh, fw) else p.stride
        points = ((th - 1) * sh + fh) * ((tw - 1) * sw + fw)
        tiles = p.n * ceil(p.y[0] / th) * ceil(p.y[1] / tw)
        return points * (tiles * p.c + tiles * p.k + p.c * p.k) * p.size

    return need


# Workspace that MIOpen will ask for, by solver; the first pattern that fits.
WORKSPACES: tuple[tuple[str, Callable[[Physical, Machine], int]], ...] = (
    (r"Gemm(FwdRest|BwdRest|WrwUniversal)", im2col),
    (r"GemmFwd1x1_0_2|GemmBwd1x1_stride2", transposes),
    (r"Gemm.*1x1.*", none),
    (r"fft", fft),
    (r"ConvBinWinograd.*", none),
    (r"ConvDirectNaive.*", none),
    (r"ConvAsm1x1U|ConvAsmBwdWrW1x1", subsampled),
    (r"ConvAsm(1x1UV2|3x3U|5x10.*|BwdWrW3x3)", none),
    (r"Conv(Ocl|Hip)DirectFwd.*", none),
    (r"ConvOclBwdWrW1x1", ocl_1x1),
    (r"ConvOclBwdWrW53", filters(images_of_53)),
    (r"ConvOclBwdWrW2NonTunable", filters(1)),
    *((rf"ConvOclBwdWrW2<{n}>", filters(n)) for n in (1, 2, 4, 8, 16)),
    (r"ConvAsmImplicitGemmGTCDynamic(Fwd|Bwd|Wrw)XdlopsNHWC", nhwc_copies),
    (r"ConvAsmImplicitGemmGTCDynamicWrwXdlops", fp32_filter),
    (r"ConvAsmImplicitGemmGTCDynamic(Fwd|Bwd)Xdlops", none),
    (r"ConvAsmImplicitGemmV4R1Dynamic(Fwd|Bwd)\w*", none),
    (r"ConvHipImplicitGemm(3D)?Group(Fwd|Bwd|Wrw)Xdlops", grouped_copies),
    (r"ConvHipImplicitGemmWrwV4R4Xdlops(_Padded_Gemm)?", fp32_filter_of_each_group),
    (r"ConvHipImplicitGemm(?!.*Group).*", none),
    (r"ConvMlirIgemmWrWXdlops", mlir_filter),
    (r"ConvMlirIgemm(Fwd|Bwd)\w*|ConvMlirIgemmWrW", none),
)


@dataclass(frozen=True)
class Machine:
    """Where the files are read."""

    arch: str
    release: tuple[int, int]
    mlir: bool = False

    def why_not_run(self, solver: str) -> str:
        new = self.release >= (3, 6)
        if not any(re.fullmatch(pattern, solver) for pattern, _, _ in SOLVERS):
            return "unknown solver"
        if re.fullmatch(GONE_IN_3_6 if new else CAME_IN_3_6, solver):
            return "not in this release"
        if solver.startswith("ConvMlir") and not self.mlir:
            return "needs rocMLIR"
        if re.fullmatch(DEPRECATED, solver) and self.arch not in ("gfx908", "gfx90a"):
            return "off by default on this arch"
        return ""


def read_find_db(text: str, machine: Machine) -> Iterator[str]:
    """Yield what MIOpen would fail on or skip in a user find-db."""
    seen = set()
    for line in text.split("\n"):
        if not line:
            continue
        key, equals, contents = line.partition("=")
        if not equals or not key:
            yield f"line without a key: {line}"
            continue
        if key in seen:
            yield f"key twice: {key}"
        seen.add(key)
        try:
            problem = parse_key(key)
        except ValueError as error:
            yield str(error)
            continue
        if not contents:
            yield f"no items: {key}"
        solvers = set()
        for item in contents.split(";"):
            solver, colon, values = item.partition(":")
            if not colon:
                yield f"item without ':': {line}"
                continue
            if solver in solvers:
                yield f"solver twice: {line}"
            solvers.add(solver)
            if solver in ALGORITHMS:
                yield f"taken for the old format: {line}"
                continue
            for reason in _read_item(solver, values, problem, machine):
                yield f"{reason}: {line}"


def _read_item(solver: str, values: str, problem: Physical, machine: Machine) -> Iterator[str]:
    fields = values.split(",")
    if len(fields) != 3:
        yield "fewer or more than three fields"
        return
    time, workspace, algorithm = fields
    if not re.fullmatch(r"\d+(\.\d+)?(e-?\d+)?", time) or not 0 < float(time) < inf:
        yield "no time above zero"
    if not isfinite(float(time)):
        yield "no finite time"
    if why := machine.why_not_run(solver):
        yield why
        return
    _, kind, directions = next(row for row in SOLVERS if re.fullmatch(row[0], solver))
    if algorithm not in ALGORITHMS or algorithm == "miopenConvolutionBwdWeightsAlgoFFT":
        yield "Bad algorithm"
    if algorithm != f"miopenConvolution{WORDS[problem.direction]}Algo{kind}":
        yield "Bad algorithm for the direction or the solver"
    if problem.direction not in directions:
        yield "a solver of another direction"
        return
    if machine.release >= (3, 5) and re.fullmatch(ASKS_CK, solver):
        yield "a workspace that only CK knows"
        return
    if solver.startswith("ConvWinograd3x3MultipassWrW"):
        formula = multipass(solver)
    else:
        formula = next(f for pattern, f in WORKSPACES if re.fullmatch(pattern, solver))
    need = formula(problem, machine)
    if not workspace.isdigit() or int(workspace) < need:
        yield f"workspace too small, needs {need}"
    elif int(workspace) != need:
        yield f"workspace larger than needed, {need}"


def read_perf_db(text: str, machine: Machine) -> Iterator[str]:
    """Yield what MIOpen would not take of a user perf-db."""
    seen = set()
    for line in filter(None, text.split("\n")):
        key, equals, contents = line.partition("=")
        fields = key.split("x")
        if not equals or len(fields) != 24 or not all(map(str.isdigit, fields[:21])):
            yield f"no key: {line}"
            continue
        if key in seen:
            yield f"key twice: {key}"
        seen.add(key)
        layout, dtype, direction = fields[21:]
        if (layout[0], len(layout) - 2, dtype in BYTES) != ("N", int(fields[0]), True):
            yield f"no layout or type: {line}"
        for item in contents.split(";"):
            solver, colon, params = item.partition(":")
            if not colon or machine.why_not_run(solver):
                yield f"no solver that runs: {line}"
            elif not _is_config(solver, params, direction, dtype):
                yield f"obsolete or corrupt: {line}"


def _is_config(solver: str, params: str, direction: str, dtype: str) -> bool:
    if re.fullmatch(r"ConvAsmImplicitGemmGTCDynamic\w+XdlopsNHWC", solver):
        tokens = re.sub(r"\[\d+\]$", "", params).split(",")
        head = [{"F": "fwd", "B": "bwd", "W": "wrw"}[direction], "nhwc", dtype.lower()]
        return tokens[:3] == head and len(tokens) == 37 and all(map(str.isdigit, tokens[3:]))
    if re.fullmatch(r"ConvHipImplicitGemm(3DGroup|Group)?(Fwd|Bwd|Wrw)Xdlops", solver):
        return bool(INSTANCE.fullmatch(params)) and INSTANCE_WORDS[direction] in params
    for pattern, length in LIST_LENGTHS:
        if re.fullmatch(pattern, solver):
            return bool(re.fullmatch(r"-?\d+(,-?\d+)*", params)) and params.count(",") == length - 1
    return False
