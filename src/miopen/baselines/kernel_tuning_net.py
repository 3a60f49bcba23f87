"""The kernel-tuning nets (KTN), AMD's nets that write down a solver's tuning parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.keras_json import Array, KerasNet, load_json

_BATCH = 2048
_END = "-1"
_DIRECTION_WORDS = {"F": "fwd", "B": "bwd", "W": "wrw"}


@dataclass(frozen=True)
class _Recipe:
    """What MIOpen's source, not the net's files, says about one net."""

    net: str
    direction: str
    precision: Mapping[str, int]
    features: Callable[[ConvProblem, int, int], list[int]]
    spell: Callable[[str], list[str]]
    kernel: str = ""
    diagonal: bool = True


@dataclass(frozen=True)
class KernelTuningNet:
    """One net: an encoder of the problem, and a decoder that writes one parameter after another.

    Parameters
    ----------
    encoder, decoder : KerasNet
        The two halves.
    tokens : tuple of str
        What each output of the decoder stands for; "-1" ends the writing without an answer.
    kernel_steps : mapping, optional
        Steps to write by kernel type, where the net starts with the kernel type; else empty.
    steps : int
        Steps to write where it doesn't.
    recipe : _Recipe
        How a problem and a config look to this net.
    compute_units : int
        An input of the gfx90a forward net.

    Examples
    --------
    >>> sorted(KernelTuningNet.solvers("gfx908"))
    ['ConvAsm1x1U']
    >>> folder = Path("/opt/rocm/share/miopen/db")
    >>> solver = "ConvHipImplicitGemmGroupFwdXdlops"
    >>> net = KernelTuningNet.load(folder, "gfx942", solver)  # doctest: +SKIP
    >>> net.predict(problem, configs_of_this_solver_and_type)  # doctest: +SKIP
    'DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle<256, 64, 128, 16, Default, ...>'
    """

    encoder: KerasNet
    decoder: KerasNet
    tokens: tuple[str, ...]
    kernel_steps: Mapping[str, int]
    steps: int
    recipe: _Recipe
    compute_units: int

    @staticmethod
    def solvers(arch: str) -> frozenset[str]:
        """Solvers for which AMD ships a net for an architecture."""
        return frozenset(solver for known, solver in _RECIPES if known == arch)

    @classmethod
    def load(
        cls, folder: Path, arch: str, solver: str, compute_units: int = 104
    ) -> KernelTuningNet:
        """Read a net from a database folder.

        Parameters
        ----------
        folder : Path
            Holds ``<arch>_<net>_encoder.ktn.model`` and its decoder and metadata.
        arch : str
            "gfx908", "gfx90a" or "gfx942".
        solver : str
            MIOpen's name of the solver.
        compute_units : int, default 104
            Of the device. Only the gfx90a forward net reads it.

        Raises
        ------
        InputError
            If there is no such net, or a file is missing or isn't what it should be.
        """
        recipe = _RECIPES.get((arch, solver))
        if recipe is None:
            known = ", ".join(sorted(cls.solvers(arch))) or "none"
            raise InputError(f"AMD ships no net for {solver} on {arch}; known are {known}")
        base = f"{arch}_{recipe.net}"
        path = folder / f"{base}_metadata.ktn.model"
        metadata = load_json(path)
        try:
            decodings = metadata["decodings"]["tunings"]
            tokens = tuple(decodings[str(index)] for index in range(len(decodings)))
            counts = {name: int(count) for name, count in metadata["num_tuning_params"].items()}
            starts_with_kernel = metadata["predict_type"] != 0
            steps = 0 if starts_with_kernel else counts[_DIRECTION_WORDS[recipe.direction[0]]]
        except (KeyError, TypeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"not a KTN's metadata ({reason})", str(path)) from error
        return cls(
            KerasNet.load(folder / f"{base}_encoder.ktn.model"),
            KerasNet.load(folder / f"{base}_decoder.ktn.model"),
            tokens,
            counts if starts_with_kernel else {},
            steps,
            recipe,
            compute_units,
        )

    def supports(self, problem: ConvProblem) -> bool:
        """Whether MIOpen asks this net about the problem."""
        if problem.ndim != 2 or problem.direction not in self.recipe.direction:
            return False
        if problem.dtype not in self.recipe.precision:
            return False
        if self.recipe.kernel or self.kernel_steps:
            return problem.layout in ("NCHW", "NHWC")
        return (
            problem.layout == "NCHW"
            and problem.groups == 1
            and problem.filter_size == problem.stride == (1, 1)
            and problem.padding == (0, 0)
        )

    def predict(self, problem: ConvProblem, valid_configs: Sequence[str]) -> str | None:
        """Config for one problem; see `predict_many`."""
        return self.predict_many([problem], valid_configs)[0]

    def predict_many(
        self,
        problems: Sequence[ConvProblem],
        configs: Sequence[str],
        valid: npt.NDArray[np.bool_] | None = None,
    ) -> list[str | None]:
        """Write a config for each problem, greedily, keeping to the configs given.

        MIOpen asks the solver which kernels can run and takes, step by step, the likeliest token
        that at least one of those agrees with. Here the configs given are those kernels.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Any problems; all of a type for which ``configs`` are right.
        configs : sequence of str
            Configs as a perf-db has them. Where several agree with all tokens the first wins.
        valid : array of bool, shape (problems, configs), optional
            Which of the configs can run each problem. Default: all.

        Returns
        -------
        list of str or None
            None where the net isn't asked, or ends the writing itself.
        """
        picks: list[str | None] = [None] * len(problems)
        if not configs:
            return picks
        agreement = self._agreement(configs)
        supported = iter([i for i, problem in enumerate(problems) if self.supports(problem)])
        while rows := list(islice(supported, _BATCH)):
            alive = np.ones((len(rows), len(configs)), bool) if valid is None else valid[rows]
            chosen = self._decode([problems[row] for row in rows], alive, agreement)
            for row, config in zip(rows, chosen, strict=True):
                picks[row] = configs[config] if config >= 0 else None
        return picks

    def _agreement(self, configs: Sequence[str]) -> list[Array]:
        """For each step, which configs (rows) agree with which tokens (columns)."""
        known = np.array([[self.recipe.kernel in config] for config in configs])
        tables = []
        if self.kernel_steps:
            # A substring, so a type also lets in those whose names go on: as MIOpen.
            named = [
                [token in self.kernel_steps and token in config for token in self.tokens]
                for config in configs
            ]
            tables.append(np.array(named))
        steps = max(self.kernel_steps.values(), default=self.steps) - len(tables)
        spelled = [self.recipe.spell(config)[:steps] for config in configs]
        words = np.array([line + [""] * (steps - len(line)) for line in spelled])
        tables += [words[:, step, None] == np.array(self.tokens) for step in range(steps)]
        return [(known & table).astype(np.float32) for table in tables]

    def _decode(
        self, problems: Sequence[ConvProblem], alive: npt.NDArray[np.bool_], tables: list[Array]
    ) -> list[int]:
        """Row of the chosen config for each problem; -1 for none."""
        ends = np.array([token == _END for token in self.tokens])
        step_counts = np.array([self.kernel_steps.get(token, 0) for token in self.tokens])
        states = self.encoder(self._encode(problems))
        written = np.zeros((len(problems), 1), np.float32)
        left = np.full(len(problems), self.steps)
        failed = np.logical_not(alive.any(axis=1))
        for step, table in enumerate(tables):
            scores, *states = self.decoder(written, *states)
            possible = ((alive.astype(np.float32) @ table) > 0) | ends
            scores = np.where(possible, scores, -np.inf)
            # Of equal scores the later token comes first, as in MIOpen's queue of pairs.
            token = scores.shape[1] - 1 - np.argmax(scores[:, ::-1], axis=1)
            if step == 0 and self.kernel_steps:
                left = step_counts[token]
            writing = left > step
            failed |= writing & (ends[token] | ~possible.any(axis=1))
            writing &= ~failed
            alive = np.where(writing[:, None], alive & (table.T[token] > 0), alive)
            written = token[:, None].astype(np.float32)
        first: list[int] = np.argmax(alive, axis=1).tolist()
        return [-1 if lost else row for lost, row in zip(failed.tolist(), first, strict=True)]

    def _encode(self, problems: Sequence[ConvProblem]) -> Array:
        recipe = self.recipe
        rows = [
            recipe.features(problem, recipe.precision[problem.dtype], self.compute_units)
            for problem in problems
        ]
        features = np.array(rows, np.float32)
        if not recipe.diagonal:
            return features[:, :, None]
        return features[:, :, None] * np.eye(features.shape[1], dtype=np.float32)


def _sizes(problem: ConvProblem) -> list[int]:
    return [
        problem.in_channels,
        *problem.in_size,
        problem.out_channels,
        *problem.out_size,
        *problem.filter_size,
        *problem.padding,
        *problem.stride,
        *problem.dilation,
        problem.batch,
    ]


def _features_asm_1x1(problem: ConvProblem, precision: int, _units: int) -> list[int]:
    forward = problem.direction == "F"
    channels = [problem.in_channels, problem.out_channels]
    return [precision, int(forward), int(not forward), *channels, *problem.in_size, problem.batch]


def _features_gfx90a_forward(problem: ConvProblem, precision: int, units: int) -> list[int]:
    return [precision, *_sizes(problem), problem.groups, units]


def _features_gfx90a_backward(problem: ConvProblem, precision: int, _units: int) -> list[int]:
    return [int(problem.direction == "W"), *_sizes(problem), precision, problem.groups]


def _features_gfx942(problem: ConvProblem, precision: int, _units: int) -> list[int]:
    return [*_sizes(problem), precision, problem.groups]


def _entries(config: str) -> list[str]:
    """Entries of the list between < and >, without blanks."""
    inner = config[config.find("<") + 1 : config.find(">")]
    return ["".join(entry.split()) for entry in inner.split(",")]


def _spell_gfx90a_forward(config: str) -> list[str]:
    entries = _entries(config)
    return entries[:5] + entries[7:]


def _spell_gfx90a_backward(config: str) -> list[str]:
    entries = _entries(config)
    return entries[:13] + entries[14:]


def _spell_gfx942_backward(config: str) -> list[str]:
    entries = _entries(config)
    return entries[:3] + entries[5:7] + entries[9:13]


def _spell_gfx942_weights(config: str) -> list[str]:
    entries = _entries(config)
    _, _, split_k = config.rpartition("+")
    return [*entries[:12], *entries[14:], split_k]


_GFX90A_PRECISION = {"FP32": 2, "FP16": 1}
_GFX942_PRECISION = {"FP32": 3, "FP16": 2, "BF16": 1}
_BACKWARD_KERNEL = "DeviceGroupedConvBwdDataMultipleD_Xdl_CShuffle_v1"

_RECIPES: Mapping[tuple[str, str], _Recipe] = {
    ("gfx908", "ConvAsm1x1U"): _Recipe(
        net="ConvAsm1x1U",
        direction="FB",
        precision={"FP32": 2, "FP16": 1},
        features=_features_asm_1x1,
        spell=lambda config: config.split(","),
    ),
    ("gfx90a", "ConvHipImplicitGemmGroupFwdXdlops"): _Recipe(
        net="ConvHipIgemmGroupFwdXdlops",
        direction="F",
        precision=_GFX90A_PRECISION,
        features=_features_gfx90a_forward,
        spell=_spell_gfx90a_forward,
        kernel="DeviceGroupedConvFwdMultipleABD_Xdl_CShuffle",
        diagonal=False,
    ),
    ("gfx90a", "ConvHipImplicitGemmGroupBwdXdlops"): _Recipe(
        net="ConvHipIgemmGroupXdlops",
        direction="B",
        precision=_GFX90A_PRECISION,
        features=_features_gfx90a_backward,
        spell=_spell_gfx90a_backward,
        kernel=_BACKWARD_KERNEL,
    ),
    ("gfx90a", "ConvHipImplicitGemmGroupWrwXdlops"): _Recipe(
        net="ConvHipIgemmGroupXdlops",
        direction="W",
        precision=_GFX90A_PRECISION,
        features=_features_gfx90a_backward,
        spell=_spell_gfx90a_backward,
        kernel="DeviceGroupedConvBwdWeight_Xdl_CShuffle",
    ),
    ("gfx942", "ConvHipImplicitGemmGroupFwdXdlops"): _Recipe(
        net="ConvHipIgemmGroupFwdXdlops",
        direction="F",
        precision=_GFX942_PRECISION,
        features=_features_gfx942,
        spell=_entries,
    ),
    ("gfx942", "ConvHipImplicitGemmGroupBwdXdlops"): _Recipe(
        net="ConvHipIgemmGroupBwdXdlops",
        direction="B",
        precision=_GFX942_PRECISION,
        features=_features_gfx942,
        spell=_spell_gfx942_backward,
        kernel=_BACKWARD_KERNEL,
    ),
    ("gfx942", "ConvHipImplicitGemmGroupWrwXdlops"): _Recipe(
        net="ConvHipIgemmGroupWrwXdlops",
        direction="W",
        precision=_GFX942_PRECISION,
        features=_features_gfx942,
        spell=_spell_gfx942_weights,
    ),
}
