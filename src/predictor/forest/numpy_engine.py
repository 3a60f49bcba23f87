"""Evaluates a forest with numpy alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.predictor.forest.tables import Tables

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt


_BLOCK_NODES = 65_536


class NumpyEngine:
    """Compares all nodes of all trees at once.

    Parameters
    ----------
    tables : Tables
        The forest, with at least one tree.
    """

    def __init__(self, tables: Tables) -> None:
        word = tables.node_kills.dtype
        # The lowest leaf's bit, as a float, has the leaf's number as its exponent.
        is_short = word.itemsize == 4
        self._float = np.dtype(np.float32 if is_short else np.float64)
        self._signed = np.dtype(np.int32 if is_short else np.int64)
        self._mantissa_bits = self._signed.type(23 if is_short else 52)
        exponent_of_one = 127 if is_short else 1023
        self._word = word
        self._tables = tables
        self._first_leaf = tables.tree_first_leaf - exponent_of_one
        # A tree has one node less than leaves.
        first_node = tables.tree_first_leaf - np.arange(tables.num_trees)
        depth = np.arange(tables.node_trees.size) - first_node[tables.node_trees]
        # One row for each tree's first node, one for its second ...: reducing over rows is fast.
        shape = (int(depth.max()) + 1, tables.num_trees)
        self._kills = np.zeros(shape, self._signed)
        self._kills[depth, tables.node_trees] = tables.node_kills.view(self._signed)
        self._compare_with = np.zeros(shape, np.intp)
        self._compare_with[depth, tables.node_trees] = tables.node_thresholds
        # As many rows at once as the caches hold.
        self._block = max(1, _BLOCK_NODES // self._kills.size)
        of_row = np.repeat(np.arange(tables.bias.size), tables.output_trees)
        of_block = np.arange(self._block)[:, np.newaxis] * tables.bias.size + of_row
        self._slots = of_block.ravel()
        self._scratch = threading.local()

    def predict_one(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score one row.

        Parameters
        ----------
        row : numpy.ndarray
            One float32 for each feature.

        Returns
        -------
        numpy.ndarray
            One float64 for each output.
        """
        scores: npt.NDArray[np.float64] = self._score(row[np.newaxis])[0]
        return scores

    def predict(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score rows.

        Parameters
        ----------
        rows : numpy.ndarray
            Rows by features, float32.

        Returns
        -------
        numpy.ndarray
            Rows by outputs.
        """
        blocks = range(0, len(rows), self._block)
        return np.concatenate([self._score(rows[i : i + self._block]) for i in blocks])

    def _score(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        tables, count = self._tables, len(rows)
        went_right, ruled_out = (buffer[:count] for buffer in self._buffers())
        # Every index is in range, and of the modes "wrap" is the quickest to find that out.
        is_above = rows.take(tables.threshold_features, 1, mode="wrap") > tables.thresholds
        # -1 is all ones: the kill mask stays where the row goes right and vanishes elsewhere.
        np.negative(is_above.view(np.int8), out=went_right, casting="unsafe")
        went_right.take(self._compare_with, 1, out=ruled_out, mode="wrap")
        np.bitwise_and(ruled_out, self._kills, out=ruled_out)
        dead = np.bitwise_or.reduce(ruled_out, axis=1)
        lowest = ~dead & (dead + 1)
        as_float = lowest.view(self._word).astype(self._float)
        exponent = as_float.view(self._signed) >> self._mantissa_bits
        values = tables.leaves.take(self._first_leaf + exponent, mode="wrap")
        # bincount adds in the order of the trees, in float64, as the compiled loop does.
        outputs = tables.bias.size
        slots = self._slots[: values.size]
        sums = np.bincount(slots, values.ravel(), count * outputs).reshape(count, outputs)
        return np.add(sums, tables.bias, out=sums)

    def _buffers(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Give this thread's scratch memory: fresh pages at every call cost more than the sums."""
        try:
            buffers: tuple[npt.NDArray[Any], npt.NDArray[Any]] = self._scratch.buffers
        except AttributeError:
            buffers = (
                np.empty((self._block, self._tables.thresholds.size), self._signed),
                np.empty((self._block, *self._kills.shape), self._signed),
            )
            self._scratch.buffers = buffers
        return buffers
