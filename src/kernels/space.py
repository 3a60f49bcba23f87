"""Configuration spaces: what can be tuned, within which constraints.

A `Tunable` knows its values, its default and its numeric encoding, so that the same object serves
search, learning and keys in databases. A `Space` enumerates the configs that meet all constraints.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import log2, prod

from foretune.errors import InputError


class Config(Mapping[str, int]):
    """One value for each tuning parameter of a solver; hashable, ordered as the space is.

    Examples
    --------
    >>> config = Config({"TILE": 64, "UNROLL": 4})
    >>> config["TILE"], config.key
    (64, 'TILE=64,UNROLL=4')
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, int]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> int:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Config({self.key})"

    @property
    def key(self) -> str:
        """Text form, as databases hold it: ``NAME=value`` pairs; "" for the empty config."""
        return ",".join(f"{name}={value}" for name, value in self._values.items())


@dataclass(frozen=True)
class Tunable:
    """A tuning parameter.

    Parameters
    ----------
    name : str
        Also the macro that the kernel source reads.
    values : tuple of int
        All values, in rising order.
    default : int
        One of them.
    scale : {'log2', 'linear', 'category'}
        How a value becomes a number for learning: its binary logarithm (0 for 0), itself, or its
        place among the values.

    Examples
    --------
    >>> tile = Tunable("TILE", (16, 32, 64), default=32)
    >>> tile.encode(64), tile.neighbours(32)
    (6.0, (16, 64))
    """

    name: str
    values: tuple[int, ...]
    default: int
    scale: str = "log2"

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"default {self.default} of {self.name} is none of {self.values}")

    def encode(self, value: int) -> float:
        """Turn a value into a number in which near values are alike."""
        if self.scale == "log2":
            return log2(value) if value > 0 else 0.0
        return float(value if self.scale == "linear" else self.values.index(value))

    def neighbours(self, value: int) -> tuple[int, ...]:
        """Values next to this one."""
        place = self.values.index(value)
        return (*self.values[max(0, place - 1) : place], *self.values[place + 1 : place + 2])


@dataclass(frozen=True)
class Constraint:
    """What the values of some tunables must meet together.

    Parameters
    ----------
    names : tuple of str
        The tunables that it speaks of.
    holds : callable
        Takes their values in this order; true if they go together.
    reason : str
        What is said of a config that breaks it, such as "more local memory than the device has".
    """

    names: tuple[str, ...]
    holds: Callable[..., bool]
    reason: str


@dataclass(frozen=True)
class Space:
    """All configs of a solver for a problem on a device.

    Parameters
    ----------
    tunables : tuple of Tunable
        In the order in which keys name them.
    constraints : tuple of Constraint

    Examples
    --------
    >>> space = Space(
    ...     (Tunable("TILE", (16, 32, 64), 32), Tunable("THREADS", (32, 64), 64)),
    ...     (Constraint(("TILE", "THREADS"), lambda t, n: t <= n, "a thread would idle"),),
    ... )
    >>> [config.key for config in space][:2], len(space)
    (['TILE=16,THREADS=32', 'TILE=16,THREADS=64'], 5)
    >>> space.default.key
    'TILE=32,THREADS=64'
    """

    tunables: tuple[Tunable, ...] = ()
    constraints: tuple[Constraint, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tunables."""
        return tuple(tunable.name for tunable in self.tunables)

    @property
    def default(self) -> Config:
        """Every tunable at its default. Solvers choose defaults that meet the constraints."""
        return Config({tunable.name: tunable.default for tunable in self.tunables})

    @cached_property
    def _checks(self) -> tuple[tuple[Constraint, ...], ...]:
        """Of each tunable: the constraints that can be decided once it is set."""
        place = {name: index for index, name in enumerate(self.names)}
        checks: list[list[Constraint]] = [[] for _ in self.tunables]
        for constraint in self.constraints:
            checks[max(place[name] for name in constraint.names)].append(constraint)
        return tuple(map(tuple, checks))

    def __iter__(self) -> Iterator[Config]:
        yield from self._complete({}, 0)

    def _complete(self, values: dict[str, int], index: int) -> Iterator[Config]:
        if index == len(self.tunables):
            yield Config(values)
            return
        tunable = self.tunables[index]
        for value in tunable.values:
            values[tunable.name] = value
            if all(check.holds(*map(values.get, check.names)) for check in self._checks[index]):
                yield from self._complete(values, index + 1)
        values.pop(tunable.name, None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, config: object) -> bool:
        return isinstance(config, Config) and self.why_not(config) is None

    @property
    def unconstrained_size(self) -> int:
        """Configs if there were no constraints; constant time."""
        return prod(len(tunable.values) for tunable in self.tunables)

    def why_not(self, config: Mapping[str, int]) -> str | None:
        """Say why a config is none of this space; None if it is."""
        if set(config) != set(self.names):
            return f"expected the parameters {', '.join(self.names) or '(none)'}"
        for tunable in self.tunables:
            if config[tunable.name] not in tunable.values:
                known = ", ".join(map(str, tunable.values))
                return f"{tunable.name} is {config[tunable.name]}, expected one of {known}"
        for constraint in self.constraints:
            if not constraint.holds(*(config[name] for name in constraint.names)):
                return constraint.reason
        return None

    def sample(self, count: int, seed: int = 0) -> list[Config]:
        """Draw different configs at random, the default first; all if there are no more.

        Parameters
        ----------
        count : int
            Configs to draw at most.
        seed : int
            The same seed draws the same configs.
        """
        drawn = dict.fromkeys([self.default][:count])
        generator = random.Random(seed)
        tries = 50 * count if self.unconstrained_size > 20 * count else 0
        for _ in range(tries):
            if len(drawn) == count:
                return list(drawn)
            config = self.draw(generator)
            if config is not None:
                drawn[config] = None
        rest = [config for config in self if config not in drawn]
        generator.shuffle(rest)
        return [*drawn, *rest[: max(0, count - len(drawn))]]

    def draw(self, generator: random.Random) -> Config | None:
        """Draw a value of each tunable at random; None if they don't go together.

        The same state of the generator draws the same values in another space, but for tunables
        whose values differ.
        """
        # Several times as fast as choice().
        numbers = [generator.random() for _ in self.tunables]
        values: dict[str, int] = {}
        for tunable, checks, number in zip(self.tunables, self._checks, numbers, strict=True):
            values[tunable.name] = tunable.values[int(number * len(tunable.values))]
            for check in checks:
                if not check.holds(*map(values.__getitem__, check.names)):
                    return None
        return Config(values)

    def neighbours(self, config: Mapping[str, int]) -> list[Config]:
        """Configs that differ in one tunable by one step."""
        steps = (
            Config({**config, tunable.name: value})
            for tunable in self.tunables
            for value in tunable.neighbours(config[tunable.name])
        )
        return [step for step in steps if self.why_not(step) is None]

    def encode(self, config: Mapping[str, int]) -> tuple[float, ...]:
        """Turn a config into numbers for learning, one for each tunable."""
        return tuple(tunable.encode(config[tunable.name]) for tunable in self.tunables)

    def parse(self, key: str) -> Config:
        """Read a config from its text form, in any order.

        Raises
        ------
        InputError
            If it isn't one of this space.
        """
        values: dict[str, int] = {}
        for part in filter(None, key.split(",")):
            name, _, value = part.partition("=")
            try:
                values[name.strip()] = int(value)
            except ValueError:
                raise InputError(f"expected NAME=number, got {part!r}", "config") from None
        reason = self.why_not(values)
        if reason is not None:
            raise InputError(f"{key!r} is no config here: {reason}", "config")
        return Config({name: values[name] for name in self.names})
