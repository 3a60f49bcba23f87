"""Which of many candidates are worth ranking: those that were fast for problems that are alike."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True)
class Neighbours:
    """Problems that were learnt, with the candidates that were fast for each.

    Attributes
    ----------
    places : array of shape (problems, `DIMENSIONS`)
    lists : tuple of tuple of int
        Candidates of each problem, the fastest first; all of one length.

    Examples
    --------
    >>> known = Neighbours(np.zeros((2, DIMENSIONS)) + [[0.0], [1.0]], ((5, 6), (7, 5)))
    >>> known.ask(np.zeros(DIMENSIONS), 2, 3)
    ([5, 7, 6], 0.0)
    """

    places: Floats
    lists: tuple[tuple[int, ...], ...]

    def ask(self, place: Floats, count: int, most: int) -> tuple[list[int], float]:
        """Merge the lists of the nearest problems, the first of each list first.

        Parameters
        ----------
        place : array of shape (`DIMENSIONS`,)
        count : int
            Problems.
        most : int
            Candidates at most.

        Returns
        -------
        candidates : list of int
        distance : float
            How unlike the nearest problem is.
        """
        distance = np.abs(self.places - place).sum(axis=1)
        nearest: list[int] = distance.argsort(kind="stable")[:count].tolist()
        merged: dict[int, None] = {}
        for same_rank in zip(*(self.lists[problem] for problem in nearest), strict=True):
            merged.update(dict.fromkeys(same_rank))
            if len(merged) >= most:
                break
        return list(merged)[:most], float(distance[nearest[0]])
