"""Database keys as problems and back.

MIOpen names the tensors of a key by the flow of data: for B and W what it calls "in" is y. That
swap happens in this module and nowhere else.
"""

from __future__ import annotations

from functools import lru_cache

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem, conv_out_size
from foretune.kernels.problem import DTYPE_BYTES
from foretune.miopen.patterns import compiled

# 19 digits, because int() itself refuses thousands of them.
_N = "([0-9]{1,19})"
_XX = "([0-9]{1,19}x[0-9]{1,19})"
_XXX = "([0-9]{1,19}x[0-9]{1,19}x[0-9]{1,19})"
_LAYOUT = "([A-Za-z]+)"
# Longer names first, so that INT32 isn't read as INT3 and a rest.
_TYPE = "|".join(sorted(DTYPE_BYTES, key=len, reverse=True))
_TAIL = (
    rf"{_LAYOUT}(?:-{_LAYOUT}-{_LAYOUT})?-([A-Z0-9]+)-([FBW])"
    rf"((?:_g[0-9]{{1,19}})?(?:_ci(?:{_TYPE}))?(?:_cw(?:{_TYPE}))?(?:_co(?:{_TYPE}))?)"
)
_FIND_2D = "-".join([_N, _N, _N, _XX, _N, _N, _N, _N, _XX, _XX, _XX, _N, _TAIL])
_FIND_3D = "-".join([_N] * 4 + [_XXX] + [_N] * 5 + [_XXX] * 3 + [_N, _TAIL])
_PERF = "x".join([_N] * 21 + [_LAYOUT, "([A-Z0-9]+)", "([FBW])"])
_OPTIONS = rf"(?:_g([0-9]{{1,19}}))?(?:_ci({_TYPE}))?(?:_cw({_TYPE}))?(?:_co({_TYPE}))?"
_THREE_TYPES = f"({_TYPE})({_TYPE})({_TYPE})"
_DIGITS = "[0-9]{1,19}"

_FIND_FIELDS_2D = ("C", "H", "W", "YxX", "K", "OH", "OW", "N", "pads", "strides", "dilations")
_FIND_FIELDS_3D = (
    *("C", "D", "H", "W", "ZxYxX", "K", "OD", "OH", "OW", "N"),
    *("pads", "strides", "dilations"),
)
#: The values of a perf-db key in order, by the names that MIOpen's SQLite schema gives them.
PERF_FIELDS = (
    *("spatial_dim", "in_channels", "in_h", "in_w", "in_d", "fil_h", "fil_w", "fil_d"),
    *("out_channels", "batchsize", "pad_h", "pad_w", "pad_d"),
    *("conv_stride_h", "conv_stride_w", "conv_stride_d"),
    *("dilation_h", "dilation_w", "dilation_d", "bias", "group_count"),
    *("layout", "data_type", "direction"),
)


def parse_find_key(text: str) -> ConvProblem:
    """Problem that a find-db key names.

    Parameters
    ----------
    text : str
        For example ``64-56-56-3x3-128-28-28-32-1x1-2x2-1x1-0-NCHW-FP16-F_g2``.

    Returns
    -------
    ConvProblem
        The physical convolution: ``in_size`` is that of x for every direction.

    Raises
    ------
    InputError
        If it is no key; the message names the field.

    Examples
    --------
    >>> problem = parse_find_key("64-28-28-3x3-3-56-56-32-1x1-2x2-1x1-0-NCHW-FP16-B")
    >>> problem.in_channels, problem.in_size, problem.out_size
    (3, (56, 56), (28, 28))
    """
    key_in: tuple[int, ...]
    key_out: tuple[int, ...]
    if match := compiled(_FIND_2D).fullmatch(text):
        c, h, w, fil, k, oh, ow, n, pad, step, dil, bias, *tail = match.groups()
        key_in, key_out = (int(h), int(w)), (int(oh), int(ow))
    elif match := compiled(_FIND_3D).fullmatch(text):
        c, d, h, w, fil, k, od, oh, ow, n, pad, step, dil, bias, *tail = match.groups()
        key_in, key_out = (int(d), int(h), int(w)), (int(od), int(oh), int(ow))
    else:
        raise _find_key_error(text)
    lay_in, lay_wei, lay_out, types, direction, options = tail
    in_type, wei_type, out_type = _types(types) or _unknown_type(types, text, "find-db key")
    lay_wei = lay_wei or lay_in
    lay_out = lay_out or lay_in
    groups, in_cast, wei_cast, out_cast = _options(options) if options else (1, "", "", "")
    channels, out_channels = int(c), int(k)
    if direction != "F":
        channels, out_channels = out_channels, channels
        key_in, key_out = key_out, key_in
        in_type, out_type = out_type, in_type
        lay_in, lay_out = lay_out, lay_in
        in_cast, out_cast = out_cast, in_cast
    try:
        return ConvProblem(
            direction,
            int(n),
            channels,
            key_in,
            out_channels,
            _sizes(fil),
            _sizes(step),
            _sizes(pad),
            _sizes(dil),
            groups,
            in_type,
            lay_in,
            wei_type,
            out_type,
            lay_wei,
            lay_out,
            int(bias),
            in_cast,
            wei_cast,
            out_cast,
            key_out,
        )
    except InputError as error:
        raise InputError(error.message, f"find-db key {text!r}, {error.where}") from None


def format_find_key(problem: ConvProblem) -> str:
    """Find-db key of a problem.

    Examples
    --------
    >>> format_find_key(ConvProblem("B", 32, 3, (56, 56), 64, (3, 3), (2, 2), (1, 1)))
    '64-28-28-3x3-3-56-56-32-1x1-2x2-1x1-0-NCHW-FP32-B'
    """
    channels, size, layout, dtype, cast = (
        problem.in_channels,
        problem.in_size,
        problem.layout,
        problem.dtype,
        problem.cast,
    )
    out_channels, out_size, out_layout, out_dtype, out_cast = (
        problem.out_channels,
        problem.out_size,
        problem.out_layout,
        problem.out_dtype,
        problem.out_cast,
    )
    if problem.direction != "F":
        channels, out_channels = out_channels, channels
        size, out_size = out_size, size
        layout, out_layout = out_layout, layout
        dtype, out_dtype = out_dtype, dtype
        cast, out_cast = out_cast, cast
    layouts = f"{layout}-{problem.weight_layout}-{out_layout}"
    if layouts in ("NCHW-NCHW-NCHW", "NCDHW-NCDHW-NCDHW"):
        layouts = layout
    options = f"_g{problem.groups}" if problem.groups != 1 else ""
    if cast:
        options += f"_ci{cast}"
    if problem.weight_cast:
        options += f"_cw{problem.weight_cast}"
    if out_cast:
        options += f"_co{out_cast}"
    return (
        f"{channels}-{_join('-', size)}-{_join('x', problem.filter_size)}"
        f"-{out_channels}-{_join('-', out_size)}-{problem.batch}-{_join('x', problem.padding)}"
        f"-{_join('x', problem.stride)}-{_join('x', problem.dilation)}-{problem.bias}"
        f"-{layouts}-{_join_types(dtype, problem.weight_dtype, out_dtype)}"
        f"-{problem.direction}{options}"
    )


def parse_perf_key(text: str) -> ConvProblem:
    """Problem that a perf-db key names.

    Such a key holds one spatial size, that of x for F and that of y for B and W, and one layout.
    For B and W with a stride above 1 several sizes of x have that y; this gives the smallest, and
    `is_perf_key_exact` says whether it is the only one. All layouts are taken to be alike.

    Parameters
    ----------
    text : str
        24 values joined by "x", those of `PERF_FIELDS`.

    Raises
    ------
    InputError
        If it is no key; the message names the field.

    Examples
    --------
    >>> key = "2x64x28x28x1x3x3x1x3x32x1x1x0x2x2x0x1x1x0x0x1xNCHWxFP16xB"
    >>> problem = parse_perf_key(key)
    >>> problem.in_size, is_perf_key_exact(problem)
    ((55, 55), False)
    >>> format_perf_key(problem) == key
    True
    """
    match = compiled(_PERF).fullmatch(text)
    if not match:
        raise _perf_key_error(text)
    *numbers, layout, types, direction = match.groups()
    ndim, channels, h, w, d, fh, fw, fd, out_channels, batch, *rest = map(int, numbers)
    ph, pw, pd, sh, sw, sd, dh, dw, dd, bias, groups = rest
    in_type, wei_type, out_type = _types(types) or _unknown_type(types, text, "perf-db key")
    size: tuple[int, ...]
    in_size: tuple[int, ...]
    fil: tuple[int, ...]
    pad: tuple[int, ...]
    step: tuple[int, ...]
    dil: tuple[int, ...]
    if ndim == 2:
        if (d, fd, pd, sd, dd) != (1, 1, 0, 0, 0):
            raise InputError(
                "a 2-D key has in_d and fil_d 1, and pad_d, conv_stride_d and dilation_d 0; "
                f"got {d}, {fd}, {pd}, {sd}, {dd}",
                f"perf-db key {text!r}",
            )
        size, fil, pad, step, dil = (h, w), (fh, fw), (ph, pw), (sh, sw), (dh, dw)
    elif ndim == 3:
        size, fil, pad, step, dil = (
            (d, h, w),
            (fd, fh, fw),
            (pd, ph, pw),
            (sd, sh, sw),
            (dd, dh, dw),
        )
    else:
        raise InputError(f"expected 2 or 3, got {ndim}", f"perf-db key {text!r}, spatial_dim")
    if direction == "F":
        in_size = size
        out_size: tuple[int, ...] = ()
        if 0 not in step:
            # Explicit, because MIOpen takes 1 where the filter doesn't fit.
            out_size = tuple(max(1, n) for n in conv_out_size(size, fil, step, pad, dil))
    else:
        channels, out_channels = out_channels, channels
        in_type, out_type = out_type, in_type
        out_size = size
        in_size = tuple(
            max(1, (o - 1) * s + e * (f - 1) + 1 - 2 * p)
            for o, s, e, f, p in zip(size, step, dil, fil, pad, strict=True)
        )
    try:
        return ConvProblem(
            direction,
            batch,
            channels,
            in_size,
            out_channels,
            fil,
            step,
            pad,
            dil,
            groups,
            in_type,
            layout,
            wei_type,
            out_type,
            layout,
            layout,
            bias,
            "",
            "",
            "",
            out_size,
        )
    except InputError as error:
        raise InputError(error.message, f"perf-db key {text!r}, {error.where}") from None


def perf_key_values(text: str) -> tuple[int | str, ...]:
    """Take a perf-db key apart into the values of `PERF_FIELDS`.

    Examples
    --------
    >>> perf_key_values("2x64x28x28x1x1x1x1x3x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xB")[-4:]
    (1, 'NCHW', 'FP16', 'B')
    """
    match = compiled(_PERF).fullmatch(text)
    if not match:
        raise _perf_key_error(text)
    *numbers, layout, types, direction = match.groups()
    return (*map(int, numbers), layout, types, direction)


def format_perf_key(problem: ConvProblem) -> str:
    """Perf-db key of a problem.

    Examples
    --------
    >>> format_perf_key(ConvProblem("W", 8, 16, (14, 14), 32, (3, 3), padding=(1, 1)))
    '2x32x14x14x1x3x3x1x16x8x1x1x0x1x1x0x1x1x0x0x1xNCHWxFP32xW'
    """
    if problem.direction == "F":
        channels, size, out_channels = problem.in_channels, problem.in_size, problem.out_channels
        layout = problem.layout
        types = _join_types(problem.dtype, problem.weight_dtype, problem.out_dtype)
    else:
        channels, size, out_channels = problem.out_channels, problem.out_size, problem.in_channels
        layout = problem.out_layout
        types = _join_types(problem.out_dtype, problem.weight_dtype, problem.dtype)
    fil, pad, step, dil = problem.filter_size, problem.padding, problem.stride, problem.dilation
    if len(size) == 2:
        return (
            f"2x{channels}x{size[0]}x{size[1]}x1x{fil[0]}x{fil[1]}x1x{out_channels}"
            f"x{problem.batch}x{pad[0]}x{pad[1]}x0x{step[0]}x{step[1]}x0x{dil[0]}x{dil[1]}x0"
            f"x{problem.bias}x{problem.groups}x{layout}x{types}x{problem.direction}"
        )
    return (
        f"3x{channels}x{size[1]}x{size[2]}x{size[0]}x{fil[1]}x{fil[2]}x{fil[0]}x{out_channels}"
        f"x{problem.batch}x{pad[1]}x{pad[2]}x{pad[0]}x{step[1]}x{step[2]}x{step[0]}"
        f"x{dil[1]}x{dil[2]}x{dil[0]}"
        f"x{problem.bias}x{problem.groups}x{layout}x{types}x{problem.direction}"
    )


def is_perf_key_exact(problem: ConvProblem) -> bool:
    """Whether a problem's perf-db key belongs to no other size of x.

    The key holds the size of x for F, and that of y for B and W, from which x follows only where
    all strides are 1 and the filter fits the padded input.

    Examples
    --------
    >>> is_perf_key_exact(ConvProblem("W", 8, 16, (14, 14), 32, (3, 3)))
    True
    >>> is_perf_key_exact(ConvProblem("W", 8, 16, (14, 14), 32, (3, 3), stride=(2, 2)))
    False
    """
    if problem.direction == "F":
        return True
    return set(problem.stride) == {1} and problem.out_size == conv_out_size(
        problem.in_size, problem.filter_size, problem.stride, problem.padding, problem.dilation
    )


@lru_cache(maxsize=4096)
def _sizes(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x")))


@lru_cache(maxsize=256)
def _types(text: str) -> tuple[str, str, str] | None:
    if text in DTYPE_BYTES:
        return text, text, text
    if match := compiled(_THREE_TYPES).fullmatch(text):
        return match[1], match[2], match[3]
    return None


@lru_cache(maxsize=4096)
def _options(text: str) -> tuple[int, str, str, str]:
    match = compiled(_OPTIONS).fullmatch(text)
    assert match
    return int(match[1] or 1), match[2] or "", match[3] or "", match[4] or ""


@lru_cache(maxsize=4096)
def _join(separator: str, sizes: tuple[int, ...]) -> str:
    return separator.join(map(str, sizes))


def _join_types(first: str, weight: str, last: str) -> str:
    return first if first == weight == last else first + weight + last


def _unknown_type(types: str, text: str, what: str) -> tuple[str, str, str]:
    raise InputError(
        f"unknown data type {types!r}; known are {', '.join(DTYPE_BYTES)}, "
        "or three of them in a row",
        f"{what} {text!r}",
    )


def _find_key_error(text: str) -> InputError:
    """Say which field of a find-db key is wrong."""

    def wrong(number: int, name: str, expected: str) -> InputError:
        return InputError(
            f"expected {expected}, got {fields[number - 1]!r}",
            f"find-db key {text!r}, field {number} ({name})",
        )

    fields = text.split("-")
    three = len(fields) > 4 and "x" in fields[4] and "x" not in fields[3]
    names = _FIND_FIELDS_3D if three else _FIND_FIELDS_2D
    kinds = f"{len(names) + 4} or {len(names) + 6} fields separated by '-' in a {2 + three}-D key"
    if len(fields) not in (len(names) + 4, len(names) + 6):
        return InputError(f"expected {kinds}, got {len(fields)}", f"find-db key {text!r}")
    for number, (name, value) in enumerate(zip(names, fields, strict=False), 1):
        if "x" in name or name.endswith("s"):
            parts = value.split("x")
            if len(parts) != 2 + three or not all(map(compiled(_DIGITS).fullmatch, parts)):
                return wrong(number, name, f"{2 + three} numbers joined by 'x'")
        elif not compiled(_DIGITS).fullmatch(value):
            return wrong(number, name, "a number")
    number = len(names) + 1
    if not compiled(_DIGITS).fullmatch(fields[number - 1]):
        return wrong(number, "bias", "a number")
    for number in range(len(names) + 2, len(fields) - 1):
        if not compiled("[A-Za-z]+").fullmatch(fields[number - 1]):
            return wrong(number, "layout", "a layout such as NCHW")
    number = len(fields) - 1
    if not _types(fields[number - 1]):
        return wrong(number, "data type", f"one of {', '.join(DTYPE_BYTES)}")
    return wrong(
        number + 1,
        "direction",
        "F, B or W, and after it at most _g<groups>, _ci<type>, _cw<type>, _co<type>",
    )


def _perf_key_error(text: str) -> InputError:
    """Say which field of a perf-db key is wrong."""
    fields = text.split("x")
    if len(fields) != len(PERF_FIELDS):
        return InputError(
            f"expected {len(PERF_FIELDS)} fields separated by 'x', got {len(fields)}",
            f"perf-db key {text!r}",
        )
    expected = ["a number"] * 21 + [
        "a layout such as NCHW",
        "a data type such as FP32",
        "F, B or W",
    ]
    patterns = ["[0-9]{1,19}"] * 21 + ["[A-Za-z]+", "[A-Z0-9]+", "[FBW]"]
    for number, (name, value) in enumerate(zip(PERF_FIELDS, fields, strict=True), 1):
        if not compiled(patterns[number - 1]).fullmatch(value):
            return InputError(
                f"expected {expected[number - 1]}, got {value!r}",
                f"perf-db key {text!r}, field {number} ({name})",
            )
    raise AssertionError(text)
