"""The trees as bit masks: what both engines evaluate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt


MAX_LEAVES = 64
"""A tree's leaves are the bits of one machine word."""


@dataclass(frozen=True, eq=False)
class Tables:
    """A forest whose trees are words and whose leaves are bits.

    A node that a row leaves to the right rules out the leaves under its left child. What is left of
    a tree's leaves after all its nodes, wherever they are, were compared: the lowest is the row's
    leaf (QuickScorer, Lucchese et al., 2015). Nothing walks from node to node, so nothing waits.

    Parameters
    ----------
    thresholds : numpy.ndarray
        Each feature's different thresholds, rising, feature after feature (float32).
    threshold_features : numpy.ndarray
        The feature of each threshold.
    node_thresholds : numpy.ndarray
        The threshold that each node compares with.
    node_trees : numpy.ndarray
        The tree of each node, rising.
    node_kills : numpy.ndarray
        The leaves under each node's left child, as bits (uint32 or uint64).
    leaves : numpy.ndarray
        The leaf values, tree after tree (float32).
    tree_first_leaf : numpy.ndarray
        Where each tree's leaves start.
    output_trees : numpy.ndarray
        How many trees each output has; the trees of one output stand together.
    bias : numpy.ndarray
        What each output starts from (float64).
    num_features : int
        Features in a row.
    """

    thresholds: npt.NDArray[np.float32]
    threshold_features: npt.NDArray[np.intp]
    node_thresholds: npt.NDArray[np.intp]
    node_trees: npt.NDArray[np.intp]
    node_kills: npt.NDArray[Any]
    leaves: npt.NDArray[np.float32]
    tree_first_leaf: npt.NDArray[np.intp]
    output_trees: npt.NDArray[np.intp]
    bias: npt.NDArray[np.float64]
    num_features: int

    @cached_property
    def num_trees(self) -> int:
        """Trees in all."""
        return self.tree_first_leaf.size
