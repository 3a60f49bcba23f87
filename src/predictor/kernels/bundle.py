"""Candidate models on disk, in the same kind of folder as `foretune.predictor.bundle`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foretune.errors import InputError
from foretune.kernels.runtime.properties import DeviceProperties
from foretune.predictor.acceptance import Acceptance
from foretune.predictor.bundle import BundleFolder, write_json
from foretune.predictor.forest import save_forests
from foretune.predictor.kernels.features import (
    CANDIDATE_FEATURE_VERSION,
    feature_names,
)
from foretune.predictor.kernels.model import (
    JUDGE_FEATURES,
    RANGED,
    CandidateRanker,
    KernelModel,
    Portfolio,
    Trust,
)
from foretune.predictor.kernels.neighbours import DIMENSIONS, Neighbours

if TYPE_CHECKING:
    import os

    import numpy.typing as npt

    from foretune.predictor.forest import Forest

FORMAT = 1
#: What makes a folder a candidate model.
SPEC_FILE = "feature_spec.json"
_MODEL, _FORESTS, _CALIBRATION = "model.json", "candidates.forests", "calibration.json"


def candidate_spec(operation: str) -> dict[str, Any]:
    """Say what features of an operation's candidates this version of foretune computes."""
    return {
        "format": FORMAT,
        "family": "kernels",
        "operation": operation,
        "feature_version": CANDIDATE_FEATURE_VERSION,
        "features": list(feature_names()),
        "judge_features": list(JUDGE_FEATURES),
        "ranged_features": list(RANGED),
    }


def save_candidates(
    folder: str | os.PathLike[str],
    ranker: CandidateRanker,
    trust: Trust,
    operation: str,
) -> None:
    """Write a model, but for its calibration."""
    if ranker.judge is None or ranker.times is None:
        raise ValueError("the judge or the times aren't trained")
    home = Path(folder)
    home.mkdir(parents=True, exist_ok=True)
    portfolio, neighbours = ranker.portfolio, ranker.neighbours
    forests = {
        "orders": ranker.orders,
        "numbers": ranker.numbers,
        "times": ranker.times,
        "judge": ranker.judge,
    }
    save_forests(home / _FORESTS, forests)
    write_json(home / SPEC_FILE, candidate_spec(operation))
    content = {
        "solvers": list(portfolio.solvers),
        "with_device": ranker.with_device,
        "scale": list(ranker.scale),
        "candidates": [
            [solver, config]
            for solver, config in zip(portfolio.solver, portfolio.config, strict=True)
        ],
        "places": [[round(number, 6) for number in place] for place in neighbours.places.tolist()],
        "lists": list(map(list, neighbours.lists)),
        "surprises": _sparse(neighbours),
        "kinds": sorted(map(list, trust.kinds)),
        "ranges": {
            str(ndim): [list(trust.low[ndim]), list(trust.high[ndim])] for ndim in trust.low
        },
        "devices": [asdict(device) for device in trust.devices],
    }
    write_json(home / _MODEL, content, indent=None)


def _sparse(neighbours: Neighbours) -> list[list[list[int]]]:
    """Give each problem's candidates and their surprises, in thousandths."""
    lists = []
    for surprise, measured in zip(neighbours.surprise, neighbours.measured, strict=True):
        at = np.flatnonzero(measured)
        lists.append([at.tolist(), np.rint(surprise[at] * 1000.0).astype(int).tolist()])
    return lists


def _dense(
    lists: list[list[list[int]]], problems: int, candidates: int
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    surprise = np.zeros((problems, candidates), np.float32)
    measured = np.zeros_like(surprise)
    if len(lists) != problems:
        raise ValueError("the surprises of problems")
    for row, (at, thousandths) in enumerate(lists):
        if len(at) != len(thousandths) or (at and not 0 <= min(at) <= max(at) < candidates):
            raise ValueError("the surprises of a problem")
        surprise[row, at] = np.array(thousandths, np.float32) / 1000
        measured[row, at] = 1.0
    return surprise, measured


def load_candidates(folder: str | os.PathLike[str], operation: str = "conv") -> KernelModel:
    """Read a model.

    Raises
    ------
    InputError
        If it is none, is damaged, or was made for other features than this version computes.
    """
    files = BundleFolder(folder, candidate_spec(operation))
    content = files.read(_MODEL)
    packed = files.forests(_FORESTS)
    calibration = files.read(_CALIBRATION)
    acceptance = Acceptance(calibration, str(files.folder / _CALIBRATION))
    try:
        unmeasured = calibration["unmeasured"]
        return KernelModel(
            _ranker(content, packed),
            _trust(content),
            acceptance,
            operation,
            beats_default=float(unmeasured["pick"]) <= float(unmeasured["default"]),
        )
    except InputError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"is damaged ({type(error).__name__}: {error}); train it again",
            str(files.folder / _MODEL),
        ) from None


def _ranker(content: Mapping[str, Any], forests: Mapping[str, Forest]) -> CandidateRanker:
    """Put a ranker together, and prove that its parts fit."""
    solvers = tuple(content["solvers"])
    pairs = [(int(solver), str(config)) for solver, config in content["candidates"]]
    places = np.array(content["places"], np.float64)
    lists = tuple(tuple(int(number) for number in listed) for listed in content["lists"])
    with_device = bool(content["with_device"])
    if not pairs or not all(isinstance(name, str) for name in solvers):
        raise ValueError("candidates are no names")
    if not all(0 <= solver < len(solvers) for solver, _ in pairs):
        raise ValueError("a candidate's solver")
    if not all(0 <= number < len(pairs) for listed in lists for number in listed):
        raise ValueError("a candidate's number")
    if places.shape != (len(lists), DIMENSIONS) or not len(lists):
        raise ValueError("the places of problems")
    if len({len(listed) for listed in lists}) != 1 or not np.isfinite(places).all():
        raise ValueError("the lists of problems")
    slope, offset = map(float, content["scale"])
    width = len(feature_names(with_device=with_device))
    widths = {
        "orders": (width, 1),
        "numbers": (width, 1),
        "times": (width, 1),
        "judge": (len(JUDGE_FEATURES), 1),
    }
    for name, shape in widths.items():
        if (forests[name].num_features, forests[name].num_outputs) != shape:
            raise ValueError(f"the forest {name} is for other features or candidates")
    portfolio = Portfolio(
        solvers,
        tuple(solver for solver, _ in pairs),
        tuple(config for _, config in pairs),
    )
    return CandidateRanker(
        portfolio,
        Neighbours(places, lists, *_dense(content["surprises"], len(lists), len(pairs))),
        forests["orders"],
        (slope, offset),
        forests["numbers"],
        forests["times"],
        forests["judge"],
        with_device,
    )


def _trust(content: Mapping[str, Any]) -> Trust:
    low = {int(ndim): tuple(map(float, ends[0])) for ndim, ends in content["ranges"].items()}
    high = {int(ndim): tuple(map(float, ends[1])) for ndim, ends in content["ranges"].items()}
    for ndim in low:
        if not len(low[ndim]) == len(high[ndim]) == len(RANGED):
            raise ValueError("a range's ends")
        if not np.all(np.array(low[ndim]) <= np.array(high[ndim])):
            raise ValueError("a range's ends")
    return Trust(
        frozenset(tuple(map(int, kind)) for kind in content["kinds"]),
        low,
        high,
        tuple(DeviceProperties(**facts) for facts in content["devices"]),
    )
