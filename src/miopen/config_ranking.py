"""Which tuning parameters a solver should run a problem with, from a trained bundle.

A solver's configs share their parameters, so trees score the *values* of parameters (a tile of
128 x 64, a split of 8, ...) and a config's score is the sum over its values plus how usual it is
for the data type. That takes a fraction of the trees that one score a config would, and what is
learnt of a value serves every config that has it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import InputError
from foretune.predictor.features.conv import FEATURE_VERSION
from foretune.predictor.forest import Forest, load_forests
from foretune.predictor.manifest import checksum, demand_checksum, expected_checksums

if TYPE_CHECKING:  # these imports take some milliseconds at start-up
    import numpy.typing as npt

    from foretune.kernels.conv.problem import ConvProblem

#: Raise when the meaning of a bundle's fields changes.
FORMAT_VERSION = 1
FOREST_FILE = "configs.forests"
TABLE_FILE = "configs.json"


def model_name(solver: str, direction: str) -> str:
    """Name that a solver's model for one direction has in both files.

    Examples
    --------
    >>> model_name("ConvAsm1x1U", "B")
    'ConvAsm1x1U B'
    """
    return f"{solver} {direction}"


@dataclass(frozen=True, eq=False)
class Choices:
    """Configs that a solver was seen with for one direction and data type, and their model.

    Attributes
    ----------
    configs : tuple of str
    usual : array of shape (configs,)
        Logarithm of the share of problems that each won.
    outputs : array of shape (parameters, configs)
        The forest's outputs that add up to a config's score; the number of outputs is none.
    forest : Forest
    """

    configs: tuple[str, ...]
    usual: npt.NDArray[np.float64]
    outputs: npt.NDArray[np.intp]
    forest: Forest

    def scores_one(self, row: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score every config for one row of features."""
        raw = np.append(self.forest.predict_one(row), 0.0)
        total: npt.NDArray[np.float64] = raw.take(self.outputs).sum(axis=0)
        total += self.usual
        return total

    def scores(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
        """Score every config for each row of features."""
        raw = np.pad(self.forest.predict(rows), ((0, 0), (0, 1)))
        total = np.tile(self.usual, (len(rows), 1))
        for group in self.outputs:
            total += raw[:, group]
        return total


class ConfigRanking:
    """Ranks the configs of each tunable solver that a bundle knows.

    A solver's model is unpacked when the solver is first asked about. Only configs that the
    training data has for the solver, direction and data type of the problem are ever answered.

    Parameters
    ----------
    folder : Path
        Bundle with ``configs.json`` and ``configs.forests``.

    Raises
    ------
    InputError
        If a file is missing or damaged, or was made for other features.

    Examples
    --------
    >>> from foretune.kernels.devices import device_facts
    >>> from foretune.predictor.features.conv import feature_row
    >>> ranking = ConfigRanking(Path("trained_models/miopen/gfx942"))  # doctest: +SKIP
    >>> row = feature_row(problem, device_facts("gfx942"))  # doctest: +SKIP
    >>> ranking.best("ConvBinWinogradRxSf3x2", problem, row)  # doctest: +SKIP
    '302'
    """

    def __init__(self, folder: Path) -> None:
        self._where = str(folder / TABLE_FILE)
        expected = expected_checksums(folder)
        try:
            data = (folder / TABLE_FILE).read_bytes()
        except OSError as error:
            raise InputError(f"can't be read ({error.strerror})", self._where) from None
        demand_checksum(checksum(data), folder / TABLE_FILE, expected)
        try:
            table = json.loads(data)
        except ValueError as error:
            raise InputError(f"is damaged ({error}); train it again", self._where) from None
        versions = (
            (table.get("format_version"), table.get("feature_version"))
            if isinstance(table, dict)
            else None
        )
        if versions != (FORMAT_VERSION, FEATURE_VERSION):
            raise InputError(
                f"format and feature versions are {versions}, this foretune needs "
                f"{(FORMAT_VERSION, FEATURE_VERSION)}; train it again",
                self._where,
            )
        models = table.get("models")
        if not isinstance(models, dict):
            raise InputError("is damaged (no models); train it again", self._where)
        self._models: dict[str, Any] = models
        self._forests = load_forests(folder / FOREST_FILE)
        demand_checksum(self._forests.checksum, folder / FOREST_FILE, expected)
        self._choices: dict[tuple[str, str, str], Choices | None] = {}

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, solver and direction, as `model_name` gives them."""
        return tuple(self._models)

    def rank(
        self, solver: str, problem: ConvProblem, row: npt.NDArray[np.float32]
    ) -> list[tuple[str, float]]:
        """Configs with their estimated probability of being the fastest, the best first.

        Parameters
        ----------
        solver : str
            Solver id.
        problem : ConvProblem
            The problem.
        row : array of float32
            Its features (`foretune.predictor.features.conv.feature_row`).

        Returns
        -------
        list of (str, float)
            Empty if no config of the solver is known for the direction and data type.
        """
        choices = self._look_up(solver, problem.direction, problem.dtype)
        if choices is None:
            return []
        scores = choices.scores_one(row)
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        order = np.argsort(-scores, kind="stable")
        return [(choices.configs[i], float(shares[i])) for i in order]

    def best(self, solver: str, problem: ConvProblem, row: npt.NDArray[np.float32]) -> str | None:
        """First of `rank`, or None; quicker."""
        choices = self._look_up(solver, problem.direction, problem.dtype)
        if choices is None:
            return None
        return choices.configs[int(choices.scores_one(row).argmax())]

    def by_type(self, solver: str, direction: str) -> dict[str, Choices]:
        """Choices of a solver by data type; empty if it has no model."""
        model = self._models.get(model_name(solver, direction), {"usual": ()})
        found = {dtype: self._look_up(solver, direction, dtype) for dtype in model["usual"]}
        return {dtype: choices for dtype, choices in found.items() if choices}

    def _look_up(self, solver: str, direction: str, dtype: str) -> Choices | None:
        key = (solver, direction, dtype)
        try:
            return self._choices[key]
        except KeyError:
            found = self._choices[key] = self._unpack(*key)
            return found

    def _unpack(self, solver: str, direction: str, dtype: str) -> Choices | None:
        name = model_name(solver, direction)
        model = self._models.get(name)
        if model is None or dtype not in model["usual"]:
            return None
        try:
            forest = self._forests[name]
            usual = model["usual"][dtype]
            members = [int(word) for word in usual["configs"].split()]
            rows = [[int(word) for word in row.split()] for row in model["outputs"]]
            outputs = np.array(rows, np.intp).reshape(-1, len(model["configs"]))
            if outputs.size and not 0 <= outputs.min() <= outputs.max() <= forest.num_outputs:
                raise ValueError("an output that the forest doesn't have")
            choices = Choices(
                tuple(model["configs"][i] for i in members),
                np.array([float(word) for word in usual["log_share"].split()]),
                np.ascontiguousarray(outputs[:, members]),
                forest,
            )
            if not 0 < len(choices.configs) == len(choices.usual):
                raise ValueError("configs and shares differ in number")
        except InputError:
            raise
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            reason = f"{name} is damaged ({type(error).__name__}: {error}); train it again"
            raise InputError(reason, self._where) from None
        return choices
