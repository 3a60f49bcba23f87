"""LightGBM trainings that the predictors are made of. Needs the extra `train`.

Every training is deterministic: one thread, fixed seeds, column-wise histograms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TreeSettings:
    """How trees are grown.

    How large they should be differs between devices; LEARNINGS has the figures. `l2` holds the
    values of leaves with few rows back.
    """

    rounds: int
    leaves: int = 31
    learning_rate: float = 0.1
    feature_fraction: float = 0.5
    bagging_fraction: float = 0.8
    min_rows: int = 5
    max_bin: int = 127
    seed: int = 1
    l2: float = 0.0

    def parameters(self) -> dict[str, Any]:
        """Give the settings as LightGBM names them."""
        return {
            "num_leaves": self.leaves,
            "learning_rate": self.learning_rate,
            "feature_fraction": self.feature_fraction,
            "bagging_fraction": self.bagging_fraction,
            "bagging_freq": 1,
            "min_data_in_leaf": self.min_rows,
            "min_sum_hessian_in_leaf": 1.0,
            "lambda_l2": self.l2,
            "max_bin": self.max_bin,
            "seed": self.seed,
            "num_threads": 1,
            "deterministic": True,
            "force_col_wise": True,
            "verbose": -1,
        }


def soft_labels(times: Floats, temperature: float) -> Floats:
    """Share of the blame for winning, shape (problems, candidates); each row adds up to 1.

    Near-ties are within measurement noise, so a candidate's share falls off with the logarithm of
    its slowdown over `temperature`. Candidates without a time (infinite) get none.

    Examples
    --------
    >>> soft_labels(np.array([[1.0, 1.0, 2.0, np.inf]]), 0.05).round(3)
    array([[0.5, 0.5, 0. , 0. ]])
    """
    logs = np.log(times)
    weights = np.exp((logs.min(axis=1, keepdims=True) - logs) / temperature)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def train_soft_multiclass(
    rows: npt.NDArray[np.float32], labels: Floats, settings: TreeSettings
) -> tuple[lightgbm.Booster, Floats]:
    """Softmax regression by boosted trees on labels that are distributions.

    LightGBM's own multiclass objective takes one class a row and diverged here on rare solvers;
    this one is its objective with soft labels, started from the logarithm of the class shares.

    Parameters
    ----------
    rows : array of shape (problems, features)
    labels : array of shape (problems, classes)
        Each row adds up to 1.
    settings : TreeSettings

    Returns
    -------
    booster : lightgbm.Booster
        Raw scores *without* the start.
    start : array of shape (classes,)
        To add to raw scores.
    """
    count, classes = labels.shape
    start = np.log(np.clip(labels.mean(axis=0), 1e-6, None))
    stretch = classes / (classes - 1) if classes > 1 else 1.0

    def objective(scores: Floats, _: lightgbm.Dataset) -> tuple[Floats, Floats]:
        shares = softmax(scores.reshape(count, classes))
        return shares - labels, stretch * shares * (1 - shares)

    dataset = lightgbm.Dataset(
        rows,
        np.zeros(count),
        init_score=np.tile(start, (count, 1)).ravel("F"),
        params={"max_bin": settings.max_bin, "verbose": -1},
    )
    parameters = settings.parameters() | {"objective": objective, "num_class": classes}
    if classes == 1:
        parameters.pop("num_class")
    return lightgbm.train(parameters, dataset, settings.rounds), start


def train_regression(
    rows: npt.NDArray[np.float32],
    target: Floats,
    settings: TreeSettings,
    objective: str = "l2",
    weights: Floats | None = None,
) -> lightgbm.Booster:
    """Boosted trees for one number a row (`objective` by LightGBM's name)."""
    dataset = lightgbm.Dataset(
        rows, target, weight=weights, params={"max_bin": settings.max_bin, "verbose": -1}
    )
    return lightgbm.train(
        settings.parameters() | {"objective": objective}, dataset, settings.rounds
    )


def train_lambdarank(
    rows: npt.NDArray[np.float32],
    relevance: npt.NDArray[np.int64],
    groups: npt.NDArray[np.int64],
    settings: TreeSettings,
    truncation: int,
) -> lightgbm.Booster:
    """Boosted trees whose scores order the rows of each group.

    Parameters
    ----------
    rows : array of shape (candidates, features)
        Those of one group stand together.
    relevance : array of shape (candidates,)
        Whole numbers from 0; who has twice as much is worth twice as much.
    groups : array
        Rows of each group, in order.
    settings : TreeSettings
    truncation : int
        Places, from the first, whose exchange with others counts.

    Returns
    -------
    lightgbm.Booster
        Higher scores come first.
    """
    dataset = lightgbm.Dataset(
        rows, relevance, group=groups, params={"max_bin": settings.max_bin, "verbose": -1}
    )
    parameters = settings.parameters() | {
        "objective": "lambdarank",
        "label_gain": list(range(int(relevance.max(initial=0)) + 1)),
        "lambdarank_truncation_level": truncation,
        "min_sum_hessian_in_leaf": 1e-3,
    }
    return lightgbm.train(parameters, dataset, settings.rounds)


def softmax(scores: Floats) -> Floats:
    """Scores as shares that add up to 1 along the last axis."""
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))
