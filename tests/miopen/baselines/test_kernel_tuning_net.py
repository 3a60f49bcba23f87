from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import open_archive
from foretune.miopen.baselines.kernel_tuning_net import KernelTuningNet
from foretune.miopen.keys import parse_perf_key

from .conftest import sample_lines

FORWARD = "ConvHipImplicitGemmGroupFwdXdlops"
BACKWARD = "ConvHipImplicitGemmGroupBwdXdlops"
WEIGHTS = "ConvHipImplicitGemmGroupWrwXdlops"
ASM_1X1 = "ConvAsm1x1U"

#: By solver and data type, problems with their stored configs.
Stored = dict[tuple[str, str], list[tuple[ConvProblem, str]]]


@pytest.fixture(scope="session")
def mi300x_configs(databases: Path) -> Stored:
    """From each third of the first lines of the perf-db, 2-D."""
    rows: Stored = defaultdict(list)
    for line in sample_lines(databases / "gfx942130.db.txt.bz2", 3):
        key, _, items = line.rstrip("\n").partition("=")
        if not key.startswith("2x"):
            continue
        problem = parse_perf_key(key)
        for item in items.split(";"):
            solver, _, config = item.partition(":")
            rows[solver, problem.dtype].append((problem, config))
    return rows


@pytest.fixture(scope="session")
def mi60_configs(databases: Path, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """What MI60's perf-db has for 1x1 filters: MI100's net has no database of its own card."""
    path = tmp_path_factory.mktemp("mi60") / "gfx906_60.db"
    with open_archive(databases / "gfx906_60.db.bz2") as file:
        path.write_bytes(file.read())
    rows: Stored = defaultdict(list)
    with closing(sqlite3.connect(path)) as database:
        for direction, dtype, batch, first, height, width, second, config in database.execute(
            "SELECT direction, data_type, batchsize, in_channels, in_h, in_w, out_channels, params"
            " FROM config JOIN perf_db ON config.id = perf_db.config WHERE solver = ?"
            " AND conv_stride_h = 1 AND conv_stride_w = 1 AND layout = 'NCHW'"
            " AND pad_h = 0 AND pad_w = 0 AND group_count = 1 ORDER BY perf_db.id",
            (ASM_1X1,),
        ):
            channels = (first, second) if direction == "F" else (second, first)
            problem = ConvProblem(
                direction, batch, channels[0], (height, width), channels[1], (1, 1), dtype=dtype
            )
            rows[ASM_1X1, dtype].append((problem, config))
    return rows


def hits(net: KernelTuningNet, rows: list[tuple[ConvProblem, str]]) -> tuple[float, float]:
    """Shares of exact hits of the net, and of the config that is stored most often."""
    counts = Counter(config for _, config in rows)
    sample = rows[:: max(1, len(rows) // 1000)]
    configs = [config for config, _ in counts.most_common()]
    picks = net.predict_many([problem for problem, _ in sample], configs)
    hit = sum(pick == config for pick, (_, config) in zip(picks, sample, strict=True))
    return hit / len(sample), counts.most_common(1)[0][1] / len(rows)


@pytest.mark.parametrize(
    ("solver", "dtype", "floor"),
    [
        (FORWARD, "FP16", 0.11),
        (FORWARD, "FP32", 0.16),
        (FORWARD, "BF16", 0.09),
        (BACKWARD, "FP16", 0.28),
        (BACKWARD, "FP32", 0.34),
        (WEIGHTS, "FP16", 0.25),
        (WEIGHTS, "FP32", 0.27),
    ],
)
def test_mi300x_configs_are_hit_as_often_as_measured_before(
    solver: str, dtype: str, floor: float, databases: Path, mi300x_configs: Stored
) -> None:
    # A wrong feature or token place costs most of it.
    net = KernelTuningNet.load(databases, "gfx942", solver)
    hit, usual = hits(net, mi300x_configs[solver, dtype])
    assert hit > floor
    assert hit > 2 * usual


@pytest.mark.parametrize(("dtype", "floor"), [("FP32", 0.045), ("FP16", 0.12)])
def test_mi100_net_hits_its_sister_cards_configs(
    dtype: str, floor: float, databases: Path, mi60_configs: Stored
) -> None:
    hit, usual = hits(
        KernelTuningNet.load(databases, "gfx908", ASM_1X1), mi60_configs[ASM_1X1, dtype]
    )
    assert hit > floor
    assert hit > 1.5 * usual


def greedy(net: KernelTuningNet, problem: ConvProblem, configs: list[str]) -> str | None:
    """MIOpen's loop, one problem and one token at a time."""
    states = net.encoder(net._encode([problem]))
    written = 0
    left = [config for config in configs if net.recipe.kernel in config]
    step, steps = 0, net.steps or 1
    while step < steps:
        scores, *states = net.decoder(np.array([[written]], np.float32), *states)
        ranked = sorted(range(len(net.tokens)), key=lambda t: (scores[0, t], t), reverse=True)
        for token in ranked:
            word = net.tokens[token]
            if word == "-1":
                return None
            if net.kernel_steps and step == 0:
                rest = [config for config in left if word in config] if word != "0" else []
                rest = rest if word in net.kernel_steps else []
            else:
                place = step - 1 if net.kernel_steps else step
                rest = [
                    config
                    for config in left
                    if net.recipe.spell(config)[place : place + 1] == [word]
                ]
            if rest:
                break
        else:
            return None
        if net.kernel_steps and step == 0:
            steps = net.kernel_steps[word]
        left, written, step = rest, token, step + 1
    return left[0]


@pytest.mark.parametrize(
    ("arch", "solver", "dtype"),
    [
        ("gfx942", FORWARD, "FP16"),
        ("gfx942", BACKWARD, "FP32"),
        ("gfx942", WEIGHTS, "BF16"),
        ("gfx90a", FORWARD, "FP16"),
        ("gfx90a", BACKWARD, "FP32"),
        ("gfx90a", WEIGHTS, "FP16"),
        ("gfx908", ASM_1X1, "FP32"),
    ],
)
def test_batches_decode_as_miopens_loop_does(
    arch: str,
    solver: str,
    dtype: str,
    databases: Path,
    mi300x_configs: Stored,
    mi60_configs: Stored,
) -> None:
    rows = (mi60_configs if solver == ASM_1X1 else mi300x_configs)[solver, dtype]
    configs = sorted({config for _, config in rows})
    problems = [problem for problem, _ in rows[:: len(rows) // 25]]
    net = KernelTuningNet.load(databases, arch, solver)
    picks = net.predict_many(problems, configs)
    assert picks == [greedy(net, problem, configs) for problem in problems]
    assert len(set(picks)) > 3


def test_only_valid_configs_are_written(databases: Path, mi300x_configs: Stored) -> None:
    rows = mi300x_configs[FORWARD, "FP16"]
    rows = rows[:: len(rows) // 30]
    configs = sorted({config for _, config in rows})
    problems = [problem for problem, _ in rows]
    net = KernelTuningNet.load(databases, "gfx942", FORWARD)
    valid = np.zeros((len(problems), len(configs)), bool)
    valid[np.arange(len(problems)), np.arange(len(problems)) % len(configs)] = True
    valid[0] = False
    picks = net.predict_many(problems, configs, valid)
    assert picks[0] is None
    for index, pick in enumerate(picks[1:], 1):
        assert pick in (configs[index % len(configs)], None)
    assert any(picks)
    assert net.predict(problems[0], []) is None


def test_what_each_net_is_asked(databases: Path) -> None:
    forward = KernelTuningNet.load(databases, "gfx942", FORWARD)
    problem = ConvProblem("F", 8, 64, (28, 28), 96, (3, 3), dtype="BF16")
    assert forward.supports(problem)
    assert not KernelTuningNet.load(databases, "gfx90a", FORWARD).supports(problem)
    assert not forward.supports(ConvProblem("B", 8, 64, (28, 28), 96, (3, 3)))
    assert not forward.supports(ConvProblem("F", 8, 64, (4, 28, 28), 96, (3, 3, 3)))
    asm = KernelTuningNet.load(databases, "gfx908", "ConvAsm1x1U")
    assert asm.supports(ConvProblem("B", 8, 64, (28, 28), 96, (1, 1)))
    assert not asm.supports(ConvProblem("B", 8, 64, (28, 28), 96, (3, 3)))
    assert not asm.supports(ConvProblem("F", 8, 64, (28, 28), 96, (1, 1), stride=(2, 2)))
    assert forward.predict(ConvProblem("B", 8, 64, (28, 28), 96, (3, 3)), ["any"]) is None


def test_unknown_net_names_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="known are ConvAsm1x1U"):
        KernelTuningNet.load(tmp_path, "gfx908", "ConvAsm3x3U")
    with pytest.raises(InputError, match="known are none"):
        KernelTuningNet.load(tmp_path, "gfx950", FORWARD)
    with pytest.raises(InputError, match="gfx942_ConvHipIgemmGroupFwdXdlops_metadata"):
        KernelTuningNet.load(tmp_path, "gfx942", FORWARD)
