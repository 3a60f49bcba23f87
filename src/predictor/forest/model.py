"""A tree ensemble: built from LightGBM, packed in a few bytes a node, answered in microseconds."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import numpy as np

from foretune.errors import InputError
from foretune.predictor.forest.numpy_engine import NumpyEngine
from foretune.predictor.forest.tables import MAX_LEAVES, Tables

if TYPE_CHECKING:  # these imports take some milliseconds at start-up
    import numpy.typing as npt

    from foretune.predictor.forest.lightgbm_text import LightGBMModel, Tree

Engine = Literal["auto", "numpy", "llvm"]
LeafType = Literal["float32", "float16"]

_MAGIC = b"ftforest"
_VERSION = 1
# Magic, version, then checksum and length of all that follows.
_PREFIX = struct.Struct("<8sIII")
_FILE_MAGIC = b"foretune forests 1\n"
# Length and checksum of the index.
_FILE_PREFIX = struct.Struct("<II")
# Features, outputs, trees, nodes, leaves, thresholds, bytes of a bin, bytes of a leaf.
_SIZES = struct.Struct("<8I")

_FLOAT32 = np.dtype(np.float32)
_LIGHTGBM_ZERO = np.float32(1e-35)

_COMPILE_AFTER = 2_500_000
"""Trees evaluated by numpy, process-wide, before compiling: by then it has cost as much time as
compiling does, so the sum is never more than twice the better of the two."""


class _HasModelText(Protocol):
    def model_to_string(self) -> str: ...


class _Engine(Protocol):
    def predict_one(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]: ...

    def predict(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]: ...


class _Work:
    """Trees that numpy has evaluated in this process."""

    def __init__(self) -> None:
        self.trees = 0


_work = _Work()


class Forest:
    """Sums of tree outputs: raw scores from a row of float32 features.

    Both engines, numpy and a loop compiled by llvmlite, give the same bits. With the engine
    ``"auto"`` numpy answers until compiling has become worth its time; without llvmlite numpy
    answers always. Rows must not hold NaN.

    Parameters
    ----------
    threshold_counts : numpy.ndarray
        Number of different thresholds of each feature.
    thresholds : numpy.ndarray
        Each feature's thresholds, rising, feature after feature (float32).
    node_features, node_bins : numpy.ndarray
        Feature of each node, and which of the feature's thresholds it compares with. Nodes stand
        in pre-order, tree after tree.
    node_left_leaves : numpy.ndarray
        Leaves under each node's left child.
    tree_leaves : numpy.ndarray
        Leaves of each tree.
    leaves : numpy.ndarray
        Leaf values from left to right, tree after tree (float32 or float16).
    output_trees : numpy.ndarray
        Trees of each output; the trees of one output stand together.
    bias : numpy.ndarray
        What is added to each output (float64).
    where : str
        File or field to name in an error.

    Attributes
    ----------
    engine : {"auto", "numpy", "llvm"}
        Who answers. ``"llvm"`` raises where llvmlite can't be used, ``"auto"`` never does.

    Raises
    ------
    InputError
        If these arrays don't describe trees.

    Examples
    --------
    One tree: 1 where the feature is at most 0.5, else 2; plus 10.

    >>> import numpy as np
    >>> forest = Forest(
    ...     threshold_counts=np.array([1]), thresholds=np.array([0.5], np.float32),
    ...     node_features=np.array([0]), node_bins=np.array([0]),
    ...     node_left_leaves=np.array([1]), tree_leaves=np.array([2]),
    ...     leaves=np.array([1, 2], np.float32), output_trees=np.array([1]),
    ...     bias=np.array([10.0]),
    ... )
    >>> forest.predict_one(np.array([0.5], np.float32))
    array([11.])
    >>> forest.predict(np.array([[0.4], [0.6]], np.float32)).tolist()
    [[11.0], [12.0]]
    """

    def __init__(
        self,
        *,
        threshold_counts: npt.NDArray[Any],
        thresholds: npt.NDArray[np.float32],
        node_features: npt.NDArray[Any],
        node_bins: npt.NDArray[Any],
        node_left_leaves: npt.NDArray[Any],
        tree_leaves: npt.NDArray[Any],
        leaves: npt.NDArray[Any],
        output_trees: npt.NDArray[Any],
        bias: npt.NDArray[np.float64],
        where: str = "forest",
        _first_leaf_of_node: npt.NDArray[np.intp] | None = None,
    ) -> None:
        self.threshold_counts = threshold_counts.astype(np.intp, copy=False)
        self.thresholds = thresholds
        self.node_features = node_features
        self.node_bins = node_bins
        self.node_left_leaves = node_left_leaves
        self.tree_leaves = tree_leaves.astype(np.intp, copy=False)
        self.leaves = leaves
        self.output_trees = output_trees.astype(np.intp, copy=False)
        self.bias = bias
        self.engine: Engine = "auto"
        self._row_shape = (self.num_features,)
        # Parts of a forest that was checked need no check of their own.
        self._first_leaf_of_node = (
            self._check(where) if _first_leaf_of_node is None else _first_leaf_of_node
        )

    @property
    def num_features(self) -> int:
        """Features in a row."""
        return self.threshold_counts.size

    @property
    def num_outputs(self) -> int:
        """Scores of a row."""
        return self.bias.size

    @property
    def num_trees(self) -> int:
        """Trees in all; constant trees are part of the bias."""
        return self.tree_leaves.size

    @property
    def num_nodes(self) -> int:
        """Inner nodes in all."""
        return self.node_features.size

    def _check(self, where: str) -> npt.NDArray[np.intp]:
        """Prove that no index leads outside; give each node's first leaf within its tree."""

        def demand(holds: Any, what: str) -> None:
            if not holds:
                raise InputError(f"{what}; train the model again", where=where)

        trees, nodes = self.num_trees, self.num_nodes
        demand(self.output_trees.size == self.num_outputs, "outputs and biases differ in number")
        demand(self.output_trees.sum() == trees, "outputs and trees differ in number")
        demand(self.threshold_counts.sum() == self.thresholds.size, "thresholds are missing")
        demand(np.all((self.tree_leaves > 1) & (self.tree_leaves <= MAX_LEAVES)), "a tree's size")
        demand(self.tree_leaves.sum() == self.leaves.size, "leaves are missing")
        demand((self.tree_leaves - 1).sum() == nodes, "nodes are missing")
        demand(self.node_bins.size == nodes == self.node_left_leaves.size, "nodes are missing")
        demand(np.all(self.node_features < self.num_features), "a node's feature is unknown")
        demand(
            np.all(self.node_bins < self.threshold_counts[self.node_features]),
            "a node's threshold is unknown",
        )
        rising = (np.diff(self.thresholds) > 0) | (np.diff(self._threshold_features) > 0)
        demand(np.all(rising), "thresholds don't rise")

        # In pre-order as many leaves come before a node as nodes whose left side has ended.
        left = self.node_left_leaves
        demand(np.all((left > 0) & (left < MAX_LEAVES)), "a node's children are impossible")
        ended = np.cumsum(np.bincount(np.arange(nodes) + left, minlength=nodes)[:nodes])
        sizes = self.tree_leaves - 1
        first_leaf = ended - np.repeat(self._first_nodes, sizes)
        # So no tree ever loses its last leaf, whatever a row goes through.
        demand(
            np.all((first_leaf >= 0) & (first_leaf + left <= np.repeat(sizes, sizes))),
            "a node's children are impossible",
        )
        return first_leaf

    @cached_property
    def _threshold_features(self) -> npt.NDArray[np.intp]:
        """Feature of each threshold."""
        return np.repeat(np.arange(self.num_features), self.threshold_counts)

    @cached_property
    def _first_thresholds(self) -> npt.NDArray[np.intp]:
        """Where the thresholds of each feature start."""
        return np.cumsum(self.threshold_counts) - self.threshold_counts

    @property
    def _first_nodes(self) -> npt.NDArray[np.intp]:
        """Where the nodes of each tree start."""
        sizes = self.tree_leaves - 1
        return np.cumsum(sizes) - sizes

    def of_outputs(self, outputs: Sequence[int]) -> Forest:
        """Give the trees of some outputs alone, to answer those in less time.

        Parameters
        ----------
        outputs : sequence of int

        Returns
        -------
        Forest
            Its outputs are these, in this order; their scores are the same bits.

        Examples
        --------
        >>> forest.of_outputs([3]).predict_one(row) == forest.predict_one(row)[3]  # doctest: +SKIP
        """
        chosen = np.asarray(outputs, np.intp)
        trees = _ranges(self.output_trees, chosen)
        nodes = _ranges(self.tree_leaves - 1, trees)
        features = self.node_features[nodes]
        wanted = self._first_thresholds[features] + self.node_bins[nodes]
        is_used = np.zeros(self.thresholds.size, bool)
        is_used[wanted] = True
        at = (np.cumsum(is_used) - 1)[wanted]
        counts = np.bincount(self._threshold_features[is_used], minlength=self.num_features)
        part = Forest(
            threshold_counts=counts,
            thresholds=self.thresholds[is_used],
            node_features=features,
            node_bins=at - (np.cumsum(counts) - counts)[features],
            node_left_leaves=self.node_left_leaves[nodes],
            tree_leaves=self.tree_leaves[trees],
            leaves=self.leaves[_ranges(self.tree_leaves, trees)],
            output_trees=self.output_trees[chosen],
            bias=self.bias[chosen],
            _first_leaf_of_node=self._first_leaf_of_node[nodes],
        )
        part.engine = self.engine
        return part

    @classmethod
    def from_lightgbm(
        cls,
        models: _HasModelText | str | Sequence[_HasModelText | str],
        *,
        bias: npt.ArrayLike | None = None,
        leaf_type: LeafType = "float32",
    ) -> Forest:
        """Take over the trees of one trained model, or of several that look at the same rows.

        Parameters
        ----------
        models : lightgbm.Booster or str, or a sequence of them
            Models or their texts; the outputs of several stand one after another. A feature that
            a model was trained on as float32 is compared exactly as LightGBM does; leaf values,
            less the middle of their tree, are rounded to `leaf_type`.
        bias : array_like, optional
            What to add to each output, such as the initial scores of a custom objective, which
            LightGBM doesn't keep.
        leaf_type : {"float32", "float16"}
            Precision of the leaves, 4 or 2 bytes each.

        Returns
        -------
        Forest
            The same function.

        Raises
        ------
        InputError
            If a model uses what foretune doesn't evaluate (see `parse_model_text`).
        """
        from foretune.predictor.forest.lightgbm_text import parse_model_text

        several = (
            [models] if isinstance(models, str) or not isinstance(models, Sequence) else models
        )
        texts = [model if isinstance(model, str) else model.model_to_string() for model in several]
        return cls._from_parsed([parse_model_text(text) for text in texts], bias, leaf_type)

    @classmethod
    def _from_parsed(
        cls, models: Sequence[LightGBMModel], bias: npt.ArrayLike | None, leaf_type: LeafType
    ) -> Forest:
        widths = {model.num_features for model in models}
        if len(widths) != 1:
            raise ValueError(f"models of {sorted(widths)} features can't share rows")
        outputs = [
            list(model.trees[output :: model.num_outputs])
            for model in models
            for output in range(model.num_outputs)
        ]
        total = np.zeros(len(outputs)) if bias is None else np.array(bias, np.float64)
        if total.shape != (len(outputs),):
            raise ValueError(f"bias has shape {total.shape}, there are {len(outputs)} outputs")
        # Centred leaves are small, so rounding them costs least; the first tree of an output, which
        # holds LightGBM's own initial score, would otherwise cost most.
        for output, group in enumerate(outputs):
            for tree in group:
                total[output] += _middle(tree)
        by_output = [[tree for tree in group if tree.features] for group in outputs]
        trees = [tree for group in by_output for tree in group]
        features = np.array([f for tree in trees for f in tree.features], np.intp)
        thresholds = _as_float32(
            np.concatenate([np.empty(0), *(tree.thresholds for tree in trees)])
        )
        bins = np.zeros(features.size, np.intp)
        tables = []
        for feature in range(widths.pop()):
            here = features == feature
            table, bins[here] = np.unique(thresholds[here], return_inverse=True)
            tables.append(table)
        leaves = np.concatenate([np.empty(0), *(tree.leaves - _middle(tree) for tree in trees)])
        return cls(
            threshold_counts=np.array([table.size for table in tables], np.intp),
            thresholds=np.concatenate([np.empty(0, np.float32), *tables]),
            node_features=features,
            node_bins=bins,
            node_left_leaves=np.array([n for tree in trees for n in tree.left_leaves], np.intp),
            tree_leaves=np.array([tree.leaves.size for tree in trees], np.intp),
            leaves=leaves.astype(leaf_type),
            output_trees=np.array([len(group) for group in by_output], np.intp),
            bias=total,
        )

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
        if row.shape != self._row_shape or row.dtype != _FLOAT32:
            self._refuse(row)
        if not self.num_trees:
            return self.bias.copy()
        return self._choose(1).predict_one(row)

    def predict(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score rows.

        Parameters
        ----------
        rows : numpy.ndarray
            Rows by features, float32.

        Returns
        -------
        numpy.ndarray
            Rows by outputs, float64.
        """
        if rows.ndim != 2 or rows.shape[1:] != self._row_shape or rows.dtype != _FLOAT32:
            self._refuse(rows)
        if not self.num_trees or not len(rows):
            return np.repeat(self.bias[np.newaxis], len(rows), axis=0)
        return self._choose(len(rows)).predict(rows)

    def _refuse(self, rows: npt.NDArray[Any]) -> NoReturn:
        # Rounding here would move a value across a threshold behind the caller's back.
        raise ValueError(
            f"expected {self.num_features} float32 features, got {rows.dtype} {rows.shape}"
        )

    def _choose(self, num_rows: int) -> _Engine:
        if self.engine == "numpy":
            return self._numpy
        if self.engine == "llvm":
            return self._llvm
        if "_fastest" in self.__dict__:
            return self._fastest
        _work.trees += num_rows * self.num_trees
        return self._numpy if _work.trees < _COMPILE_AFTER else self._fastest

    @cached_property
    def _tables(self) -> Tables:
        word = np.dtype(np.uint32 if self.tree_leaves.max() <= 32 else np.uint64)
        one: npt.NDArray[Any] = np.ones(self.num_nodes, word)
        left = (one << self.node_left_leaves.astype(word)) - one
        return Tables(
            thresholds=self.thresholds,
            threshold_features=self._threshold_features,
            node_thresholds=self._first_thresholds[self.node_features] + self.node_bins,
            node_trees=np.repeat(np.arange(self.num_trees), self.tree_leaves - 1),
            node_kills=left << self._first_leaf_of_node.astype(word),
            leaves=self.leaves.astype(np.float32),
            tree_first_leaf=np.cumsum(self.tree_leaves) - self.tree_leaves,
            output_trees=self.output_trees,
            bias=self.bias,
            num_features=self.num_features,
        )

    @cached_property
    def _numpy(self) -> _Engine:
        return NumpyEngine(self._tables)

    @cached_property
    def _llvm(self) -> _Engine:
        from foretune.predictor.forest.llvm_engine import LLVMEngine

        return LLVMEngine(self._tables)

    @cached_property
    def _fastest(self) -> _Engine:
        try:
            return self._llvm
        except (ImportError, OSError, RuntimeError):
            return self._numpy

    def to_bytes(self) -> bytes:
        """Pack the forest: 3 or 4 bytes a node and 4 (or 2) a leaf.

        They are left as they are in a deflated stream's frame: deflating would save a third on
        disk (and wheels are deflated anyway), and inflating took half of the time of loading.

        Returns
        -------
        bytes
            What `from_bytes` reads. The same forest always gives the same bytes.
        """
        bin_bytes = 1 if self.threshold_counts.max(initial=0) <= 256 else 2
        if self.num_features > 256 or self.threshold_counts.max(initial=0) > 65536:
            raise ValueError("at most 256 features with 65,536 thresholds each can be stored")
        sizes = _SIZES.pack(
            self.num_features,
            self.num_outputs,
            self.num_trees,
            self.num_nodes,
            self.leaves.size,
            self.thresholds.size,
            bin_bytes,
            self.leaves.dtype.itemsize,
        )
        fields = (
            self.bias.astype("<f8"),
            self.output_trees.astype("<u4"),
            self.threshold_counts.astype("<u4"),
            _planes(self.thresholds),
            self.tree_leaves.astype("<u1"),
            self.node_left_leaves.astype("<u1"),
            self.node_features.astype("<u1"),
            _planes(self.node_bins.astype(f"<u{bin_bytes}")),
            _planes(self.leaves),
        )
        body = sizes + zlib.compress(b"".join(field.tobytes() for field in fields), 0)
        return _PREFIX.pack(_MAGIC, _VERSION, zlib.crc32(body), len(body)) + body

    @classmethod
    def from_bytes(cls, data: bytes, where: str = "forest") -> Forest:
        """Unpack what `to_bytes` packed.

        Parameters
        ----------
        data : bytes
            The packed forest.
        where : str
            File or field to name in an error.

        Returns
        -------
        Forest
            The forest that was packed.

        Raises
        ------
        InputError
            If the data was cut, changed, or written by another version.
        """
        if len(data) < _PREFIX.size or not data.startswith(_MAGIC):
            raise InputError("this is not a packed forest", where=where)
        _, version, checksum, length = _PREFIX.unpack_from(data)
        if version != _VERSION:
            raise InputError(
                f"forest format {version}, this foretune reads {_VERSION}; train the model again",
                where=where,
            )
        body = data[_PREFIX.size :]
        if len(body) != length or zlib.crc32(body) != checksum or length < _SIZES.size:
            raise InputError("the forest is cut off or damaged; train the model again", where=where)
        features, outputs, trees, nodes, leaves, thresholds, bin_bytes, leaf_bytes = (
            _SIZES.unpack_from(body)
        )
        try:
            take = _Reader(zlib.decompress(body[_SIZES.size :]))
            forest = cls(
                bias=take.numbers(outputs, "<f8"),
                output_trees=take.numbers(outputs, "<u4"),
                threshold_counts=take.numbers(features, "<u4"),
                thresholds=take.planes(thresholds, "<f4"),
                tree_leaves=take.numbers(trees, "<u1"),
                node_left_leaves=take.numbers(nodes, "<u1"),
                node_features=take.numbers(nodes, "<u1"),
                node_bins=take.planes(nodes, f"<u{bin_bytes}"),
                leaves=take.planes(leaves, f"<f{leaf_bytes}"),
                where=where,
            )
        except InputError:
            raise
        except (zlib.error, ValueError, TypeError) as error:
            raise InputError(f"the forest is damaged ({error})", where=where) from None
        if not take.is_finished:
            raise InputError("the forest is damaged (bytes are left over)", where=where)
        return forest


class _Reader:
    """Takes arrays off the front of a buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_finished(self) -> bool:
        return self._at == len(self._data)

    def numbers(self, count: int, kind: str) -> npt.NDArray[Any]:
        array = np.frombuffer(self._data, kind, count, self._at)
        self._at += array.nbytes
        return array

    def planes(self, count: int, kind: str) -> npt.NDArray[Any]:
        width = np.dtype(kind).itemsize
        planes = self.numbers(count * width, "<u1").reshape(width, count)
        return np.ascontiguousarray(planes.T).view(kind).reshape(count)


def _planes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Put all lowest bytes first, then all second ones: alike bytes side by side deflate better."""
    little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return np.ascontiguousarray(little.view(np.uint8).reshape(array.size, array.dtype.itemsize).T)


def _ranges(sizes: npt.NDArray[np.intp], chosen: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Places of the chosen groups' members, where groups of these sizes stand one after another."""
    wanted = sizes[chosen]
    starts = (np.cumsum(sizes) - sizes)[chosen]
    before = np.cumsum(wanted) - wanted
    return np.repeat(starts - before, wanted) + np.arange(wanted.sum())


def _middle(tree: Tree) -> float:
    return float(tree.leaves.min() + tree.leaves.max()) / 2


def _as_float32(thresholds: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Round thresholds so that every float32 stays on the side where LightGBM puts it."""
    # LightGBM takes every value within 1e-35 of zero for zero, wherever the threshold is.
    within = np.abs(thresholds) <= _LIGHTGBM_ZERO
    below_zero = np.nextafter(-_LIGHTGBM_ZERO, np.float32(-np.inf))
    thresholds = np.where(within, np.where(thresholds < 0, below_zero, _LIGHTGBM_ZERO), thresholds)
    with np.errstate(over="ignore"):
        rounded = thresholds.astype(np.float32)
    below = np.nextafter(rounded, np.float32(-np.inf))
    return np.where(rounded > thresholds, below, rounded)


def save_forests(path: str | Path, forests: Mapping[str, Forest]) -> None:
    """Write forests into one file: an index in JSON, then the packed forests.

    Parameters
    ----------
    path : str or Path
        The file to write.
    forests : mapping of str to Forest
        Forests by name. The same forests always give the same file.

    Examples
    --------
    >>> save_forests("model.forests", {"rank": forest})  # doctest: +SKIP
    """
    packed = {name: forest.to_bytes() for name, forest in forests.items()}
    index = json.dumps({name: len(data) for name, data in packed.items()}).encode()
    prefix = _FILE_PREFIX.pack(len(index), zlib.crc32(index))
    Path(path).write_bytes(b"".join([_FILE_MAGIC, prefix, index, *packed.values()]))


def load_forests(path: str | Path) -> PackedForests:
    """Open a file that `save_forests` wrote.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    PackedForests
        Forests by name, in the file's order. Each is unpacked, and checked, when it is first
        asked for.

    Raises
    ------
    InputError
        If the file is missing, cut, or holds something else; on asking for a forest, if that one
        is damaged.

    Examples
    --------
    >>> load_forests("model.forests")["rank"].predict_one(row)  # doctest: +SKIP
    """
    where = str(path)
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"can't be read ({error.strerror})", where=where) from None
    start = len(_FILE_MAGIC) + _FILE_PREFIX.size
    if len(data) < start or not data.startswith(_FILE_MAGIC):
        raise InputError("this is no file of forests; train the model again", where=where)
    length, checksum = _FILE_PREFIX.unpack_from(data, len(_FILE_MAGIC))
    index = data[start : start + length]
    if zlib.crc32(index) != checksum:
        raise InputError("the index is cut off or damaged; train the model again", where=where)
    try:
        sizes: dict[str, int] = dict(json.loads(index))
        is_index = all(type(size) is int and size >= 0 for size in sizes.values())
    except (TypeError, ValueError, RecursionError):
        is_index = False
    if not is_index:
        raise InputError("this is no index of forests; train the model again", where=where)
    if len(data) != start + length + sum(sizes.values()):
        raise InputError("the file is cut off or too long; train the model again", where=where)
    return PackedForests(data, start + length, sizes, where)


class PackedForests(Mapping[str, Forest]):
    """Forests that are unpacked when they are asked for.

    Attributes
    ----------
    checksum : str
        Of what the file says that it holds: the index, and the checksum of each forest. A forest
        itself is checked when it is asked for.
    """

    def __init__(self, data: bytes, start: int, sizes: dict[str, int], where: str) -> None:
        self._where = where
        checksum = zlib.crc32(data[:start])
        self._data = data
        self._places: dict[str, slice] = {}
        self._forests: dict[str, Forest] = {}
        for name, size in sizes.items():
            self._places[name] = slice(start, start + size)
            checksum = zlib.crc32(data[start : start + min(size, _PREFIX.size)], checksum)
            start += size
        self.checksum = f"{checksum:08x}"

    def __getitem__(self, name: str) -> Forest:
        if name not in self._forests:
            packed = self._data[self._places[name]]
            self._forests[name] = Forest.from_bytes(packed, where=f"{self._where}, {name}")
        return self._forests[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)
