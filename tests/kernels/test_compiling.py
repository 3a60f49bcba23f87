"""Compiling in child processes, and keeping what was built or failed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foretune.kernels.runtime import binaries
from foretune.kernels.runtime.binaries import BinaryCache
from foretune.kernels.runtime.compiling import Compiler
from foretune.kernels.runtime.device import CompileError, DeviceError
from foretune.kernels.runtime.executor import Executor
from foretune.kernels.solver import KernelSource

BACKEND = """
import os, signal, time
from foretune.kernels.runtime.device import CompileError

def compiler(*target):
    def build(source, macros):
        if source == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if source == "hang":
            time.sleep(3600)
        if source == "wrong":
            raise CompileError("line 1: wrong")
        if source == "fails":
            raise OSError("no space left")
        return repr((source, macros, target, os.getpid())).encode()
    return build

"""
MACROS = (("DIRECTION", 0), ("DTYPE", 0), ("THREADS", 64))


def _naive(**changed: int) -> KernelSource:
    macros = tuple({**dict(MACROS), **changed}.items())
    return KernelSource("conv/solvers/naive.cl", "conv_naive", macros)


@pytest.fixture
def own(executor: Executor, tmp_path: Path) -> Executor:
    """An executor with an empty cache of its own."""
    return Executor(executor.device, BinaryCache(tmp_path))


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A backend beside the real ones, in this process and its children."""
    package = tmp_path / "shadow"
    package.mkdir()
    (package / "fake_backend.py").write_text(BACKEND)
    monkeypatch.syspath_prepend(str(package))
    return "fake_backend"


def test_builds_in_another_process(fake: str) -> None:
    with Compiler(fake, ("arch",), package="") as compiler:
        built = eval(compiler.compile("source", MACROS))
    assert built[:3] == ("source", MACROS, ("arch",))
    assert built[3] != os.getpid()


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("wrong", "^line 1: wrong$"),
        ("crash", r"the compiler failed: the process crashed \(SIGSEGV\)"),
        ("hang", "the compiler failed: took more than 0.2 s"),
        ("fails", "the compiler failed: OSError: no space left"),
    ],
)
def test_failures_have_a_reason_and_cost_nothing_else(fake: str, source: str, reason: str) -> None:
    with Compiler(fake, (), timeout=0.2, package="") as compiler:
        with pytest.raises(CompileError, match=reason):
            compiler.compile(source, MACROS)
        assert compiler.compile("good", MACROS)


def test_builds_many_at_a_time(fake: str) -> None:
    sources = ["good", "wrong", "better", "crash", *map(str, range(20))]
    with Compiler(fake, (), package="") as compiler:
        results = dict(compiler.compile_many([(text, MACROS) for text in sources], workers=2))
    assert sorted(results) == list(range(len(sources)))
    assert isinstance(results[1], CompileError)
    assert isinstance(results[3], CompileError)
    built = [eval(result) for result in results.values() if isinstance(result, bytes)]
    assert len(built) == len(sources) - 2
    assert {source for source, *_ in built} == set(sources) - {"wrong", "crash"}


def test_a_kernel_is_built_once(own: Executor) -> None:
    assert own.kernel(_naive()) is own.kernel(_naive())
    assert own.built == 1
    again = Executor(own.device, own.cache)
    again.kernel(_naive())
    assert again.built == 0
    again.kernel(_naive(DTYPE=1))
    assert again.built == 1


def test_reloads_without_a_compiler(own: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    own.kernel(_naive())

    def poisoned(*_: object) -> None:
        raise AssertionError("the compiler was asked")

    monkeypatch.setattr(Compiler, "compile", poisoned)
    monkeypatch.setattr(Compiler, "compile_many", poisoned)
    monkeypatch.setattr(type(own.device), "compile", poisoned)
    again = Executor(own.device, own.cache)
    again.kernel(_naive())
    assert again.build_many([_naive()]) == {}
    with pytest.raises(AssertionError, match="was asked"):
        again.kernel(_naive(DTYPE=2))


def test_a_damaged_binary_is_built_again(own: Executor) -> None:
    own.kernel(_naive())
    (path,) = own.cache.folder.glob("*/*.bin")
    path.write_bytes(path.read_bytes()[:-1])
    again = Executor(own.device, own.cache)
    again.kernel(_naive())
    assert again.built == 1


def test_a_binary_that_does_not_load_is_built_again(own: Executor) -> None:
    own.kernel(_naive())
    (path,) = own.cache.folder.glob("*/*.bin")
    own.cache.put(path.stem, b"of another release")
    with pytest.raises(DeviceError):
        own.device.load(b"of another release", "conv_naive")
    again = Executor(own.device, own.cache)
    again.kernel(_naive())
    assert again.built == 1


def test_a_failure_is_remembered(own: Executor, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = _naive(element=3)
    reasons = []
    for executor in (own, Executor(own.device, own.cache)):
        with pytest.raises(CompileError) as raised:
            executor.kernel(wrong)
        reasons.append(str(raised.value))
        assert executor.build_many([wrong, _naive()]) == {wrong: reasons[-1]}
    assert own.built == 2
    assert executor.built == 0
    assert reasons[0] == reasons[1]
    monkeypatch.setattr(binaries, "FAILURE_LIFE", -1.0)
    with pytest.raises(CompileError):
        executor.kernel(wrong)
    assert executor.built == 1


def test_many_kernels_are_built_with_progress(own: Executor) -> None:
    kernels = [_naive(DTYPE=dtype) for dtype in (0, 1, 2)] + [_naive(element=3), _naive()]
    own.kernel(_naive(DTYPE=1))
    told: list[tuple[int, int]] = []
    failures = own.build_many(kernels, 2, lambda done, of: told.append((done, of)))
    assert list(failures) == [_naive(element=3)]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert own.built == 4
    for kernel in kernels:
        if kernel not in failures:
            own.kernel(kernel)
    assert own.built == 4
    own.close()


def test_the_cache_keeps_within_its_limit(tmp_path: Path) -> None:
    cache = BinaryCache(tmp_path, limit=10_000)
    for number in range(30):
        cache.put(f"{number:064x}", bytes([number]) * 1000)
        os.utime(cache._path(f"{number:064x}"), (number, number))
        if number == 5:
            assert cache.get(f"{0:064x}") is not None  # now it is the last one used
    kept = [number for number in range(30) if cache.get(f"{number:064x}") is not None]
    size = sum(path.stat().st_size for path in tmp_path.glob("*/*"))
    assert size <= 10_000
    assert 0 in kept
    assert 29 in kept
    assert kept[1:] == list(range(kept[1], 30))


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = BinaryCache(tmp_path / "file")
    cache.put("ab" * 32, b"content")
    cache.put_failure("ab" * 32, "reason")
    assert cache.get("ab" * 32) is None
    assert cache.failure("ab" * 32) is None


def test_many_processes_share_a_cache(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "from foretune.kernels.runtime.binaries import BinaryCache\n"
        "cache = BinaryCache(sys.argv[1], limit=60_000)\n"
        "for round in range(60):\n"
        "    key = f'{round % 8:02x}' * 32\n"
        "    content = cache.get(key)\n"
        "    assert content is None or len(set(content)) == 1 and len(content) == 5000, content\n"
        "    cache.put(key, sys.argv[2].encode() * 5000)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    processes = [
        subprocess.Popen([sys.executable, "-c", script, tmp_path, str(number)], env=environment)
        for number in range(4)
    ]
    assert [process.wait() for process in processes] == [0] * 4
    assert not list(tmp_path.glob("*/.new-*"))
