"""Evaluates a forest with a loop that llvmlite compiles once a process.

The loop is generic: it is given the tables of a forest, so a hundred forests share one compilation
of some 20 milliseconds. Only `llvmlite.binding` is imported, and only when an engine is made.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.predictor.forest.tables import Tables

if TYPE_CHECKING:  # its import takes some milliseconds at start-up
    import numpy.typing as npt

# Slots of the argument block, eight bytes each.
_ARGUMENTS = (
    "thresholds",  # float: rising within a feature, closed by +inf, which nothing exceeds
    "kept",  # WORD: the leaves that survive when a row is above that threshold
    "trees",  # i32: the tree that loses the others
    "starts",  # i32: where each feature's thresholds start
    "alive",  # WORD: scratch, the surviving leaves of each tree
    "leaves",  # float
    "first_leaf",  # i32: of each tree
    "first_tree",  # i32: of each output, and the end
    "bias",  # double: of each output
    "num_features",
    "num_trees",
    "num_outputs",
)

_LOOP = """
declare WORD @llvm.cttz.WORD(WORD, i1)

define void @predict(ptr %arguments, ptr %rows, i64 %num_rows, ptr %scores) {
entry:
LOAD_ARGUMENTS
  br label %row.check

row.check:
  %r = phi i64 [0, %entry], [%r.next, %row.end]
  %row.more = icmp slt i64 %r, %num_rows
  br i1 %row.more, label %row.begin, label %done
row.begin:
  %row.offset = mul i64 %r, %num_features
  %row = getelementptr float, ptr %rows, i64 %row.offset
  %score.offset = mul i64 %r, %num_outputs
  %row.scores = getelementptr double, ptr %scores, i64 %score.offset
  br label %revive

revive:
  %v = phi i64 [0, %row.begin], [%v.next, %revive]
  %v.at = getelementptr WORD, ptr %alive, i64 %v
  store WORD -1, ptr %v.at
  %v.next = add i64 %v, 1
  %v.more = icmp slt i64 %v.next, %num_trees
  br i1 %v.more, label %revive, label %feature

feature:
  %f = phi i64 [0, %revive], [%f.next, %feature.end]
  %x.at = getelementptr float, ptr %row, i64 %f
  %x = load float, ptr %x.at
  %start.at = getelementptr i32, ptr %starts, i64 %f
  %start.32 = load i32, ptr %start.at
  %start = zext i32 %start.32 to i64
  br label %node
node:
  %n = phi i64 [%start, %feature], [%n.next, %rule.out]
  %threshold.at = getelementptr float, ptr %thresholds, i64 %n
  %threshold = load float, ptr %threshold.at
  %is.above = fcmp ogt float %x, %threshold
  br i1 %is.above, label %rule.out, label %feature.end
rule.out:
  %kept.at = getelementptr WORD, ptr %kept, i64 %n
  %kept.here = load WORD, ptr %kept.at
  %tree.at = getelementptr i32, ptr %trees, i64 %n
  %tree.32 = load i32, ptr %tree.at
  %tree = zext i32 %tree.32 to i64
  %alive.at = getelementptr WORD, ptr %alive, i64 %tree
  %alive.before = load WORD, ptr %alive.at
  %alive.after = and WORD %alive.before, %kept.here
  store WORD %alive.after, ptr %alive.at
  %n.next = add i64 %n, 1
  br label %node
feature.end:
  %f.next = add i64 %f, 1
  %f.more = icmp slt i64 %f.next, %num_features
  br i1 %f.more, label %feature, label %output

output:
  %o = phi i64 [0, %feature.end], [%o.next, %output.end]
  %o.next = add i64 %o, 1
  %begin.at = getelementptr i32, ptr %first_tree, i64 %o
  %begin.32 = load i32, ptr %begin.at
  %begin = zext i32 %begin.32 to i64
  %end.at = getelementptr i32, ptr %first_tree, i64 %o.next
  %end.32 = load i32, ptr %end.at
  %end = zext i32 %end.32 to i64
  br label %sum.check
sum.check:
  %t = phi i64 [%begin, %output], [%t.next, %sum.add]
  %sum = phi double [0.0, %output], [%sum.next, %sum.add]
  %t.more = icmp slt i64 %t, %end
  br i1 %t.more, label %sum.add, label %output.end
sum.add:
  %left.at = getelementptr WORD, ptr %alive, i64 %t
  %left = load WORD, ptr %left.at
  %bit.word = call WORD @llvm.cttz.WORD(WORD %left, i1 true)
  %bit = WIDENED
  %first.at = getelementptr i32, ptr %first_leaf, i64 %t
  %first.32 = load i32, ptr %first.at
  %first = zext i32 %first.32 to i64
  %leaf = add i64 %first, %bit
  %value.at = getelementptr float, ptr %leaves, i64 %leaf
  %value.32 = load float, ptr %value.at
  %value = fpext float %value.32 to double
  %sum.next = fadd double %sum, %value
  %t.next = add i64 %t, 1
  br label %sum.check
output.end:
  %bias.at = getelementptr double, ptr %bias, i64 %o
  %bias.here = load double, ptr %bias.at
  %total = fadd double %sum, %bias.here
  %total.at = getelementptr double, ptr %row.scores, i64 %o
  store double %total, ptr %total.at
  %o.more = icmp slt i64 %o.next, %num_outputs
  br i1 %o.more, label %output, label %row.end
row.end:
  %r.next = add i64 %r, 1
  br label %row.check
done:
  ret void
}
"""

# Rows for which an engine has memory of its own: asking for an address takes as long as a row.
_FEW = 8

Function = Callable[[int, int, int, int], None]


def _source(word: str) -> str:
    """Write the loop for trees of 32 or 64 bits."""
    lines = []
    for slot, name in enumerate(_ARGUMENTS):
        kind = "i64" if name.startswith("num_") else "ptr"
        lines.append(f"  %slot.{slot} = getelementptr i64, ptr %arguments, i64 {slot}")
        lines.append(f"  %{name} = load {kind}, ptr %slot.{slot}")
    # LLVM has no conversion from a type to itself.
    widened = "add i64 %bit.word, 0" if word == "i64" else f"zext {word} %bit.word to i64"
    source = _LOOP.replace("LOAD_ARGUMENTS", "\n".join(lines))
    return source.replace("WIDENED", widened).replace("WORD", word)


@cache
def _compiled(word: str) -> tuple[Function, Any]:
    """Compile the loop; the second value owns the machine code and must live as long."""
    # llvmlite costs 173 MB and some 50 ms to load: a process that asks for little never needs it.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_source(word))
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, jit=True)
    owner = llvm.create_mcjit_compiler(module, machine)
    owner.finalize_object()
    pointer = ctypes.c_void_p
    # PYFUNCTYPE keeps the interpreter lock: releasing it costs more than a row.
    kind = ctypes.PYFUNCTYPE(None, pointer, pointer, ctypes.c_int64, pointer)
    return kind(owner.get_function_address("predict")), owner


class LLVMEngine:
    """Runs down each feature's rising thresholds until one is not exceeded.

    Parameters
    ----------
    tables : Tables
        The forest, with at least one tree.

    Raises
    ------
    ImportError, OSError, RuntimeError
        If llvmlite is absent or can't make machine code here.
    """

    def __init__(self, tables: Tables) -> None:
        word = tables.node_kills.dtype
        self._function = _compiled("i32" if word.itemsize == 4 else "i64")[0]
        self._tables = tables
        self._word = word
        features = tables.threshold_features[tables.node_thresholds]
        # Thresholds rise within a feature and features rise: one key sorts by both.
        order = np.argsort(tables.node_thresholds, kind="stable")
        ends = np.cumsum(np.bincount(features, minlength=tables.num_features))
        self._arrays = {
            "thresholds": np.insert(
                tables.thresholds[tables.node_thresholds[order]], ends, np.float32(np.inf)
            ),
            "kept": np.insert(~tables.node_kills[order], ends, 0),
            "trees": np.insert(tables.node_trees[order], ends, 0).astype(np.int32),
            "starts": (np.append(0, ends[:-1]) + np.arange(ends.size)).astype(np.int32),
            "leaves": tables.leaves,
            "first_leaf": tables.tree_first_leaf.astype(np.int32),
            "first_tree": np.append(0, np.cumsum(tables.output_trees)).astype(np.int32),
            "bias": tables.bias,
        }
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
        scratch = self._own_scratch()
        # Asking an array for its address costs a microsecond, these addresses are known.
        scratch.row[:] = row
        self._function(scratch.arguments_at, scratch.row_at, 1, scratch.scores_at)
        return scratch.scores.copy()

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
        scratch = self._own_scratch()
        count = len(rows)
        if count <= _FEW:
            scratch.rows[:count] = rows
            self._function(scratch.arguments_at, scratch.row_at, count, scratch.scores_at)
            return scratch.few_scores[:count].copy()
        rows = np.ascontiguousarray(rows)
        scores = np.empty((count, self._tables.bias.size))
        self._function(scratch.arguments_at, rows.ctypes.data, count, scores.ctypes.data)
        return scores

    def _own_scratch(self) -> _Scratch:
        """Give this thread's working memory."""
        try:
            scratch: _Scratch = self._scratch.value
        except AttributeError:
            scratch = self._scratch.value = self._new_scratch()
        return scratch

    def _new_scratch(self) -> _Scratch:
        alive = np.empty(self._tables.num_trees, self._word)
        addresses = {name: array.ctypes.data for name, array in self._arrays.items()}
        addresses |= {
            "alive": alive.ctypes.data,
            "num_features": self._tables.num_features,
            "num_trees": self._tables.num_trees,
            "num_outputs": self._tables.bias.size,
        }
        arguments = np.array([addresses[name] for name in _ARGUMENTS], np.int64)
        return _Scratch(arguments, alive, self._tables.num_features, self._tables.bias.size)


class _Scratch:
    """One thread's argument block and working memory, with their addresses."""

    def __init__(
        self,
        arguments: npt.NDArray[np.int64],
        alive: npt.NDArray[Any],
        num_features: int,
        num_outputs: int,
    ) -> None:
        self.arguments = arguments
        self.alive = alive
        self.rows = np.empty((_FEW, num_features), np.float32)
        self.few_scores = np.empty((_FEW, num_outputs))
        self.row: npt.NDArray[np.float32] = self.rows[0]
        self.scores: npt.NDArray[np.float64] = self.few_scores[0]
        self.arguments_at = arguments.ctypes.data
        self.row_at = self.row.ctypes.data
        self.scores_at = self.scores.ctypes.data
