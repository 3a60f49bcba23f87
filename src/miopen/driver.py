"""Command lines of MIOpenDriver as problems and back."""

from __future__ import annotations

import re
import shlex
from types import MappingProxyType

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.problem import DTYPE_BYTES
from foretune.miopen.keys import parse_find_key

#: Data type of each convolution operation of the driver.
OPERATIONS = MappingProxyType(
    {"conv": "FP32", "convfp16": "FP16", "convbfp16": "BF16", "convint8": "INT8"}
)
_QUOTES = re.compile(r"""["'\\]""")
_WORD = re.compile(r"[^ \t\r\n]+")
_DIRECTION_BITS = MappingProxyType({"F": 1, "B": 2, "W": 4})
# A transposed convolution computes its output as the gradient of x of the physical one.
_TRANSPOSED = MappingProxyType({"F": "B", "B": "F", "W": "W"})

# Short name, long name, default. A default that is a number asks for a number.
_FLAGS: tuple[tuple[str, str, int | str], ...] = (
    ("n", "batchsize", 100),
    ("c", "in_channels", 3),
    ("!", "in_d", 32),
    ("H", "in_h", 32),
    ("W", "in_w", 32),
    ("k", "out_channels", 32),
    ("@", "fil_d", 3),
    ("y", "fil_h", 3),
    ("x", "fil_w", 3),
    ("#", "conv_stride_d", 1),
    ("u", "conv_stride_h", 1),
    ("v", "conv_stride_w", 1),
    ("$", "pad_d", 0),
    ("p", "pad_h", 0),
    ("q", "pad_w", 0),
    ("r", "pad_val", 0),
    ("^", "dilation_d", 1),
    ("l", "dilation_h", 1),
    ("j", "dilation_w", 1),
    ("g", "group_count", 1),
    ("m", "mode", "conv"),
    ("z", "pad_mode", "default"),
    ("%", "trans_output_pad_d", 0),
    ("Y", "trans_output_pad_h", 0),
    ("X", "trans_output_pad_w", 0),
    ("_", "spatial_dim", 2),
    ("F", "forw", 0),
    ("I", "in_layout", ""),
    ("O", "out_layout", ""),
    ("f", "fil_layout", ""),
    ("Z", "tensor_vect", 0),
    ("L", "vector_length", 1),
    ("b", "bias", 0),
    ("U", "in_cast_type", "-1"),
    ("T", "out_cast_type", "-1"),
    ("R", "wei_cast_type", "-1"),
    ("i", "iter", 10),
    ("V", "verify", 1),
    ("C", "verification_cache", ""),
    ("t", "time", 0),
    ("w", "wall", 0),
    ("s", "search", 0),
    ("S", "solution", "-1"),
    ("P", "printconv", 1),
    ("o", "dump_output", 0),
    ("d", "in_data", ""),
    ("e", "weights", ""),
    ("a", "in_bias", ""),
    ("D", "dout_data", ""),
    ("G", "gpualloc", 0),
)
_LONG_NAMES = {short: name for short, name, _ in _FLAGS}
_SHORT_NAMES = {name: short for short, name, _ in _FLAGS}
_DEFAULTS = {name: default for _, name, default in _FLAGS}

#: Finds the command in a line: its operation and the text after that.
DRIVER_COMMAND = re.compile(
    r"""(?:^|[\s/\\"'])MIOpenDriver(?:\.exe)?["']?\s+([A-Za-z]\w*)(.*)""", re.DOTALL
)
_WHERE = "driver line"


def parse_driver_line(text: str) -> list[ConvProblem]:
    """Problems of one MIOpenDriver command line, one for each direction of ``-F``.

    Flags that don't change the problem (iterations, verification, ...) are checked and left out.
    So is ``-b``: the driver adds the bias by an operation of its own.

    In transpose mode ``-c``, ``-H`` and ``-W`` describe the transposed convolution's input, which
    is y of the physical convolution; the directions F, B and W become B, F and W of that.

    Pad mode "same" is what the driver makes of it: the same padding on both sides, rounded down,
    and only where all dilations (or all filter sizes) are 1; else it changes nothing, like
    any pad mode in transpose mode.

    Parameters
    ----------
    text : str
        Environment variables, a path or the beginning of a log line may stand before MIOpenDriver.

    Returns
    -------
    list of ConvProblem
        In the order F, B, W of the line's own directions.

    Raises
    ------
    InputError
        If it is no such line; the message names the flag.

    Examples
    --------
    >>> problems = parse_driver_line("./bin/MIOpenDriver convfp16 -n 32 -c 64 -H 56 -W 56 -k 128")
    >>> [problem.direction for problem in problems], problems[0].out_size
    (['F', 'B', 'W'], (54, 54))
    """
    match = DRIVER_COMMAND.search(text)
    if not match:
        raise InputError("expected MIOpenDriver and an operation such as conv", _WHERE)
    operation, arguments = match.groups()
    if operation not in OPERATIONS:
        raise InputError(
            f"expected one of the operations {', '.join(OPERATIONS)}, got {operation!r}", _WHERE
        )
    flags = _parse_flags(arguments)
    if flags.number("spatial_dim") not in (2, 3):
        raise flags.wrong("spatial_dim", "2 or 3")
    forward = flags.number("forw")
    if not 0 <= forward <= 7:
        raise flags.wrong("forw", "0 for all directions, or a sum of 1 (F), 2 (B) and 4 (W)")
    try:
        return [
            _problem(flags, OPERATIONS[operation], direction)
            for direction, bit in _DIRECTION_BITS.items()
            if forward == 0 or forward & bit
        ]
    except InputError as error:
        if error.where.startswith(_WHERE):
            raise
        raise InputError(error.message, f"{_WHERE}, {error.where}") from None


def format_driver_line(problem: ConvProblem) -> str:
    """MIOpenDriver command line of a problem, in the form that MIOpen logs.

    Raises
    ------
    InputError
        If the driver has no operation for its types, or no flag for one of its fields.

    Examples
    --------
    >>> format_driver_line(ConvProblem("W", 8, 16, (14, 14), 32, (3, 3)))[:47]
    './bin/MIOpenDriver conv -n 8 -c 16 -H 14 -W 14 '
    """
    operation = next((name for name, dtype in OPERATIONS.items() if dtype == problem.dtype), None)
    if operation is None or not problem.dtype == problem.weight_dtype == problem.out_dtype:
        raise InputError(
            f"the driver computes {', '.join(OPERATIONS.values())} alone, not "
            f"{problem.dtype}, {problem.weight_dtype}, {problem.out_dtype}",
            _WHERE,
        )
    if problem.bias:
        raise InputError("the driver has no flag for a bias in the convolution", _WHERE)
    size, fil, pad, step, dil = (
        problem.in_size,
        problem.filter_size,
        problem.padding,
        problem.stride,
        problem.dilation,
    )
    three = problem.ndim == 3
    words = [f"./bin/MIOpenDriver {operation} -n {problem.batch} -c {problem.in_channels}"]
    if three:
        words.append(f"--in_d {size[0]}")
    words.append(f"-H {size[-2]} -W {size[-1]} -k {problem.out_channels}")
    if three:
        words.append(f"--fil_d {fil[0]}")
    words.append(f"-y {fil[-2]} -x {fil[-1]}")
    if three:
        words.append(f"--pad_d {pad[0]}")
    words.append(f"-p {pad[-2]} -q {pad[-1]}")
    if three:
        words.append(f"--conv_stride_d {step[0]}")
    words.append(f"-u {step[-2]} -v {step[-1]}")
    if three:
        words.append(f"--dilation_d {dil[0]}")
    words.append(f"-l {dil[-2]} -j {dil[-1]}")
    if three:
        words.append("--spatial_dim 3")
    words += _format_layouts(problem)
    for name, cast in (
        ("in_cast_type", problem.cast),
        ("wei_cast_type", problem.weight_cast),
        ("out_cast_type", problem.out_cast),
    ):
        if cast:
            words.append(f"--{name} {cast.lower()}")
    words.append(f"-m conv -g {problem.groups} -F {_DIRECTION_BITS[problem.direction]} -t 1")
    return " ".join(words)


def parse_problem_line(text: str) -> list[ConvProblem]:
    """Problems of a line that is a find-db key or a driver line.

    Examples
    --------
    >>> parse_problem_line("64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F")[0].batch
    32
    """
    text = text.strip()
    if "MIOpenDriver" in text:
        return parse_driver_line(text)
    if not text or " " in text:
        raise InputError(f"expected a find-db key or a MIOpenDriver line, got {text!r}")
    return [parse_find_key(text)]


class _Flags:
    """Values of the flags of one line, by long name."""

    def __init__(self) -> None:
        self.values: dict[str, int | str] = dict(_DEFAULTS)
        self.forms: dict[str, str] = {}

    def wrong(self, name: str, expected: str) -> InputError:
        form = self.forms.get(name, f"--{name}")
        return InputError(f"expected {expected}, got {self.values[name]!r}", f"{_WHERE}, {form}")

    def number(self, name: str) -> int:
        value = self.values[name]
        assert isinstance(value, int)
        return value

    def text(self, name: str) -> str:
        return str(self.values[name])

    def numbers(self, name: str) -> tuple[int, ...]:
        """Give the values of a flag that there is once for each spatial dimension."""
        return tuple(self.number(f"{name}_{axis}") for axis in "dhw"[-self.number("spatial_dim") :])


def _parse_flags(text: str) -> _Flags:
    try:
        # What has no quotes is cut in a twentieth of the time.
        words = shlex.split(text) if _QUOTES.search(text) else _WORD.findall(text)
    except ValueError as error:
        raise InputError(f"{error} in {text.strip()!r}", _WHERE) from None
    flags = _Flags()
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        value: str | None = None
        if word.startswith("--"):
            name, equals, rest = word[2:].partition("=")
            form = f"--{name}"
            value = rest if equals else None
        elif word.startswith("-") and len(word) > 1:
            form, value = word[:2], word[2:] or None
            name = _LONG_NAMES.get(word[1], "")
        else:
            raise InputError(f"expected a flag, got {word!r}", _WHERE)
        if name not in _DEFAULTS:
            raise InputError("unknown flag", f"{_WHERE}, {form}")
        if value is None:
            if position == len(words):
                raise InputError("the value is missing", f"{_WHERE}, {form}")
            value = words[position]
            position += 1
        flags.forms[name] = form
        flags.values[name] = value
        if isinstance(_DEFAULTS[name], int):
            if not re.fullmatch(r"[+-]?[0-9]{1,19}", value):
                raise flags.wrong(name, "a whole number")
            flags.values[name] = int(value)
    return flags


def _problem(flags: _Flags, dtype: str, direction: str) -> ConvProblem:
    fil, step, dil = flags.numbers("fil"), flags.numbers("conv_stride"), flags.numbers("dilation")
    for name, sizes in (("fil", fil), ("conv_stride", step), ("dilation", dil)):
        for axis, number in zip("dhw"[-len(sizes) :], sizes, strict=True):
            if number < 1:
                raise flags.wrong(f"{name}_{axis}", "at least 1")
    size, pad = flags.numbers("in"), flags.numbers("pad")
    layout, weight_layout, out_layout = _layouts(flags)
    cast, weight_cast, out_cast = (
        _cast_type(flags, name) for name in ("in_cast_type", "wei_cast_type", "out_cast_type")
    )
    channels, out_channels = flags.number("in_channels"), flags.number("out_channels")
    out_size: tuple[int, ...] = ()
    match flags.text("mode"):
        case "conv":
            pad = _padding(flags, size, fil, step, dil, pad)
        case "trans":
            out_size = size
            size = _transposed_size(flags, size, fil, step, dil, pad)
            channels, out_channels = out_channels, channels
            layout, out_layout = out_layout, layout
            cast, out_cast = out_cast, cast
            direction = _TRANSPOSED[direction]
        case _:
            raise flags.wrong("mode", "conv or trans")
    return ConvProblem(
        direction,
        flags.number("batchsize"),
        channels,
        size,
        out_channels,
        fil,
        step,
        pad,
        dil,
        # As in the driver, no groups are one group.
        flags.number("group_count") or 1,
        dtype,
        layout,
        weight_layout=weight_layout,
        out_layout=out_layout,
        cast=cast,
        weight_cast=weight_cast,
        out_cast=out_cast,
        out_size=out_size,
    )


def _padding(
    flags: _Flags,
    size: tuple[int, ...],
    fil: tuple[int, ...],
    step: tuple[int, ...],
    dil: tuple[int, ...],
    pad: tuple[int, ...],
) -> tuple[int, ...]:
    mode = flags.text("pad_mode")
    if mode not in ("default", "same", "valid"):
        raise flags.wrong("pad_mode", "default, same or valid")
    if mode == "default" or not (set(dil) == {1} or set(fil) == {1}):
        return pad
    if mode == "valid":
        return (0,) * len(pad)
    return tuple(max(f - (n % s or s), 0) // 2 for n, f, s in zip(size, fil, step, strict=True))


def _transposed_size(
    flags: _Flags,
    size: tuple[int, ...],
    fil: tuple[int, ...],
    step: tuple[int, ...],
    dil: tuple[int, ...],
    pad: tuple[int, ...],
) -> tuple[int, ...]:
    """Size of a transposed convolution's output, which is x of the physical convolution."""
    extra = flags.numbers("trans_output_pad")
    result = []
    for axis, n, f, s, d, p, e in zip(
        "dhw"[-len(size) :], size, fil, step, dil, pad, extra, strict=True
    ):
        if not 0 <= e < s:
            raise flags.wrong(f"trans_output_pad_{axis}", f"0 to {s - 1}, less than the stride")
        length = s * (n - 1) + d * (f - 1) + 1 - 2 * p + e
        if length < 1:
            raise flags.wrong(f"pad_{axis}", f"a padding that leaves an output, not {length}")
        result.append(length)
    return tuple(result)


def _layouts(flags: _Flags) -> tuple[str, str, str]:
    usual = "NCHW" if flags.number("spatial_dim") == 2 else "NCDHW"
    if flags.number("tensor_vect") not in (0, 1):
        raise flags.wrong("tensor_vect", "0 or 1")
    vector = "c" if flags.number("tensor_vect") else ""
    names = (flags.text(name) or usual for name in ("in_layout", "fil_layout", "out_layout"))
    layout, weight, out = (name if name.endswith("c") else name + vector for name in names)
    return layout, weight, out


def _format_layouts(problem: ConvProblem) -> list[str]:
    usual = "NCHW" if problem.ndim == 2 else "NCDHW"
    layouts = (problem.layout, problem.weight_layout, problem.out_layout)
    vectorised = all(layout.endswith("c") for layout in layouts)
    if vectorised:
        layouts = (layouts[0][:-1], layouts[1][:-1], layouts[2][:-1])
    words = [
        f"--{name} {layout}"
        for name, layout in zip(("in_layout", "fil_layout", "out_layout"), layouts, strict=True)
        if layout != usual
    ]
    return words + ["-Z 1 -L 4"] * vectorised


def _cast_type(flags: _Flags, name: str) -> str:
    text = flags.text(name)
    if text == "-1":
        return ""
    if text.upper() not in DTYPE_BYTES:
        raise flags.wrong(name, "a data type such as fp8, or -1 for none")
    return text.upper()
