"""Devices share problems out, and take over from who is lost."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from foretune.kernels.conv.problem import ConvProblem
from foretune.kernels.registry import solver
from foretune.kernels.rounds import Rounds
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.kernels.search import ConfigSearch
from foretune.kernels.task import Task

DEVICE = DeviceProperties("opencl", "a processor", "cpu", 2, 1, 65536, 1024)
PROBLEM = ConvProblem("F", 1, 8, (8, 8), 8, (3, 3))


def one_task() -> Task:
    naive = solver("conv", "ConvNaive")
    search = ConfigSearch(naive.space(PROBLEM, DEVICE))
    return Task(PROBLEM, "a problem", {naive: search}, limit=1)


def test_who_waits_gets_the_last_visit_of_who_is_lost() -> None:
    rounds = Rounds([one_task()], devices=2)
    busy, idle = rounds.join(), rounds.join()
    visit = rounds.next(busy)
    assert visit is not None
    # Nothing is left to propose, so the problem is in nobody's share any more.
    assert rounds.next(busy) is None
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(rounds.next, idle, wait=60.0)
        assert not rounds.is_over
        rounds.finish(visit)
        rounds.leave(busy)
        taken = waiting.result()
    assert taken is not None
    assert taken.task is visit.task
    taken.candidates.clear()
    rounds.finish(taken)
    assert rounds.next(idle, wait=60.0) is None
    assert rounds.is_over
