"""Learns which configs of a solver win. Needs the extra `train`.

The model is a softmax over a solver's configs whose scores are sums over parameter values (see
`foretune.miopen.config_ranking`); boosted trees score the values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from typing import Any

import lightgbm
import numpy as np
import numpy.typing as npt

from foretune.kernels.devices import DeviceFacts
from foretune.miopen.config_parameters import share_outputs
from foretune.miopen.config_ranking import Choices
from foretune.miopen.config_table import ConfigTable
from foretune.predictor.boosting import TreeSettings
from foretune.predictor.features.conv import raw_features
from foretune.predictor.forest import Forest

Indices = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]

#: A config is learnt if the training part has it this often for the data type.
LEAST_SEEN = 3
# A parameter's values all move a config's score, so the step is shared out among parameters.
_WHOLE_STEP = 1.3
_LARGEST_STEP = 0.3


@dataclass(frozen=True)
class ConfigModel:
    """A trained model of one solver and direction.

    Attributes
    ----------
    configs : tuple of str
        All that were learnt.
    counts : mapping of str to array of shape (configs,)
        Data type -> how often training shapes had each.
    outputs : array of shape (parameters, configs)
        The forest's outputs that add up to a config's score; the number of outputs is none.
    forest : Forest
    """

    configs: tuple[str, ...]
    counts: Mapping[str, Indices]
    outputs: Indices
    forest: Forest

    def to_dict(self) -> dict[str, Any]:
        """Give all but the forest, as `ConfigRanking` reads it."""
        usual = {}
        for dtype, counts in self.counts.items():
            members = np.flatnonzero(counts)
            shares = counts[members] / counts.sum()
            usual[dtype] = {
                "configs": " ".join(map(str, members)),
                "log_share": " ".join(f"{log(share):.3f}" for share in shares),
            }
        # Numbers as text: a start reads the whole file, but takes apart few of the models.
        outputs = [" ".join(map(str, row)) for row in self.outputs]
        return {"configs": self.configs, "outputs": outputs, "usual": usual}

    def by_type(self) -> dict[str, Choices]:
        """Give the configs that each data type has; others would be hits that nobody is told."""
        return {
            dtype: Choices(
                tuple(self.configs[i] for i in members),
                np.log(counts[members] / counts.sum()),
                np.ascontiguousarray(self.outputs[:, members]),
                self.forest,
            )
            for dtype, counts in self.counts.items()
            for members in [np.flatnonzero(counts)]
        }


def default_settings(problems: int) -> TreeSettings:
    """Trees for a solver that was tuned for so many problems."""
    steps = ((20_000, 31), (8_000, 21), (4_000, 15))
    leaves = next((leaves for least, leaves in steps if problems >= least), 7)
    return TreeSettings(
        rounds=40, leaves=leaves, feature_fraction=0.3, bagging_fraction=0.8, min_rows=10
    )


def fit_configs(
    table: ConfigTable, device: DeviceFacts, settings: TreeSettings | None = None
) -> ConfigModel | None:
    """Learn a solver's configs from the training part of its problems.

    Parameters
    ----------
    table : ConfigTable
        Tuned problems.
    device : DeviceFacts
        The device they were tuned on.
    settings : TreeSettings, optional
        Its learning rate isn't used: the step is shared out among a solver's parameters.
        Default: `default_settings`.

    Returns
    -------
    ConfigModel or None
        None if no config was seen often enough.
    """
    pairs = list(zip(table.dtypes, table.configs, strict=True))
    learnt = np.flatnonzero(table.is_training)
    frequent = Counter(pairs[i] for i in learnt)
    seen = {pair: count for pair, count in frequent.items() if count >= LEAST_SEEN}
    if not seen:
        return None
    configs = tuple(sorted({config for _, config in seen}))
    column = {config: i for i, config in enumerate(configs)}
    counts = {
        dtype: np.array([seen.get((dtype, config), 0) for config in configs], np.intp)
        for dtype in sorted({dtype for dtype, _ in seen})
    }
    outputs = share_outputs(table.solver, configs, counts)
    settings = settings or default_settings(len(table.position))
    chosen = [i for i in learnt if pairs[i] in seen]
    rows = raw_features(table.raw[chosen], table.direction, device)
    if not _can_split(rows, settings.min_rows):
        outputs = outputs[:0]  # LightGBM refuses such rows; how usual a config is remains
    winner = np.array([column[table.configs[i]] for i in chosen], np.intp)
    dtypes = np.array([list(counts).index(table.dtypes[i]) for i in chosen], np.intp)
    forest = _train(rows, winner, dtypes, list(counts.values()), outputs, settings)
    return ConfigModel(configs, counts, outputs, forest)


def _can_split(rows: npt.NDArray[np.float32], least: int) -> bool:
    """Whether some feature has a threshold with clearly more than `least` rows on either side."""
    ordered = np.sort(rows, axis=0)
    count = len(rows)
    return count >= 4 * least and bool((ordered[2 * least - 1] < ordered[-2 * least]).any())


def _train(
    rows: npt.NDArray[np.float32],
    winner: Indices,
    dtypes: Indices,
    counts: Sequence[Indices],
    outputs: Indices,
    settings: TreeSettings,
) -> Forest:
    """Boost trees for the outputs on the likelihood of the winning configs."""
    number = int(outputs.max(initial=0))
    if number == 0:
        return Forest(
            threshold_counts=np.zeros(rows.shape[1], np.intp),
            thresholds=np.empty(0, np.float32),
            node_features=np.empty(0, np.intp),
            node_bins=np.empty(0, np.intp),
            node_left_leaves=np.empty(0, np.intp),
            tree_leaves=np.empty(0, np.intp),
            leaves=np.empty(0, np.float32),
            output_trees=np.empty(0, np.intp),
            bias=np.empty(0),
        )
    # Single precision halves the time, most of which goes into these products.
    has = np.zeros((outputs.shape[1], number + 1), np.float32)
    for group in outputs:
        has[np.arange(len(group)), group] = 1
    has = has[:, :number]
    usual = np.log(np.array(counts) / np.sum(counts, axis=1, keepdims=True) + 1e-12)
    usual = usual.astype(np.float32)[dtypes]
    labels = has[winner]

    def objective(scores: Floats, _: lightgbm.Dataset) -> tuple[Floats, Floats]:
        shares = scores.reshape(-1, number).astype(np.float32) @ has.T
        shares += usual
        shares -= shares.max(axis=1, keepdims=True)
        np.exp(shares, out=shares)
        shares /= shares.sum(axis=1, keepdims=True)
        expected = shares @ has
        gradient, hessian = expected - labels, 1.5 * expected * (1 - expected) + 1e-6
        return (gradient, hessian) if number > 1 else (gradient.ravel(), hessian.ravel())

    together = float(has.sum(axis=1)[winner].mean())
    parameters = settings.parameters() | {
        "objective": objective,
        "learning_rate": min(_LARGEST_STEP, _WHOLE_STEP / max(1.0, together)),
    }
    if number > 1:
        parameters["num_class"] = number
    dataset = lightgbm.Dataset(
        rows, np.zeros(len(rows)), params={"max_bin": settings.max_bin, "verbose": -1}
    )
    booster = lightgbm.train(parameters, dataset, settings.rounds)
    return Forest.from_lightgbm(booster, leaf_type="float16")
