"""Reads the trees out of LightGBM's model text, so that LightGBM itself need not be imported."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretune.errors import InputError
from foretune.predictor.forest.tables import MAX_LEAVES

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt

_CATEGORICAL = 1
_MISSING_KIND = 0b1100
_MISSING_IS_ZERO = 0b0100


@dataclass(frozen=True)
class Tree:
    """One tree in pre-order, its leaves numbered from left to right.

    Parameters
    ----------
    features : tuple of int
        The feature that each inner node looks at.
    thresholds : numpy.ndarray
        A row goes left where its feature is at most this (float64).
    left_leaves : tuple of int
        How many leaves are under the left child of each inner node. With pre-order this alone
        gives the tree's shape: the left child is the next node, the right child is that many
        nodes on.
    leaves : numpy.ndarray
        The leaves' values (float64).
    """

    features: tuple[int, ...]
    thresholds: npt.NDArray[np.float64]
    left_leaves: tuple[int, ...]
    leaves: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LightGBMModel:
    """What a model text says: its trees in LightGBM's order, and how they add up.

    Parameters
    ----------
    num_features : int
        Features in a row.
    num_outputs : int
        Raw scores of a row; tree ``i`` adds to score ``i % num_outputs``.
    trees : tuple of Tree
        The trees.
    """

    num_features: int
    num_outputs: int
    trees: tuple[Tree, ...]


def parse_model_text(text: str) -> LightGBMModel:
    """Parse what ``Booster.model_to_string()`` gives.

    Parameters
    ----------
    text : str
        LightGBM's model text (format v3 or v4).

    Returns
    -------
    LightGBMModel
        The trees.

    Raises
    ------
    InputError
        If the text is no such model, or uses what foretune doesn't evaluate: categorical splits,
        linear leaves, zero as missing, averaged outputs, more than 64 leaves.

    Examples
    --------
    >>> model = parse_model_text('''tree
    ... num_tree_per_iteration=1
    ... max_feature_idx=0
    ...
    ... Tree=0
    ... num_leaves=2
    ... num_cat=0
    ... split_feature=0
    ... threshold=0.5
    ... decision_type=2
    ... left_child=-1
    ... right_child=-2
    ... leaf_value=1 2
    ...
    ... end of trees
    ... ''')
    >>> model.trees[0].left_leaves
    (1,)
    """
    blocks = list(_blocks(text))
    if not blocks or "max_feature_idx" not in blocks[0]:
        raise InputError("this is not a LightGBM model text", where="model text")
    if not text.rstrip().endswith("end of trees") and "\nend of trees\n" not in text:
        raise InputError("the text is cut off before 'end of trees'", where="model text")
    header, *trees = blocks
    if "average_output" in header:
        raise InputError("averaged outputs (random forest) are not supported", where="model text")
    try:
        return LightGBMModel(
            num_features=int(header["max_feature_idx"]) + 1,
            num_outputs=int(header["num_tree_per_iteration"]),
            trees=tuple(_tree(block, f"model text, tree {i}") for i, block in enumerate(trees)),
        )
    except (KeyError, ValueError, IndexError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"a field is missing or malformed ({error})", where="model text") from None


def _blocks(text: str) -> Iterator[dict[str, str]]:
    """Split the text into the header's fields and each tree's fields."""
    block: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition("=")
        if key == "Tree" or line == "end of trees":
            yield block
            block = {}
            if line == "end of trees":
                return
        else:
            block[key] = value
    yield block


def _tree(block: dict[str, str], where: str) -> Tree:
    """Put one tree into pre-order."""
    num_leaves = int(block["num_leaves"])
    if num_leaves > MAX_LEAVES:
        raise InputError(f"{num_leaves} leaves, at most {MAX_LEAVES} are supported", where=where)
    if block.get("num_cat", "0") != "0" or block.get("is_linear", "0") != "0":
        raise InputError("categorical splits and linear leaves are not supported", where=where)
    values = np.array(block["leaf_value"].split(), dtype=np.float64)
    if num_leaves == 1:
        return Tree((), np.empty(0), (), values[:1])
    for decision in map(int, block["decision_type"].split()):
        if decision & _CATEGORICAL or decision & _MISSING_KIND == _MISSING_IS_ZERO:
            raise InputError(
                f"decision type {decision}: only numerical splits without a special zero are"
                " supported (train with zero_as_missing=false)",
                where=where,
            )
    features = [int(word) for word in block["split_feature"].split()]
    thresholds = np.array(block["threshold"].split(), dtype=np.float64)
    left = [int(word) for word in block["left_child"].split()]
    right = [int(word) for word in block["right_child"].split()]

    nodes: list[int] = []
    leaves: list[int] = []
    pending = [0]
    while pending:
        child = pending.pop()
        if child < 0:
            leaves.append(~child)
        else:
            nodes.append(child)
            pending += [right[child], left[child]]
        if len(nodes) + len(leaves) > 2 * num_leaves - 1:
            break
    if len(nodes) != num_leaves - 1 or sorted(leaves) != list(range(num_leaves)):
        raise InputError("the child links don't form a tree", where=where)

    count: dict[int, int] = {}
    for node in reversed(nodes):
        count[node] = count.get(left[node], 1) + count.get(right[node], 1)
    return Tree(
        features=tuple(features[node] for node in nodes),
        thresholds=thresholds[nodes],
        left_leaves=tuple(count.get(left[node], 1) for node in nodes),
        leaves=values[leaves],
    )
