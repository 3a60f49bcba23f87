"""Configs come apart into tokens and go together again."""

import bz2
import re
import sqlite3
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.config_grammar import join_config, parameter_names, parse_config
from foretune.miopen.solvers import SOLVERS

DATABASES = Path(__file__).parents[3] / "shared" / "miopen-db"

ASM = "wrw,nhwc,fp16,0,1,256,256,32,32,32,8,2,2,2,2,0,0,1,0,0,1,4,1,8,1,8,1,32,1,4,1,8,1,8,1,32,61"


def _shipped_configs(tmp_path: Path) -> dict[str, set[str]]:
    configs: dict[str, set[str]] = defaultdict(set)
    for path in DATABASES.glob("*.db.txt.bz2"):
        text = bz2.decompress(path.read_bytes())
        for solver, config in set(re.findall(rb"[=;]([^:;=\n]+):([^;\n]*)", text)):
            configs[solver.decode()].add(config.decode())
    sqlite = tmp_path / "perf.db"
    sqlite.write_bytes(bz2.decompress((DATABASES / "gfx906_60.db.bz2").read_bytes()))
    connection = sqlite3.connect(sqlite)
    for solver, config in connection.execute("SELECT DISTINCT solver, params FROM perf_db"):
        configs[solver].add(config)
    connection.close()
    return configs


@pytest.mark.skipif(not DATABASES.is_dir(), reason="AMD's databases are not beside the checkout")
def test_every_shipped_config_is_read_without_loss_and_named(tmp_path: Path) -> None:
    configs = _shipped_configs(tmp_path)
    assert set(configs) == {solver for solver, info in SOLVERS.items() if info.tunable}
    for solver, texts in configs.items():
        tokens = {text: parse_config(solver, text) for text in texts}
        assert len(set(tokens.values())) == len(texts)
        for text in texts:
            assert join_config(tokens[text]) == text
            names = parameter_names(solver, text)
            assert len(names) == len(set(names)) == len(tokens[text])
            assert not any(name[0] == "p" and name[1:].isdigit() for name in names), text


def test_assembly_implicit_gemm_suffix_is_a_token() -> None:
    solver = "ConvAsmImplicitGemmGTCDynamicWrwXdlopsNHWC"
    tokens = parse_config(solver, ASM + "[1]")
    assert tokens[:3] == ("wrw", "nhwc", "fp16")
    assert tokens[-2:] == ("61", "[1]")
    names = parameter_names(solver, ASM + "[1]")
    assert names[-2:] == ("kernel_index", "split_suffix")
    assert parameter_names(solver, ASM) == names[:-1]
    by_name = dict(zip(names, tokens, strict=True))
    assert by_name["gemm_m_per_block"] == "256"
    assert by_name["gemm_k_global_split"] == "1"


def test_instances_that_differ_in_a_suffix_or_the_pipeline_stay_apart() -> None:
    solver = "ConvHipImplicitGemmGroupWrwXdlops"
    one = "DeviceX<64, BlkGemmPipelineScheduler: Intrawave, BlkGemmPipelineVersion: v1>+16"
    other = "DeviceX<64, BlkGemmPipelineScheduler: Interwave, BlkGemmPipelineVersion: v1>+8"
    pairs = zip(parse_config(solver, one), parse_config(solver, other), strict=True)
    assert [a == b for a, b in pairs] == [True, True, False, True, False]


def test_names_of_an_instance_stop_where_an_older_release_does() -> None:
    text = (
        "DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle"
        "<256, 128, 64, 16, Default, 32, 32, 2, 1, 4, 4, 4, 1, 1>"
    )
    names = parameter_names("ConvHipImplicitGemm3DGroupFwdXdlops", text)
    assert names[0] == "kernel"
    assert names[-1] == "n_shuffle_per_wave"


def test_unknown_parameters_are_named_by_position() -> None:
    assert parameter_names("ConvAsm3x3U", "1,2") == ("p0", "p1")
    assert parameter_names("X", "DeviceNew<1, 2>+4") == ("kernel", "p0", "p1", "split_k")


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "1,",
        "1,,2",
        "1, 2",
        " 1",
        "1;2",
        "1[2",
        "[2]",
        "1[2][3]",
        "1+2",
        "DeviceX<",
        "DeviceX<>",
        "DeviceX<1,2>",
        "DeviceX<1>>",
        "DeviceX<1>+",
        "DeviceX<1>+x",
        "DeviceX<1>+2 Y",
        "DeviceX<1> ",
        "<1>",
        "1\n",
    ],
)
def test_malformed_configs_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="SomeSolver: expected a config"):
        parse_config("SomeSolver", text)


@given(st.text(alphabet="aV1-+[]<>, :\n", max_size=24))
def test_what_is_read_is_written_back(text: str) -> None:
    try:
        tokens = parse_config("X", text)
    except InputError:
        return
    assert join_config(tokens) == text
    assert all(tokens)
    assert len(parameter_names("X", text)) == len(tokens)


word = st.from_regex(r"[A-Za-z0-9_:-]+", fullmatch=True)


@given(word, st.lists(word, min_size=1), st.sampled_from(["", "+16", " Filter1x1Pad0"]))
def test_instances_round_trip(device: str, values: list[str], suffix: str) -> None:
    text = f"{device}<{', '.join(values)}>{suffix}"
    tokens = parse_config("X", text)
    assert tokens == (device + "<", *values, *([suffix] if suffix else []))
    assert join_config(tokens) == text


@given(st.lists(word, min_size=1), st.sampled_from(["", "[7]"]))
def test_lists_round_trip(values: list[str], suffix: str) -> None:
    tokens = parse_config("X", ",".join(values) + suffix)
    assert tokens == (*values, *([suffix] if suffix else []))
    assert join_config(tokens) == ",".join(values) + suffix
