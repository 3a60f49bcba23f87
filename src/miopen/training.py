"""Trains a bundle from a folder of MIOpen's databases. Needs the extra `train`."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.miopen.config_training import train_configs
from foretune.miopen.dataset import cached_table
from foretune.miopen.learning import group_rows, learning_parts, restrict
from foretune.miopen.model_card import write_model_card
from foretune.miopen.names import find_databases, parse_arch
from foretune.miopen.predictor import naive_flags, runnable_flags
from foretune.miopen.solvers import runnable
from foretune.predictor.acceptance import RISKS, to_bits
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.bundle import draft_folder, save_ranking, write_json
from foretune.predictor.calibrate import learn_then_test
from foretune.predictor.dataset import RankingData
from foretune.predictor.evaluate import Outcomes, evaluate
from foretune.predictor.manifest import MANIFEST_FILE, checksums
from foretune.predictor.ranking import RankingModel
from foretune.predictor.split import part_of
from foretune.predictor.train import RankingSettings, RankingTrainer

#: Releases that thresholds are calibrated for; those that run the same solvers share them.
RELEASES = ("any", "3.3", "3.4", "3.5", "3.6", "3.4+mlir", "3.6+mlir")
CONFIDENCE = 0.9
_STEPS = np.linspace(0.30, 1.0, 71)

#: Settings of archs that the usual ones don't suit. gfx90a has two devices' records, twice as
#: many as the others, and can fill large trees; LEARNINGS has the comparison.
SETTINGS = {
    "gfx90a": RankingSettings(
        shares=TreeSettings(100, leaves=63, l2=3.0),
        times=TreeSettings(150, leaves=31),
        judge=TreeSettings(100, leaves=31, learning_rate=0.07, min_rows=40, feature_fraction=0.7),
        unlisted_cost=0.35,
    ),
}

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class TrainingReport:
    """What a training made and how good it is."""

    folder: str
    arch: str
    seconds: float
    records: dict[str, int]
    left_out: dict[str, int]
    metrics: dict[str, Any]
    bundle_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Give the fields for JSON."""
        return dict(self.__dict__)


def train_miopen(
    folder: str | os.PathLike[str],
    arch: str,
    out: str | os.PathLike[str],
    *,
    workers: int = 0,
    share: float = 1.0,
    settings: RankingSettings | None = None,
    on_progress: Progress | None = None,
) -> TrainingReport:
    """Train, calibrate, test and write the bundle of an arch.

    Parameters
    ----------
    folder : path-like
        Databases, such as ``share/miopen/db`` of an installed ROCm.
    arch : str
        All its compute-unit counts in the folder serve one model.
    out : path-like
        Folder of the bundle.
    workers : int, default 0
        Processes; 0 takes the machine's processors. The bundle doesn't depend on it.
    share : float, default 1.0
        Share of the shapes to use, for trials.
    settings : RankingSettings, optional
        Default: those of `SETTINGS`, or the usual ones for an arch that it doesn't name.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.

    Returns
    -------
    TrainingReport
    """
    began = monotonic()
    arch = parse_arch(arch)
    home = Path(out)
    table = cached_table(folder, arch)
    learning = learning_parts(table)
    parts = {name: _thin(data, share) for name, data in learning.parts.items() if len(data)}
    split = {name: _split(data) for name, data in parts.items()}
    for name, of_part in split.items():
        if not len(of_part["train"]):
            raise InputError(f"no training records of direction {name}", str(folder))
    chosen = settings or SETTINGS.get(arch) or RankingSettings()
    models = RankingTrainer(chosen, workers).train(
        {name: of_part["train"] for name, of_part in split.items()}, on_progress
    )
    with draft_folder(home) as draft:
        save_ranking(draft, models)
        calibration = _calibrate(models, split, arch)
        write_json(draft / "calibration.json", calibration)
        metrics: dict[str, Any] = {
            "solver_ranking": _measure(models, split, arch, calibration),
            "configs": train_configs(
                folder, arch, draft, workers=workers, share=share, on_progress=on_progress
            ),
        }
        write_json(draft / "metrics.json", metrics)
        write_json(draft / MANIFEST_FILE, _manifest(draft, folder, arch, chosen, share, split))
        write_model_card(draft)
    return TrainingReport(
        str(home),
        arch,
        monotonic() - began,
        {f"{name} {part}": len(data) for name, s in split.items() for part, data in s.items()},
        dict(learning.left_out),
        metrics,
        sum(file.stat().st_size for file in home.iterdir()),
    )


def _thin(data: RankingData, share: float) -> RankingData:
    if share >= 1:
        return data
    return data.take((data.position * 2**20) % 1 < share)


def _split(data: RankingData) -> dict[str, RankingData]:
    parts = np.array([part_of(position) for position in data.position])
    return {name: data.take(parts == name) for name in ("train", "calibrate", "test")}


def _calibrate(
    models: dict[str, RankingModel],
    split: dict[str, dict[str, RankingData]],
    arch: str,
) -> dict[str, Any]:
    entries: list[dict[str, Any]] = []
    for name, model in models.items():
        naive = naive_flags(model.candidates)
        data = split[name]["calibrate"]
        everything = np.ones(len(model.candidates), bool)
        taught, _ = evaluate(model, split[name]["train"], everything, naive)
        grid = np.quantile(taught.score[taught.sure], 1 - _STEPS)
        releases: dict[int, list[str]] = {}
        for release in RELEASES:
            bits = to_bits(runnable_flags(model.candidates, arch, release))
            releases.setdefault(bits, []).append(release)
        for bits, names in releases.items():
            may_run = runnable_flags(model.candidates, arch, names[0])
            if not may_run.any():
                continue
            kept = restrict(data, runnable(arch, names[0]))
            outcomes, _ = evaluate(model, kept, may_run, naive)
            for index, device in enumerate(data.devices):
                rows = (kept.device == index) & outcomes.sure
                chosen = outcomes.take(rows)
                entries.append(
                    {
                        "compute_units": device.compute_units,
                        "direction": name,
                        "miopen": names,
                        "runnable": f"{bits:x}",
                        "grid": [float(score) for score in (grid[0], grid[-1])],
                        "thresholds": [
                            learn_then_test(
                                chosen.score,
                                chosen.bad,
                                _shape_ids(kept.position[rows]),
                                grid,
                                risk,
                                1 - CONFIDENCE,
                            ).to_dict()
                            for risk in RISKS
                        ],
                    }
                )
    return {
        "promise": "P(slower than 1.10 times the best known, or not listed | accepted) <= risk",
        "confidence": CONFIDENCE,
        "method": (
            "Learn then Test: fixed-sequence testing over a grid of thresholds taken from the "
            "scores of training records, exact binomial p-values, one record drawn for each shape"
        ),
        "entries": entries,
    }


def _shape_ids(position: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return np.unique(position, return_inverse=True)[1].astype(np.int64)


def _measure(
    models: dict[str, RankingModel],
    split: dict[str, dict[str, RankingData]],
    arch: str,
    calibration: dict[str, Any],
) -> dict[str, Any]:
    """Scores on shapes that training never saw, for all solvers and for those of MIOpen 3.6."""
    result: dict[str, Any] = {}
    devices = next(iter(split.values()))["train"].devices
    for release in ("any", "3.6"):
        for index, device in enumerate(devices):
            groups: dict[str, list[Outcomes]] = {}
            tested: dict[str, list[tuple[Outcomes, dict[float, float | None]]]] = {}
            for name, model in models.items():
                may_run = runnable_flags(model.candidates, arch, release)
                thresholds = _thresholds(calibration, device.compute_units, name, release)
                for part in ("calibrate", "test"):
                    data = split[name][part]
                    data = restrict(data.take(data.device == index), runnable(arch, release))
                    outcomes, _ = evaluate(model, data, may_run, naive_flags(model.candidates))
                    for group, rows in group_rows(data).items():
                        groups.setdefault(group, []).append(outcomes.take(rows))
                        if part == "test":
                            tested.setdefault(group, []).append((outcomes.take(rows), thresholds))
            result[f"{device.compute_units} CU, MIOpen {release}"] = {
                "unseen (calibrate and test parts)": {
                    group: Outcomes.join(parts).summary().to_dict()
                    for group, parts in groups.items()
                },
                "accepting (test part)": {
                    group: _accepting(parts) for group, parts in tested.items()
                },
            }
    return result


def _thresholds(
    calibration: dict[str, Any], compute_units: int, direction: str, release: str
) -> dict[float, float | None]:
    for entry in calibration["entries"]:
        if (
            entry["compute_units"] == compute_units
            and entry["direction"] == direction
            and release in entry["miopen"]
        ):
            return {t["risk"]: t["score"] for t in entry["thresholds"]}
    return {}


def _accepting(parts: list[tuple[Outcomes, dict[float, float | None]]]) -> list[dict[str, Any]]:
    rows = []
    outcomes = Outcomes.join([part for part, _ in parts])
    for risk in RISKS:
        accepted = np.concatenate(
            [
                part.sure & (part.score >= _or_infinite(thresholds.get(risk)))
                for part, thresholds in parts
            ]
        )
        rows.append(outcomes.delivered(accepted, risk).to_dict())
    return rows


def _or_infinite(threshold: float | None) -> float:
    return float("inf") if threshold is None else threshold


def _manifest(
    draft: Path,
    folder: str | os.PathLike[str],
    arch: str,
    settings: RankingSettings,
    share: float,
    split: dict[str, dict[str, RankingData]],
) -> dict[str, Any]:
    files = {
        file.path.name: sha256(file.path.read_bytes()).hexdigest()
        for file in find_databases(folder, arch)
    }
    return {
        "family": "miopen",
        "arch": arch,
        "rebuild": f"foretune train miopen --db share/miopen/db --arch {arch} --out {arch}",
        "files": checksums(draft),
        "databases": files,
        "share_of_shapes": share,
        "records": {
            f"{name} {part}": len(data) for name, s in split.items() for part, data in s.items()
        },
        "settings": _plain(settings),
        "versions": {
            "python": platform.python_version(),
            "numpy": np.__version__,
            "lightgbm": lightgbm.__version__,
        },
    }


def _plain(settings: RankingSettings) -> dict[str, Any]:
    return {
        name: value if isinstance(value, int | float) else dict(value.__dict__)
        for name, value in settings.__dict__.items()
    }
