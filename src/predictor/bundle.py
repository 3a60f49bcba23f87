"""Model bundles: a folder that says what it holds and refuses to be misread. Nothing is pickled."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import InputError
from foretune.predictor.features.conv import FEATURE_NAMES, FEATURE_VERSION
from foretune.predictor.forest import Forest, load_forests, save_forests
from foretune.predictor.manifest import checksum, demand_checksum, expected_checksums
from foretune.predictor.ranking import JUDGE_FEATURES, RankingModel, judge_rows, shortlist
from foretune.predictor.rules import CandidateRules

if TYPE_CHECKING:
    import os

FORMAT = 1
_SPEC, _MODEL, _CALIBRATION = "feature_spec.json", "model.json", "calibration.json"


def feature_spec() -> dict[str, Any]:
    """Say what features this version of foretune computes."""
    return {
        "format": FORMAT,
        "operation": "conv",
        "feature_version": FEATURE_VERSION,
        "features": list(FEATURE_NAMES),
        "judge_features": list(JUDGE_FEATURES),
    }


def save_ranking(folder: str | os.PathLike[str], models: Mapping[str, RankingModel]) -> None:
    """Write the rankings of all directions and their feature specification."""
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    content = {}
    for direction, model in models.items():
        save_forests(home / f"{direction}.forests", {"first": model.first, "judge": model.judge})
        content[direction] = {
            "candidates": list(model.candidates),
            "rules": model.rules.to_dict(),
        }
    write_json(home / _SPEC, feature_spec())
    write_json(home / _MODEL, content, indent=None)


def write_json(path: str | os.PathLike[str], content: Any, indent: int | None = 1) -> None:
    """Write JSON that is the same for the same content."""
    text = json.dumps(content, indent=indent, separators=(",", ":") if indent is None else None)
    Path(path).write_text(text + "\n", encoding="utf-8")


@contextmanager
def draft_folder(home: Path) -> Iterator[Path]:
    """Folder beside `home` whose files replace those of `home` when all are written."""
    # Only training needs it.
    from tempfile import TemporaryDirectory

    home.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{home.name}-", dir=home.parent) as folder:
        yield Path(folder)
        home.mkdir(exist_ok=True)
        for file in sorted(Path(folder).iterdir()):
            file.replace(home / file.name)


class BundleFolder:
    """The files of a bundle; whichever is read is checked against the manifest first.

    Parameters
    ----------
    folder : path-like
    spec : mapping
        What this version of foretune computes; the bundle must have been made for the same.

    Raises
    ------
    InputError
        If it is no bundle, or was made for other features than this version computes.
    """

    def __init__(self, folder: str | os.PathLike[str], spec: Mapping[str, Any]) -> None:
        self.folder = Path(folder)
        self._expected = expected_checksums(self.folder)
        found = self.read(_SPEC)
        for name, expected in spec.items():
            if found.get(name) != expected:
                said = found.get(name)
                told = (
                    f"{said!r}, this version {expected!r}" if name[-8:] != "features" else "differ"
                )
                raise InputError(
                    f"the model was trained for other features ({name}: {told}); "
                    "train it again with this version of foretune",
                    str(self.folder / _SPEC),
                )

    def read(self, name: str) -> dict[str, Any]:
        """Read a JSON object."""
        path = self.folder / name
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise InputError("no model bundle here (the file is missing)", str(path)) from None
        except OSError as error:
            raise InputError(f"can't be read: {error.strerror}", str(path)) from None
        demand_checksum(checksum(data), path, self._expected)
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise InputError(f"is damaged ({error}); train it again", str(path)) from None
        if not isinstance(content, dict):
            raise InputError("expected a JSON object", str(path))
        return content

    def forests(self, name: str) -> Mapping[str, Forest]:
        """Open a file of forests."""
        path = self.folder / name
        forests = load_forests(path)
        demand_checksum(forests.checksum, path, self._expected)
        return forests


class RankingBundle:
    """A trained ranking on disk; each direction is loaded when first asked for.

    Parameters
    ----------
    folder : path-like

    Raises
    ------
    InputError
        If it is no bundle, or was made for other features than this version computes.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._files = BundleFolder(folder, feature_spec())
        self.folder = self._files.folder
        self._content: dict[str, Any] = self._files.read(_MODEL)
        if not self._content:
            raise InputError("it holds no direction; train it again", str(self.folder / _MODEL))
        self._models: dict[str, RankingModel] = {}

    @property
    def directions(self) -> tuple[str, ...]:
        """Directions that it knows."""
        return tuple(self._content)

    def ranking(self, direction: str) -> RankingModel:
        """Ranking of a direction; a KeyError if it has none, an InputError if it is damaged."""
        if direction not in self._models:
            content = self._content[direction]
            forests = self._files.forests(f"{direction}.forests")
            try:
                self._models[direction] = _ranking(content, forests)
            except InputError:
                raise
            except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
                raise InputError(
                    f"direction {direction} is damaged ({type(error).__name__}: {error}); "
                    "train it again",
                    str(self.folder / _MODEL),
                ) from None
        return self._models[direction]

    @cached_property
    def calibration(self) -> dict[str, Any]:
        """Content of calibration.json."""
        return self._files.read(_CALIBRATION)


def _ranking(content: Mapping[str, Any], forests: Mapping[str, Forest]) -> RankingModel:
    """Put a ranking together, and prove that its parts fit."""
    candidates = tuple(content["candidates"])
    first, judge = forests["first"], forests["judge"]
    rules = CandidateRules.from_dict(candidates, content["rules"])
    if not candidates or not all(isinstance(name, str) for name in candidates):
        raise ValueError("candidates are no names")
    for count, listed, winners in rules.cells.values():
        if not all(isinstance(number, int) for number in (count, listed, winners)):
            raise ValueError("a cell's numbers")
    trial = np.zeros((1, len(FEATURE_NAMES)), np.float32)
    for low, high in rules.ranges.values():
        if len(low) < 2 or not all(a <= b for a, b in zip(low, high, strict=True)):
            raise ValueError("a range's ends")
    for trial[0, 0] in (0, 1):
        rules.outside(trial[0])
    none = np.zeros((1, len(candidates)))
    short = shortlist(none, none == 0)
    judged = judge_rows(short, short.log_shares, trial).rows
    if (first.num_features, first.num_outputs) != (len(FEATURE_NAMES), 2 * len(candidates)):
        raise ValueError("the first forest is for other features or candidates")
    if (judge.num_features, judge.num_outputs) != (judged.shape[1], 2):
        raise ValueError("the judge is for other features or candidates")
    return RankingModel(candidates, first, judge, rules)
