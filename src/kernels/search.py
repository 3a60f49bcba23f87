"""Which configs of a space to try next, so that few tries find a good one."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import count as numbers
from itertools import islice
from zlib import crc32

from foretune.kernels.space import Config, Space

#: Larger spaces are drawn from, since listing them would take longer than measuring a few.
_LISTED = 200_000
_DRAWN = 4096
#: Draws at most, of which few may go together.
_MOST_DRAWS = 50 * _DRAWN
#: Configs tried before neighbours of good ones are.
_FIRST_LOOK = 6


class ConfigSearch:
    """Proposes configs of one space, each once.

    The default comes first, then configs in an order that hashing gives, or drawing where the space
    is too large to be listed: it looks random, and the configs that come first for one problem come
    first for all, so that few kernels are built for many problems. Once some are known, every other
    proposal is an untried neighbour (one tunable, one step) of the fastest known. In the end the
    whole space has been proposed, or thousands of configs of a large one.

    Parameters
    ----------
    space : Space
    allowed : callable, optional
        Whether a config may be proposed; default: all.
    seed : int, optional
        Chooses the order.

    Examples
    --------
    >>> from foretune.kernels.space import Tunable
    >>> search = ConfigSearch(Space((Tunable("TILE", (16, 32, 64), 32),)))
    >>> search.propose(2)[0].key, search.propose(5)[0].key != "TILE=32", search.propose(1)
    ('TILE=32', True, [])
    """

    def __init__(
        self,
        space: Space,
        allowed: Callable[[Config], bool] | None = None,
        seed: int = 0,
    ) -> None:
        self._space = space
        self._allowed = allowed
        self._seed = seed
        self._proposed: set[Config] = set()
        #: What comes next, as far as it was looked at, and what comes then.
        self._ahead: deque[Config] = deque()
        self._later = self._ordered()
        self._times: dict[Config, float] = {}
        self._failed: dict[Config, None] = {}
        self._size: int | None = None

    @property
    def space(self) -> Space:
        """The space whose configs are proposed."""
        return self._space

    @property
    def times(self) -> Mapping[Config, float]:
        """Times told."""
        return self._times

    @property
    def failed(self) -> Collection[Config]:
        """Configs that were told to fail."""
        return self._failed.keys()

    @property
    def failures(self) -> int:
        """Failures told."""
        return len(self._failed)

    @property
    def best_ms(self) -> float | None:
        """Shortest time told; None before the first."""
        return min(self._times.values(), default=None)

    @property
    def size(self) -> int:
        """Configs that are proposed in all; takes as long as listing them."""
        if self._size is None:
            self._size = sum(1 for _ in self._ordered())
        return self._size

    @property
    def tried(self) -> int:
        """Configs whose outcome was told."""
        return len(self._times) + self.failures

    def untried(self, count: int) -> list[Config]:
        """List configs that may be proposed, without proposing them.

        Parameters
        ----------
        count : int
            How many at most: first the neighbours of the fastest, then as they would be proposed.
        """
        found = dict.fromkeys(reversed(self._neighbours()))
        for place in numbers():
            if len(found) >= count or not self._look_ahead(place + 1):
                break
            config = self._ahead[place]
            if config not in self._proposed:
                found[config] = None
        allowed = self._allowed or (lambda _: True)
        return [config for config in list(found)[:count] if allowed(config)]

    def is_proposed(self, config: Config) -> bool:
        """Whether a config was proposed, claimed or told."""
        return config in self._proposed

    def claim(self, config: Config) -> None:
        """Take note that a config was proposed by someone else."""
        self._proposed.add(config)

    def give_back(self, config: Config) -> None:
        """Let a proposed config that was not tried be proposed again, first."""
        self._proposed.discard(config)
        self._ahead.appendleft(config)

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Report a time, or None for a failure."""
        self._proposed.add(config)
        if time_ms is None:
            self._failed[config] = None
        else:
            self._times[config] = time_ms

    def propose(self, count: int) -> list[Config]:
        """Give untried configs, the most promising first; fewer at the end of the space."""
        proposals: list[Config] = []
        if not self._proposed and count > 0:
            self._take(self._space.default, proposals)
        near = self._neighbours() if len(self._times) >= _FIRST_LOOK else []
        while len(proposals) < count:
            before = len(proposals)
            if near:
                self._take(near.pop(), proposals)
            if len(proposals) < count:
                self._take_next(proposals)
            if len(proposals) == before and not near:
                break
        return proposals

    def _take(self, config: Config, proposals: list[Config]) -> None:
        if config not in self._proposed:
            self._proposed.add(config)
            if self._allowed is None or self._allowed(config):
                proposals.append(config)

    def _take_next(self, proposals: list[Config]) -> None:
        before = len(proposals)
        while len(proposals) == before and self._look_ahead(1):
            self._take(self._ahead.popleft(), proposals)

    def _look_ahead(self, count: int) -> bool:
        """See to it that so many configs are ahead; false if there are no more."""
        self._ahead.extend(islice(self._later, max(0, count - len(self._ahead))))
        return len(self._ahead) >= count

    def _neighbours(self) -> list[Config]:
        """Untried neighbours of the three fastest, those of the fastest last."""
        fastest = sorted(self._times, key=lambda config: self._times[config])[:3]
        found = [near for config in fastest for near in self._space.neighbours(config)]
        return [near for near in reversed(found) if near not in self._proposed]

    def _ordered(self) -> Iterator[Config]:
        """Give the configs in the order in which they are proposed; of large spaces some."""
        if self._space.unconstrained_size <= _LISTED:
            yield from sorted(self._space, key=self._hash)
            return
        generator = random.Random(self._seed)
        seen = {self._space.default}
        yield self._space.default
        for _ in range(_MOST_DRAWS):
            config = self._space.draw(generator)
            if config is not None and config not in seen:
                seen.add(config)
                yield config
                if len(seen) == _DRAWN:
                    return

    def _hash(self, config: Mapping[str, int]) -> int:
        # crc32 alone maps near texts to near numbers.
        key = ",".join(f"{name}={value}" for name, value in config.items())
        return (
            crc32(crc32(f"{self._seed};{key}".encode()).to_bytes(4, "little")) * 2654435761 % 2**32
        )
