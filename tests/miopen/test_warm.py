"""What is written into user databases is safe, keeps what others wrote, and can be taken back."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.archive import open_archive
from foretune.miopen.keys import format_find_key, format_perf_key
from foretune.miopen.ledger import Entry, ledger_path
from foretune.miopen.predictor import MIOpenPredictor
from foretune.miopen.user_db import Release, parse_release
from foretune.miopen.warm import Answer, Target, decide, find_item, unwarm, warm
from foretune.predictor.prediction import Solution
from tests.miopen.miopen_rules import Machine, read_find_db, read_perf_db

DEVICES = (("gfx908", 120), ("gfx90a", 104), ("gfx90a", 110), ("gfx942", 304))
RELEASES = ("3.3.0.a85ca8a54-dirty", "3.4.0.+mlir", "3.5.1.5b515cf1bc", "3.6.2.cd117724af")
RISK = 0.1


def random_problems(count: int, seed: int) -> list[ConvProblem]:
    """Problems as networks have them, of all kinds."""
    pick = random.Random(seed)
    problems: list[ConvProblem] = []
    while len(problems) < count:
        ndim = pick.choice((2, 2, 2, 3))
        filt = pick.choice((1, 1, 1, 3, 3, 3, 5, 7))
        size = pick.choice((7, 8, 14, 17, 28, 35, 56, 112) if ndim == 2 else (4, 8, 14, 28))
        in_channels = pick.choice((3, 16, 32, 33, 64, 96, 128, 256, 320, 512, 1024))
        out_channels = pick.choice((16, 32, 64, 96, 128, 192, 256, 512, 1024))
        groups = pick.choice((1, 1, 1, 1, 2, 32))
        if in_channels % groups or out_channels % groups or filt > size:
            continue
        problems.append(
            ConvProblem(
                pick.choice("FBW"),
                pick.choice((1, 2, 8, 16, 32, 64, 128, 256)),
                in_channels,
                (size,) * ndim,
                out_channels,
                (filt,) * ndim,
                (pick.choice((1, 1, 1, 2)),) * ndim,
                (pick.choice((0, filt // 2)),) * ndim,
                groups=groups,
                dtype=pick.choice(("FP32", "FP16", "BF16")),
                layout=pick.choice(("", "", "NHWC" if ndim == 2 else "NDHWC")),
            )
        )
    return problems


def text_of(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def machine_of(target: Target) -> Machine:
    release = target.release
    return Machine(target.arch, (release.major, release.minor), release.mlir)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(("arch", "units"), DEVICES)
def test_what_is_written_is_safe_by_miopens_rules(
    tmp_path: Path, arch: str, units: int, release: str
) -> None:
    target = Target(arch, units, parse_release(release), str(tmp_path))
    predictor = MIOpenPredictor(arch, units, risk=RISK, miopen=target.release.solvers)
    answers = decide(random_problems(300, seed=units), predictor, target)
    changes = warm(answers, target)
    assert len(changes.written) > 60
    machine = machine_of(target)
    find, perf = text_of(target.find_db), text_of(target.perf_db)
    assert list(read_find_db(find, machine)) == []
    assert list(read_perf_db(perf, machine)) == []
    assert find.count("\n") == len(changes.written)
    # Only what is accepted at the risk.
    accepted = {
        format_find_key(answer.problem)
        for answer in answers
        if predictor.predict(answer.problem).accepted
    }
    assert {line.partition("=")[0] for line in find.splitlines()} <= accepted


GOOD = (
    "64-28-28-3x3-128-28-28-32-1x1-1x1-1x1-0-NCHW-FP16-F="
    "GemmFwdRest:0.25,903168,miopenConvolutionFwdAlgoGEMM"
)
GOOD_W = (
    "128-28-28-3x3-64-28-28-32-1x1-1x1-1x1-0-NCHW-FP16-W="
    "GemmWrwUniversal:0.25,903168,miopenConvolutionBwdWeightsAlgoGEMM"
)
GOOD_NHWC = (
    "64-28-28-3x3-128-28-28-32-1x1-1x1-1x1-0-NCHW-FP16-F=ConvAsmImplicitGemmGTCDynamicFwdXdlops"
    "NHWC:0.25,22626304,miopenConvolutionFwdAlgoImplicitGEMM"
)
GOOD_CK = (
    "128-28-28-3x3-64-28-28-32-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-W="
    "ConvHipImplicitGemmGroupWrwXdlops:0.25,0,miopenConvolutionBwdWeightsAlgoImplicitGEMM"
)
ODD = (
    "4-7-7-3x3-9-7-7-1-1x1-1x1-1x1-0-NHWC-NHWC-NHWC-FP16-F=ConvAsmImplicitGemmGTCDynamicFwdXdlops"
    "NHWC:0.25,1792,miopenConvolutionFwdAlgoImplicitGEMM"
)
PERF = "2x64x28x28x1x1x1x1x128x32x0x0x0x1x1x0x1x1x0x0x1xNCHWxFP16xF="


@pytest.mark.parametrize("line", [GOOD, GOOD_W, GOOD_NHWC, GOOD_CK, ODD])
def test_the_reader_takes_good_entries(line: str) -> None:
    assert list(read_find_db(f"{line}\n", Machine("gfx942", (3, 3)))) == []


@pytest.mark.parametrize(
    ("line", "machine"),
    [
        (GOOD.replace("FwdAlgo", "BwdDataAlgo"), Machine("gfx942", (3, 3))),
        (GOOD.replace("AlgoGEMM", "AlgoDirect"), Machine("gfx942", (3, 3))),
        (GOOD.replace("AlgoGEMM", "AlgoGemm"), Machine("gfx942", (3, 3))),
        (GOOD_W.replace("AlgoGEMM", "AlgoFFT").replace("GemmWrwUniversal", "fft"),
         Machine("gfx942", (3, 3))),
        (GOOD.replace("903168", "903167"), Machine("gfx942", (3, 3))),
        (GOOD.replace("903168", "0"), Machine("gfx942", (3, 3))),
        (GOOD.replace("903168", "-1"), Machine("gfx942", (3, 3))),
        (GOOD_NHWC.replace("22626304", "22626303"), Machine("gfx942", (3, 3))),
        (GOOD.replace(",miopen", ":miopen"), Machine("gfx942", (3, 3))),
        (GOOD.replace("0.25,", ""), Machine("gfx942", (3, 3))),
        (GOOD.replace("0.25", "0"), Machine("gfx942", (3, 3))),
        (GOOD.replace("0.25", "-0.25"), Machine("gfx942", (3, 3))),
        (GOOD.replace("0.25", "nan"), Machine("gfx942", (3, 3))),
        (GOOD.replace("GemmFwdRest:", "GemmFwdRest,"), Machine("gfx942", (3, 3))),
        (GOOD.replace("GemmFwdRest", "GemmBwdRest"), Machine("gfx942", (3, 3))),
        (GOOD.replace("GemmFwdRest", "SolverOfTheFuture"), Machine("gfx942", (3, 3))),
        (GOOD.replace("GemmFwdRest:", "miopenConvolutionFwdAlgoGEMM:GemmFwdRest,"),
         Machine("gfx942", (3, 3))),
        (f"{GOOD};{GOOD.partition('=')[2]}", Machine("gfx942", (3, 3))),
        (f"{GOOD}\n{GOOD}", Machine("gfx942", (3, 3))),
        (GOOD.replace("=", ""), Machine("gfx942", (3, 3))),
        (GOOD.replace("NCHW", "NCHW-NCHW-NCHW"), Machine("gfx942", (3, 3))),
        (GOOD.replace("-FP16-", "-"), Machine("gfx942", (3, 3))),
        *(
            (
                f"{GOOD.partition('=')[0]}={solver}:0.25,0,miopenConvolutionFwdAlgo{kind}",
                machine,
            )
            for solver, kind, machine in (
                ("ConvAsm1x1U", "Direct", Machine("gfx942", (3, 3))),
                ("ConvOclDirectFwd1x1", "Direct", Machine("gfx90a", (3, 6))),
                ("ConvHipDirectFwd", "Direct", Machine("gfx90a", (3, 3))),
                ("ConvMlirIgemmFwdXdlops", "ImplicitGEMM", Machine("gfx90a", (3, 3))),
            )
        ),
        (GOOD_CK, Machine("gfx942", (3, 5))),
        (GOOD_W.replace("FP16", "BF16"), Machine("gfx942", (3, 6))),
        # As MI100's and MI200's databases have it, from before copies were rounded up.
        (ODD.replace("1792", "1764"), Machine("gfx90a", (3, 3))),
    ],
)  # fmt: skip
def test_the_reader_finds_entries_made_wrong(line: str, machine: Machine) -> None:
    assert list(read_find_db(f"{line}\n", machine))


@pytest.mark.parametrize(
    ("item", "is_good"),
    [
        ("ConvBinWinogradRxSf3x2:181", True),
        ("ConvAsm1x1U:1,8,1,16,1,2,2,2", True),
        ("ConvAsm1x1U:1,8,1,16,1,2,2", False),
        ("ConvAsm1x1U:", False),
        ("ConvHipImplicitGemmGroupFwdXdlops:DeviceXFwd<64, 32, Default>", True),
        ("ConvHipImplicitGemmGroupFwdXdlops:DeviceXBwdWeight<64, 32, Default>", False),
        ("ConvHipImplicitGemmGroupFwdXdlops:DeviceXFwd<64, 32, Default", False),
        ("ConvHipDirectFwd:1,1,1,1,1,1,1,1,1", False),
        ("SolverOfTheFuture:1", False),
        ("ConvBinWinogradRxSf3x2", False),
    ],
)
def test_the_reader_finds_params_made_wrong(item: str, is_good: bool) -> None:
    found = list(read_perf_db(f"{PERF}{item}\n", Machine("gfx90a", (3, 3))))
    assert (found == []) is is_good


@pytest.mark.parametrize("name", ["gfx942130", "gfx90878"])
def test_the_reader_agrees_with_amds_own_databases(miopen_db: Path, name: str) -> None:
    # MI100's was recorded by an older release.
    machine = {
        "gfx942130": Machine("gfx942", (3, 3), mlir=True),
        "gfx90878": Machine("gfx908", (2, 20), mlir=True),
    }[name]
    with open_archive(miopen_db / f"{name}.HIP.fdb.txt.bz2") as file:
        text = b"".join(islice(file, 0, 60_000, 12)).decode()
    findings = list(read_find_db(text, machine))
    assert len(findings) < 0.02 * text.count("\n")
    assert not [what for what in findings if "workspace" in what or "algorithm" in what]


def sure(problem: ConvProblem, solver: str = "GemmFwdRest", values: str = "0.5,0,x") -> Answer:
    key = format_find_key(problem)
    config = Entry(format_perf_key(problem), solver, "1,2,3")
    return Answer(problem, key, "", "sure", Entry(key, solver, values), config)


def problems_of(count: int) -> list[ConvProblem]:
    return [ConvProblem("F", n + 1, 64, (28, 28), 64, (3, 3)) for n in range(count)]


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target("gfx942", 304, Release(3, 3, 0, "abc1234"), str(tmp_path))


def warm_again(answers: Sequence[Answer], target: Target) -> tuple[int, int, int, int]:
    changes = warm(answers, target)
    return (
        len(changes.written), len(changes.unchanged), len(changes.kept), len(changes.withdrawn)
    )  # fmt: skip


def test_what_the_user_tuned_stays(target: Target) -> None:
    first, second, third = (sure(problem) for problem in problems_of(3))
    assert first.find
    assert first.config
    own = f"{first.key}=fft:9,0,mine\nno record\n{second.key}=\n\nother=1"
    target.find_db.write_text(own)
    own_params = f"{first.config.key}=fft:9;GemmFwdRest:7\nnonsense\n"
    target.perf_db.write_text(own_params)
    assert warm_again([first, second, third], target) == (1, 0, 2, 0)
    assert target.find_db.read_text() == f"{own}\n{third.find}\n"
    assert target.perf_db.read_text() == f"{own_params}{third.config}\n"
    unwarm(target.folder)
    assert target.find_db.read_text() == f"{own}\n"
    assert target.perf_db.read_text() == own_params


def test_params_go_beside_those_of_other_solvers(target: Target) -> None:
    (answer,) = map(sure, problems_of(1))
    assert answer.config
    target.perf_db.write_text(f"{answer.config.key}=fft:9\n")
    warm([answer], target)
    assert target.perf_db.read_text() == f"{answer.config.key}=fft:9;GemmFwdRest:1,2,3\n"
    assert [(found.removed, found.changed) for found in unwarm(target.folder)] == [(1, 0), (1, 0)]
    assert target.perf_db.read_text() == f"{answer.config.key}=fft:9\n"


def test_what_foretune_wrote_is_brought_up_to_date(target: Target) -> None:
    one, two = problems_of(2)
    assert warm_again([sure(one), sure(two)], target) == (2, 0, 0, 0)
    content = target.find_db.read_text()
    assert warm_again([sure(one), sure(two)], target) == (0, 2, 0, 0)
    assert target.find_db.read_text() == content
    newer = sure(one, "fft", "0.25,0,y")
    assert warm_again([newer], target) == (1, 0, 0, 0)
    assert target.find_db.read_text() == f"{newer.find}\n{sure(two).find}\n"
    assert target.perf_db.read_text() == f"{sure(two).config}\n{newer.config}\n"
    unsure = Answer(two, format_find_key(two), "not sure enough", "unsure")
    assert warm_again([newer, unsure], target) == (0, 1, 0, 1)
    assert target.find_db.read_text() == f"{newer.find}\n"
    assert target.perf_db.read_text() == f"{newer.config}\n"


def test_only_entries_as_they_were_written_are_taken_back(target: Target) -> None:
    answers = [sure(problem) for problem in problems_of(3)]
    warm(answers, target)
    lines = target.find_db.read_text().splitlines()
    # MIOpen measured the first again, and added a solver to the second.
    lines[0] = lines[0].replace("0.5", "0.75")
    lines[1] += ";fft:1,0,y"
    target.find_db.write_text("".join(f"{line}\n" for line in reversed(lines)))
    assert warm_again(answers, target) == (0, 1, 2, 0)
    dry = unwarm(target.folder, dry_run=True)
    assert unwarm(target.folder) == dry
    assert [(found.path, found.removed, found.changed) for found in dry] == [
        (target.perf_db, 3, 0),
        (target.find_db, 2, 1),
    ]
    assert target.find_db.read_text() == f"{answers[1].key}=fft:1,0,y\n{lines[0]}\n"
    assert not target.perf_db.exists()
    assert not list(Path(target.folder).glob("*.foretune"))
    assert unwarm(target.folder) == []


@pytest.mark.parametrize("name", ["find_db", "perf_db"])
def test_databases_are_taken_back_together_or_not_at_all(target: Target, name: str) -> None:
    warm([sure(problem) for problem in problems_of(2)], target)
    before = target.find_db.read_text(), target.perf_db.read_text()
    ledger = ledger_path(getattr(target, name))
    content = ledger.read_text()
    ledger.write_text("damaged\n")
    with pytest.raises(InputError, match="no ledger"):
        unwarm(target.folder)
    assert (target.find_db.read_text(), target.perf_db.read_text()) == before
    ledger.write_text(content)
    assert sum(found.removed for found in unwarm(target.folder)) == 4


def test_where_nothing_can_be_taken_back_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such folder"):
        unwarm(f"{tmp_path}/none")
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="this is no folder"):
        unwarm(f"{tmp_path}/file")


line = st.one_of(
    st.builds(
        lambda n, rest: f"{format_find_key(problems_of(4)[n])}={rest}",
        st.integers(0, 3),
        st.sampled_from(("", "fft:1,0,x", "GemmFwdRest:0.5,0,x", "nonsense", "a:1;fft:2;a:3")),
    ),
    st.sampled_from(("", "# a comment", "=", "other=fft:1,0,x", "\x00", "no record")),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(line, max_size=5), st.lists(st.integers(0, 3), max_size=4, unique=True))
def test_warm_and_unwarm_leave_what_was_there(lines: list[str], warmed: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        target = Target("gfx942", 304, Release(3, 3, 0, ""), folder)
        before = "".join(f"{one}\n" for one in lines)
        target.find_db.write_text(before)
        answers = [sure(problems_of(4)[n]) for n in warmed]
        changes = warm(answers, target)
        assert len(changes.written) + len(changes.kept) == len(answers)
        after = target.find_db.read_text()
        assert after.startswith(before)
        assert after.count("\n") == len(lines) + len(changes.written)
        unwarm(folder)
        assert text_of(target.find_db) == before
        assert not list(Path(folder).glob("*.foretune"))


def test_an_interrupted_write_claims_nothing_of_the_users(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = "mine=fft:1,0,x\n"
    target.find_db.write_text(own)
    answers = [sure(problem) for problem in problems_of(2)]

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("foretune.miopen.warm.write_user_database", full_disk)
        with pytest.raises(OSError, match="No space"):
            warm(answers, target)
    assert target.find_db.read_text() == own
    assert not target.perf_db.exists()
    unwarm(target.folder)
    assert target.find_db.read_text() == own
    assert warm_again(answers, target) == (2, 0, 0, 0)
    unwarm(target.folder)
    assert target.find_db.read_text() == own


def test_problems_with_one_perf_key_take_turns_only_once(target: Target) -> None:
    small = ConvProblem("W", 8, 16, (14, 14), 32, (3, 3), stride=(2, 2))
    large = replace(small, in_size=(13, 13), out_size=())
    assert format_perf_key(small) == format_perf_key(large)
    answers = [sure(small), sure(large)]
    assert answers[1].config
    answers[1] = replace(answers[1], config=replace(answers[1].config, values="4,5,6"))
    for _ in range(2):
        warm(answers, target)
        assert target.perf_db.read_text() == f"{answers[0].config}\n"


def test_what_miopen_ships_is_not_hidden(target: Target, tmp_path: Path) -> None:
    system = tmp_path / "share"
    system.mkdir()
    problems = [
        ConvProblem("F", n, 256, (14, 14), 256, (3, 3), padding=(1, 1), dtype="FP16")
        for n in (32, 64)
    ]
    predictor = MIOpenPredictor("gfx942", miopen="3.3")
    both = decide(problems, predictor, target)
    assert [answer.kind for answer in both] == ["sure", "sure"]
    assert warm_again(both, target) == (2, 0, 0, 0)
    (system / "gfx942130.HIP.fdb.txt").write_text(f"{both[0].key}=fft:1,0,z\n")
    config = both[1].config
    assert config
    (system / "gfx942130.db.txt").write_text(f"{config.key}={config.id}:measured\n")
    target = replace(target, system_folder=system)
    answers = decide(problems, predictor, target)
    assert [answer.kind for answer in answers] == ["system", "sure"]
    assert warm_again(answers, target) == (0, 1, 0, 1)
    assert text_of(target.find_db) == f"{both[1].find}\n"
    assert text_of(target.perf_db) == ""


def test_a_build_with_sqlite_gets_no_params(target: Target, tmp_path: Path) -> None:
    system = tmp_path / "share"
    system.mkdir()
    (system / "gfx942130.db").touch()
    target = replace(target, system_folder=system)
    problem = ConvProblem("F", 64, 256, (14, 14), 256, (3, 3), padding=(1, 1), dtype="FP16")
    (answer,) = decide([problem], MIOpenPredictor("gfx942", miopen="3.3"), target)
    assert not target.perf_db_is_text
    assert answer.find
    assert answer.config is None


def test_a_dry_run_changes_nothing(tmp_path: Path, target: Target) -> None:
    target = replace(target, folder=str(tmp_path / "not there"))
    changes = warm([sure(problem) for problem in problems_of(2)], target, dry_run=True)
    assert len(changes.written) == 2
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_where_nothing_is_sure(tmp_path: Path, target: Target) -> None:
    problem = problems_of(1)[0]
    warm([Answer(problem, format_find_key(problem), "not sure", "unsure")], target)
    assert [path.name for path in tmp_path.iterdir()] == ["miopen-lockfiles"]


@pytest.mark.parametrize(
    ("solver", "direction", "arch", "release", "reason"),
    [
        ("SolverOfTheFuture", "F", "gfx942", "3.3.0.", "knows no solver"),
        ("ConvHipDirectFwd", "F", "gfx90a", "3.3.0.", "knows no solver"),
        ("ConvOclDirectFwd", "F", "gfx90a", "3.6.0.", "knows no solver"),
        ("ConvOclDirectFwd1x1", "F", "gfx90a", "3.6.0.", "doesn't run"),
        ("ConvAsm1x1U", "F", "gfx942", "3.3.0.", "doesn't run"),
        ("ConvMlirIgemmFwd", "F", "gfx90a", "3.3.0.", "doesn't run"),
        ("GemmFwdRest", "W", "gfx942", "3.3.0.", "not 'W'"),
    ],
)
def test_unsafe_solutions_are_refused(
    solver: str, direction: str, arch: str, release: str, reason: str
) -> None:
    problem = ConvProblem(direction, 8, 64, (28, 28), 64, (3, 3))
    with pytest.raises(InputError, match=reason):
        find_item(problem, Solution(solver, 0.5, 0, 0.99), arch, parse_release(release))


@pytest.mark.parametrize(
    ("solver", "direction", "dtype", "first"),
    [
        ("ConvHipImplicitGemmGroupBwdXdlops", "B", "FP32", (3, 5)),
        ("ConvHipImplicitGemmGroupWrwXdlops", "W", "FP16", (3, 5)),
        ("ConvHipImplicitGemm3DGroupWrwXdlops", "W", "FP16", (3, 5)),
        ("GemmWrwUniversal", "W", "BF16", (3, 6)),
    ],
)
def test_where_later_releases_ask_for_more_nothing_is_said(
    solver: str, direction: str, dtype: str, first: tuple[int, int]
) -> None:
    problem = ConvProblem(direction, 8, 64, (28, 28), 64, (3, 3), dtype=dtype)
    solution = Solution(solver, 0.5, 0, 0.99)
    for release in (Release(3, 3, 0), Release(3, 4, 1), Release(3, 5, 1), Release(3, 6, 2)):
        if release.version[:2] < first:
            assert find_item(problem, solution, "gfx942", release).workspace >= 0
        else:
            with pytest.raises(InputError, match="how much workspace"):
                find_item(problem, solution, "gfx942", release)


def test_copies_are_rounded_up_on_every_arch() -> None:
    problem = ConvProblem("F", 1, 4, (7, 7), 9, (3, 3), padding=(1, 1), dtype="FP16", layout="NHWC")
    solution = Solution("ConvAsmImplicitGemmGTCDynamicFwdXdlopsNHWC", 0.5, 0, 0.99)
    for arch in ("gfx908", "gfx90a", "gfx942"):
        assert find_item(problem, solution, arch, Release(3, 3, 0)).workspace == 1792


@pytest.mark.parametrize("time", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_none_are_refused(time: float) -> None:
    problem = ConvProblem("F", 8, 64, (28, 28), 64, (3, 3))
    with pytest.raises(InputError, match="predicted time"):
        find_item(problem, Solution("GemmFwdRest", time, 0, 0.99), "gfx942", Release(3, 3, 0))


def test_a_damaged_ledger_is_told(target: Target) -> None:
    warm([sure(problems_of(1)[0])], target)
    ledger_path(target.find_db).write_text("something else\n")
    with pytest.raises(InputError, match="no ledger"):
        warm([sure(problems_of(1)[0])], target)
    with pytest.raises(InputError, match="no ledger"):
        unwarm(target.folder)
