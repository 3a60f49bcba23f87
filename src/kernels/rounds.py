"""Which problem a device visits next: rounds over its share of the problems.

Each device has a share of its own, so that times of one problem come from one device. Who runs out
of work takes half of the share that is longest; what a device leaves behind goes to the others.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from threading import Condition
from typing import Any

from foretune.kernels.solver import Candidate, KernelSource
from foretune.kernels.task import Pace, Task

_FIRST_BATCH = 8
_LARGEST_BATCH = 256
#: Longer ones are not allowed on all systems.
_LONGEST_WAIT = 3600.0


@dataclass
class Visit:
    """A batch of configs for one problem.

    Parameters
    ----------
    task : Task
    candidates : deque
        Those that were not tried yet.
    left : int
        Visits of the device's round from this one on.
    failures : callable
        Waits for its kernels, and gives those that can't be built, with the reason.
    """

    task: Task
    candidates: deque[Candidate[Any]]
    left: int
    failures: Callable[[], dict[KernelSource, str]] = dict


@dataclass
class Share:
    """Problems of one device: those to visit in this round, and those that were."""

    upcoming: deque[Task] = field(default_factory=deque)
    seen: list[Task] = field(default_factory=list)
    batch: int = _FIRST_BATCH // 2

    @property
    def tasks(self) -> list[Task]:
        """All of them, the next first."""
        return [*self.upcoming, *self.seen]

    def __len__(self) -> int:
        """Problems in all."""
        return len(self.upcoming) + len(self.seen)


class Rounds:
    """Problems that devices of one kind share out among themselves.

    Parameters
    ----------
    tasks : iterable of Task
    devices : int
        That are expected to join.

    Examples
    --------
    >>> rounds = Rounds([], devices=2)
    >>> rounds.next(rounds.join()) is None
    True
    """

    def __init__(self, tasks: Iterable[Task], devices: int) -> None:
        # Those of which least is known first, where an earlier run was stopped in a round.
        self._free = sorted(tasks, key=lambda task: task.tried)
        self._expected = devices
        self._shares: list[Share] = []
        self._in_hand: Counter[str] = Counter()
        self._changed = Condition()
        self._is_stopped = False

    def join(self) -> Share:
        """Give a new device its share of what is nobody's."""
        with self._changed:
            share = Share(seen=self._free[:: max(1, self._expected)])
            self._free = _others(self._free, share.seen)
            self._expected -= 1
            self._shares.append(share)
            return share

    def leave(self, share: Share) -> None:
        """Let the others have a share; its visits are to be finished before."""
        with self._changed:
            self._shares = [other for other in self._shares if other is not share]
            self._free += [*share.upcoming, *share.seen]
            self._changed.notify_all()

    def next(
        self,
        share: Share,
        pace: Pace | None = None,
        without: Collection[str] = (),
        wait: float = 0.0,
    ) -> Visit | None:
        """Choose a device's next visit and its batch of configs.

        Parameters
        ----------
        share : Share
        pace : Pace, optional
            For those who choose.
        without : collection of str
            Problems; None is given when it is the turn of one of them.
        wait : float, optional
            Seconds at most to wait for problems that other devices may leave.

        Returns
        -------
        Visit or None
            None if there is nothing to do, or nothing yet.
        """
        until = time.monotonic() + wait
        while True:
            task = self._take(share, without, until)
            if task is None:
                return None
            # Without the lock, since nobody else touches a task in hand: choosing takes a while.
            candidates = task.propose(share.batch, pace)
            if candidates:
                return Visit(task, deque(candidates), 1 + len(share.upcoming))
            with self._changed:
                share.seen = _others(share.seen, [task])
                self._let_go(task)

    @property
    def is_over(self) -> bool:
        """Whether nothing is left that could be visited, or nobody is to go on."""
        with self._changed:
            return self._is_stopped or self._is_done()

    def stop(self) -> None:
        """Give no more visits."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()

    def finish(self, visit: Visit) -> None:
        """Say that a visit is over; what was not tried may be chosen again."""
        with self._changed:
            if visit.candidates:
                for candidate in visit.candidates:
                    visit.task.give_back(candidate)
                if not any(visit.task is task for task in self._all()):
                    self._free.append(visit.task)
            self._let_go(visit.task)

    def _let_go(self, task: Task) -> None:
        self._in_hand[task.text] -= 1
        self._changed.notify_all()

    def _take(self, share: Share, without: Collection[str], until: float) -> Task | None:
        with self._changed:
            while not share.upcoming:
                self._begin_round(share)
                left = until - time.monotonic()
                if share.upcoming:
                    break
                if self._is_stopped or left <= 0 or self._is_done():
                    return None
                self._changed.wait(min(left, _LONGEST_WAIT))
            if self._is_stopped or share.upcoming[0].text in without:
                return None
            task = share.upcoming.popleft()
            share.seen.append(task)
            self._in_hand[task.text] += 1
            return task

    def _begin_round(self, share: Share) -> None:
        count = -(-len(self._free) // len(self._shares))
        tasks = share.seen + self._free[:count]
        self._free = self._free[count:]
        if tasks:
            share.batch = min(2 * share.batch, _LARGEST_BATCH)
        else:
            tasks = self._half_of_longest(share)
        share.seen = []
        share.upcoming = deque(sorted(tasks, key=lambda task: task.tried))

    def _half_of_longest(self, taker: Share) -> list[Task]:
        longest = max(self._shares, key=len)
        idle = [task for task in longest.tasks if not self._in_hand[task.text]]
        count = min(len(idle), len(longest) // 2)
        taken = idle[len(idle) - count :]
        longest.upcoming = deque(_others(longest.upcoming, taken))
        longest.seen = _others(longest.seen, taken)
        taker.batch = max(taker.batch, longest.batch)
        return taken

    def _is_done(self) -> bool:
        # Who has a visit in hand may be lost, and the visit is another's then.
        return not self._in_hand.total() and not any(True for _ in self._all())

    def _all(self) -> Iterator[Task]:
        return chain(self._free, *(share.tasks for share in self._shares))


def _others(tasks: Iterable[Task], without: Sequence[Task]) -> list[Task]:
    return [task for task in tasks if not any(task is other for other in without)]
