"""The grammar of perf-db configs: one string a solver, taken apart and put together.

Two forms occur in the shipped perf-dbs:

* a comma list, ``1,8,1,16,1,2,2,2``; assembly implicit GEMM adds a suffix, ``...,152[2]``;
* a composable-kernel instance, ``DeviceName<64, 32, Default>``, after which may come a split
  (``+16``) or a word (``Filter1x1Stride1Pad0``).

Every token is kept, so that configs which differ are never taken for one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from foretune.errors import InputError

# Nothing of what separates tokens may stand inside one; spaces may, between words.
_WORD = r"[^\s,;<>\[\]+]+(?: [^\s,;<>\[\]+]+)*"
_LIST = re.compile(rf"({_WORD}(?:,{_WORD})*)(\[\d+\])?", re.ASCII)
_INSTANCE = re.compile(rf"({_WORD})<({_WORD}(?:, {_WORD})*)>(\+\d+| {_WORD})?", re.ASCII)

_BLOCK = ("block_size", "m_per_block", "n_per_block", "k_per_block")
_XDL = ("m_per_xdl", "n_per_xdl", "m_xdl_per_wave", "n_xdl_per_wave")
_SOURCES = ("a_source_vector", "b_source_vector")
_SOURCES_TARGETS = ("a_source_vector", "a_target_vector", "b_source_vector", "b_target_vector")
_SHUFFLE = ("m_shuffle_per_wave", "n_shuffle_per_wave")
_PIPELINE = ("pipeline_scheduler", "pipeline_version")
_GROUPED_FWD = (*_BLOCK, "specialization", *_XDL, *_SOURCES, "c_vector", *_SHUFFLE)
_GROUPED_WRW = (
    *(*_BLOCK, "specialization", "k1", "m_xdl_per_wave", "n_xdl_per_wave"),
    *(*_SOURCES_TARGETS, *_SHUFFLE, "c_vector"),
)
_OLD_BWD = (*_BLOCK, "k1", "m_xdl_per_wave", "n_xdl_per_wave", *_SOURCES_TARGETS)
_NHWC = "_Input_N_Hi_Wi_C_Weight_K_Y_X_C_Output_N_Ho_Wo_K"

# Device name -> names of what stands between < and >. A release may leave off the last ones.
_INSTANCE_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle": (*_GROUPED_FWD, "groups_to_merge"),
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle_V3": (*_GROUPED_FWD, *_PIPELINE),
        "DeviceGroupedConvFwdMultipleD_Xdl_CShuffle_Large_Tensor": _GROUPED_FWD,
        "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle_v1": (
            *(*_BLOCK, "a_k1", "b_k1", "specialization"),
            *(*_XDL, *_SOURCES, *_SHUFFLE),
        ),
        "DeviceGroupedConvBwdWeight_Xdl_CShuffle": _GROUPED_WRW,
        "DeviceGroupedConvBwdWeightTwoStage_Xdl_CShuffle": (
            *(*_GROUPED_WRW, *_PIPELINE, "groups_to_merge"),
        ),
        f"DeviceConv2dFwdXdl{_NHWC}": (
            *(*_BLOCK, "specialization", "k1", *_XDL, *_SOURCES_TARGETS),
        ),
        f"DeviceConv2dFwdXdl_C_Shuffle{_NHWC}": _GROUPED_WRW,
        f"DeviceConv2dBwdDataXdl{_NHWC}": _OLD_BWD,
        "DeviceConvNdBwdDataNwcKxcNwk_Xdl": _OLD_BWD,
    }
)

_GEMM_THREADS = (
    *("block_size", "gemm_m_per_block", "gemm_n_per_block", "gemm_k_per_block"),
    *("gemm_m_per_thread", "gemm_n_per_thread"),
)
_GEMM_WAVES = (
    *("gemm_m_per_block", "gemm_n_per_block", "gemm_k_per_block"),
    *("gemm_m_per_wave", "gemm_n_per_wave", "gemm_k_pack"),
)
_GEMM_FACTORS = ("gemm_m_factor", "gemm_n_factor", "gemm_k_total_factor")
_COPY_FWD = ("a_copy_more_k", "b_copy_more_k_pack")
_COPY_WRW = ("a_copy_more_k", "b_copy_more_k")
_V4R1 = (
    *("b_per_block", "k_per_block", "e_per_block", "gemm_n_repeat"),
    *("gemm_m_per_thread", "gemm_n_per_thread"),
    *("gemm_m_cluster_0", "gemm_n_cluster_0", "gemm_m_cluster_1", "gemm_n_cluster_1"),
    *("in_cluster_e", "in_cluster_n1", "in_cluster_b", "in_cluster_n2"),
    *("weight_cluster_e", "weight_cluster_k"),
)
_ASM_IGEMM = (
    *("direction", "layout", "precision", "nxb", "nxe"),
    *("gemm_m_per_block", "gemm_n_per_block", "gemm_k_per_block"),
    *("wave_tile_m", "wave_tile_n", "wave_tile_k", "wave_step_m", "wave_step_n"),
    *("wave_repeat_m", "wave_repeat_n", "multi_head", "vector_store"),
    *("gemm_k_global_split", "merge_e", "pass_through_a"),
    *(
        f"{tensor}_{what}_{i}"
        for tensor in "ab"
        for what in ("thread", "cluster")
        for i in range(4)
    ),
    "kernel_index",
)
_OCL_DIRECT = (
    *("group_tile_1", "group_tile_0", "in_tile_1", "in_tile_0", "out_pixels_1", "out_pixels_0"),
    *("out_pixel_tiles", "in_data_tiles", "stacks"),
)
_OCL_WRW_2 = (
    *("waves", "read_size", "out_channels_per_tile", "out_channel_tiles", "out_rows_in_local"),
)

# Solver -> names of its comma list.
_LIST_NAMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ConvAsm1x1U": (
            *("read_size", "k_mult", "chunks_per_wave", "chunk_size", "n_mult", "c_mult"),
            *("waves_c_in_group", "waves_k_in_group"),
        ),
        "ConvAsm1x1UV2": (
            *("chunk_size", "dwords_per_load", "k_mult", "c_mult", "n_mult", "w_mult", "h_mult"),
            *("h_per_chunk", "waves_k_in_group", "waves_c_in_group"),
        ),
        "ConvAsm3x3U": ("limit_wave_count", "filters_per_wave", "output_lines_per_wave"),
        "ConvAsmBwdWrW1x1": (
            *("chunk_size", "c_per_gpr", "c_mult", "k_per_gpr", "k_mult", "n_per_gpr"),
            *("n_parts", "read_size", "short_store", "data_prefetch"),
        ),
        "ConvAsmBwdWrW3x3": (
            *("limit_wave_count", "reverse_inout", "chunk_size", "k_per_wave"),
            *("pipe_lines_depth", "n_per_group"),
        ),
        "ConvAsmImplicitGemmGTCDynamicBwdXdlopsNHWC": _ASM_IGEMM,
        "ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC": _ASM_IGEMM,
        "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC": _ASM_IGEMM,
        "ConvBinWinogradRxSf2x3": ("n_groups",),
        "ConvBinWinogradRxSf3x2": ("n_groups",),
        "ConvCkIgemmFwdV6r1DlopsNchw": ("kernel_index",),
        "ConvHipImplicitGemmBwdDataV1R1": _GEMM_THREADS,
        "ConvHipImplicitGemmForwardV4R4Xdlops": (*_GEMM_WAVES, *_COPY_FWD, "b_read_vector"),
        "ConvHipImplicitGemmForwardV4R4Xdlops_Padded_Gemm": (
            *(*_GEMM_WAVES, *_GEMM_FACTORS, *_COPY_FWD, "b_read_vector"),
        ),
        "ConvHipImplicitGemmForwardV4R5Xdlops": (*_GEMM_WAVES, *_COPY_FWD, "b_read_vector"),
        "ConvHipImplicitGemmV4R1Fwd": _V4R1,
        "ConvHipImplicitGemmV4R1WrW": _V4R1,
        "ConvHipImplicitGemmV4R4Fwd": _GEMM_THREADS,
        "ConvHipImplicitGemmV4R4WrW": _GEMM_THREADS,
        "ConvHipImplicitGemmWrwV4R4Xdlops": (*_GEMM_WAVES, *_COPY_WRW),
        "ConvHipImplicitGemmWrwV4R4Xdlops_Padded_Gemm": (
            *(*_GEMM_WAVES, *_GEMM_FACTORS, *_COPY_WRW),
        ),
        "ConvMlirIgemmBwd": _GEMM_THREADS,
        "ConvMlirIgemmBwdXdlops": (*_GEMM_WAVES, *_COPY_FWD),
        "ConvMlirIgemmFwd": _GEMM_THREADS,
        "ConvMlirIgemmFwdXdlops": (*_GEMM_WAVES, *_COPY_FWD),
        "ConvMlirIgemmWrW": _GEMM_THREADS,
        "ConvMlirIgemmWrWXdlops": (*_GEMM_WAVES, *_COPY_FWD),
        "ConvOclBwdWrW2<1>": _OCL_WRW_2,
        "ConvOclBwdWrW2<2>": _OCL_WRW_2,
        "ConvOclBwdWrW2<4>": _OCL_WRW_2,
        "ConvOclBwdWrW2<8>": _OCL_WRW_2,
        "ConvOclBwdWrW2<16>": _OCL_WRW_2,
        "ConvOclDirectFwd": _OCL_DIRECT,
        "ConvOclDirectFwd1x1": _OCL_DIRECT,
    }
)

# First character of a suffix token -> its name.
_SUFFIX_NAMES = MappingProxyType({"[": "split_suffix", "+": "split_k", " ": "suffix"})


def parse_config(solver: str, text: str) -> tuple[str, ...]:
    """Tokens of a perf-db config; `join_config` gives the text back.

    Parameters
    ----------
    solver : str
        Solver id, for the error message.
    text : str
        The config as a perf-db holds it.

    Returns
    -------
    tuple of str
        The list's values, or the instance's name and what stands between its angle brackets.
        A suffix is one token at the end that keeps the character which sets it off.

    Raises
    ------
    InputError
        If the text has neither form.

    Examples
    --------
    >>> parse_config("ConvAsm3x3U", "0,8,7")
    ('0', '8', '7')
    >>> parse_config("ConvHipImplicitGemmGroupWrwXdlops", "DeviceX<64, Default, Pipe: v1>+16")
    ('DeviceX<', '64', 'Default', 'Pipe: v1', '+16')
    """
    if match := _LIST.fullmatch(text):
        head: tuple[str, ...] = ()
        tokens = match[1].split(",")
        suffix = match[2]
    elif match := _INSTANCE.fullmatch(text):
        head = (match[1] + "<",)
        tokens = match[2].split(", ")
        suffix = match[3]
    else:
        raise InputError(
            f"expected a config such as 1,8,2 or DeviceName<64, 32>, got {text!r}", solver
        )
    return (*head, *tokens, suffix) if suffix else (*head, *tokens)


def join_config(tokens: Sequence[str]) -> str:
    """Text of a config: the inverse of `parse_config`.

    Parameters
    ----------
    tokens : sequence of str
        As `parse_config` returns them.

    Examples
    --------
    >>> join_config(("DeviceX<", "64", "Default", "Pipe: v1", "+16"))
    'DeviceX<64, Default, Pipe: v1>+16'
    >>> join_config(("fwd", "152", "[2]"))
    'fwd,152[2]'
    """
    end = len(tokens) - (tokens[-1][0] in _SUFFIX_NAMES)
    suffix = "".join(tokens[end:])
    if tokens[0].endswith("<"):
        return f"{tokens[0]}{', '.join(tokens[1:end])}>{suffix}"
    return ",".join(tokens[:end]) + suffix


def parameter_names(solver: str, text: str) -> tuple[str, ...]:
    """Names of the tokens of a config, one each.

    Configs of one solver can have different names: those of composable-kernel solvers depend on
    the kernel, and a suffix may be there or not.

    Parameters
    ----------
    solver : str
        Solver id.
    text : str
        The config.

    Returns
    -------
    tuple of str
        Where the meaning isn't known: "p0", "p1", ... by position.

    Raises
    ------
    InputError
        As `parse_config`.

    Examples
    --------
    >>> parameter_names("ConvAsm3x3U", "0,8,7")
    ('limit_wave_count', 'filters_per_wave', 'output_lines_per_wave')
    >>> parameter_names("SolverOfTheFuture", "0,8[2]")
    ('p0', 'p1', 'split_suffix')
    """
    tokens = parse_config(solver, text)
    suffix = _SUFFIX_NAMES.get(tokens[-1][0])
    end = len(tokens) - (suffix is not None)
    start = 0
    names: tuple[str, ...] = ()
    if tokens[0].endswith("<"):
        start = 1
        names = ("kernel", *_INSTANCE_NAMES.get(tokens[0][:-1], ()))
    elif len(_LIST_NAMES.get(solver, ())) == end:
        names = _LIST_NAMES[solver]
    if len(names) > end:
        names = names[:end]
    positional = tuple(f"p{i - start}" for i in range(len(names), end))
    named = (*names, *positional)
    return (*named, suffix) if suffix else named
