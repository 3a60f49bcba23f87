"""Which of many candidates are worth ranking: those that were fast for problems that are alike."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from foretune.predictor.kernels.features import PROBLEM_FEATURES

Floats = npt.NDArray[np.float64]

#: Sizes that are compared by their logarithm, and what one octave of difference counts.
_SIZES = {"gemm_m": 0.5, "gemm_n": 0.5, "gemm_k": 0.5, "groups": 0.5, "taps": 0.5, "batch": 0.15}
#: Traits, and what a difference of one counts.
_TRAITS = {
    "direction": 6.0,
    "dtype": 4.0,
    "channels_last": 3.0,
    "is_3d": 2.0,
    "is_1x1": 4.0,
    "is_3x3": 2.0,
    "unit_stride": 3.0,
    "depthwise": 10.0,
}
_NAMES = (*PROBLEM_FEATURES, "direction")
_SIZES_AT = np.array([_NAMES.index(name) for name in _SIZES])
_TRAITS_AT = np.array([_NAMES.index(name) for name in _TRAITS])
_SIZE_WEIGHTS = np.array(list(_SIZES.values()))
_TRAIT_WEIGHTS = np.array(list(_TRAITS.values()))
#: Coordinates of a problem.
DIMENSIONS = len(_SIZES) + len(_TRAITS)


def coordinates(rows: npt.NDArray[np.float32]) -> Floats:
    """Place problems so that the sum of differences between two says how unlike they are.

    Parameters
    ----------
    rows : array of shape (..., problem features)
    """
    out = np.empty((*rows.shape[:-1], DIMENSIONS))
    out[..., : len(_SIZES)] = np.log2(np.maximum(rows[..., _SIZES_AT], 1.0)) * _SIZE_WEIGHTS
    out[..., len(_SIZES) :] = rows[..., _TRAITS_AT] * _TRAIT_WEIGHTS
    return out


#: Distance over which a problem's say falls to 1/e.
_REACH = 3.0
#: Problems that have a say; others are too far to be heard.
_HEARD = 24
#: Say of those that stay silent: who is far from everything measured is corrected little.
_SILENT = 0.2


class Neighbourhood(NamedTuple):
    """What the problems learnt say of a new one.

    Attributes
    ----------
    candidates : list of int
        Worth ranking.
    unlike : float
        Distance of the nearest problem.
    nearest : array of int
        Problems that are alike.
    say : array
        How much each of them counts.
    """

    candidates: list[int]
    unlike: float
    nearest: npt.NDArray[np.intp]
    say: npt.NDArray[np.float32]


@dataclass(frozen=True)
class Neighbours:
    """Problems that were learnt, with the candidates that were fast for each.

    Attributes
    ----------
    places : array of shape (problems, `DIMENSIONS`)
    lists : tuple of tuple of int
        Candidates of each problem, the fastest first; all of one length.
    surprise : array of shape (problems, candidates)
        Log slowdown measured less that which the forests tell; 0 where nothing was measured.
    measured : array of shape (problems, candidates)
        1 where something was, else 0.

    Examples
    --------
    >>> known = Neighbours(
    ...     np.zeros((2, DIMENSIONS)) + [[0.0], [1.0]], ((5, 6), (7, 5)), np.ones((2, 8)),
    ...     np.ones((2, 8)),
    ... )
    >>> asked = known.ask(np.zeros(DIMENSIONS), 2, 3)
    >>> asked.candidates, asked.unlike
    ([5, 7, 6], 0.0)
    >>> known.surprises(asked, np.array([0]))[0].round(1)
    array([0.8])
    """

    places: Floats
    lists: tuple[tuple[int, ...], ...]
    surprise: npt.NDArray[np.float32]
    measured: npt.NDArray[np.float32]

    @cached_property
    def _lists(self) -> npt.NDArray[np.intp]:
        return np.array(self.lists, np.intp)

    @cached_property
    def _both(self) -> npt.NDArray[np.float32]:
        return np.hstack([self.surprise, self.measured]).astype(np.float32)

    def ask(self, place: Floats, count: int, most: int) -> Neighbourhood:
        """Merge the lists of the nearest problems, the first of each list first.

        Parameters
        ----------
        place : array of shape (`DIMENSIONS`,)
        count : int
            Problems.
        most : int
            Candidates at most.
        """
        distance = np.abs(self.places - place).sum(axis=1)
        nearest = distance.argsort(kind="stable")[:_HEARD]
        named: list[int] = self._lists[nearest[:count]].T.ravel().tolist()
        merged = dict.fromkeys(named)
        away = distance[nearest]
        say = np.exp(away / -_REACH).astype(np.float32)
        return Neighbourhood(list(merged)[:most], float(away[0]), nearest, say)

    def surprises(
        self, asked: Neighbourhood, candidates: npt.NDArray[np.intp]
    ) -> tuple[Floats, Floats]:
        """Tell by how much candidates were slower than forests say on problems that are alike.

        What a config's numbers don't tell, such as registers that spill, shows there.

        Returns
        -------
        surprise, support : array of shape (candidates,)
            To add to log slowdowns, and the say of those that measured it.
        """
        # All candidates of a few problems lie together; those that are wanted don't.
        said = asked.say @ self._both[asked.nearest]
        support = said[candidates + self.surprise.shape[1]]
        surprise = said[candidates] / (support + _SILENT)
        return surprise.astype(np.float64), support.astype(np.float64)
