"""TunaNet, AMD's net that picks MIOpen's solver when nothing may be measured."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foretune.errors import InputError
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.baselines.keras_json import KerasNet, load_json

_Value = Callable[[ConvProblem], int]

# By the names that the metadata files use: the older file has names of its own. TunaNet runs on
# 2-D problems alone, so depths are 1. Padding and stride of the depth are 1 too, as they were in
# the net's training data and therefore in MIOpen.
_SIZES: Mapping[str, _Value] = {
    "Inp_0": lambda p: p.in_channels,
    "Inp_2": lambda p: p.in_size[0],
    "Inp_3": lambda p: p.in_size[1],
    "Out_0": lambda p: p.out_channels,
    "Out_2": lambda p: p.out_size[0],
    "Out_3": lambda p: p.out_size[1],
    "Fil_1": lambda p: p.filter_size[0],
    "Fil_2": lambda p: p.filter_size[1],
    "Pad_1": lambda p: p.padding[0],
    "Pad_2": lambda p: p.padding[1],
    "Str_1": lambda p: p.stride[0],
    "Str_2": lambda p: p.stride[1],
    "Dil_1": lambda p: p.dilation[0],
    "Dil_2": lambda p: p.dilation[1],
    "BatchSize": lambda p: p.batch,
    "GroupSize": lambda p: p.groups,
}
_OLD_NAMES: Mapping[str, str] = {
    "InChannels": "Inp_0",
    "InHeight": "Inp_2",
    "InWidth": "Inp_3",
    "OutChannels": "Out_0",
    "OutHeight": "Out_2",
    "OutWidth": "Out_3",
    "FilterDim1": "Fil_1",
    "FilterDim2": "Fil_2",
    "Padding1": "Pad_1",
    "Padding2": "Pad_2",
    "Stride1": "Str_1",
    "Stride2": "Str_2",
    "Dilation1": "Dil_1",
    "Dilation2": "Dil_2",
}
_ALWAYS_ONE = frozenset({"InDepth", "OutDepth", "FilterDim0", "Padding0", "Stride0"})
_STRICT_ARCH = "gfx908"
_TEST_STATS_ARCH = "gfx942"


@dataclass(frozen=True)
class TunaNet:
    """One architecture's net with what it needs to encode a problem.

    Parameters
    ----------
    net : KerasNet
        The net. Its last outputs are one logit for each solver.
    solvers : tuple of str
        Solvers in the order of those outputs.
    features : tuple of str
        Names of the inputs, in order, as in the metadata file.
    mean, std : array
        Scale the inputs.
    encodings : mapping
        Codes of ``Direction``, ``Precision`` and ``Layout``.
    strict : bool
        Whether the narrower rules of the gfx908 net hold: no groups, no dilation, equal sides.

    Examples
    --------
    >>> folder = Path("/opt/rocm/share/miopen/db")
    >>> net = TunaNet.load(folder, "gfx942")  # doctest: +SKIP
    >>> problem = ConvProblem("F", 8, 64, (56, 56), 64, (3, 3), padding=(1, 1))
    >>> net.pick([problem])  # doctest: +SKIP
    ['ConvBinWinogradRxSf2x3g1']
    """

    net: KerasNet
    solvers: tuple[str, ...]
    features: tuple[str, ...]
    mean: npt.NDArray[np.float32]
    std: npt.NDArray[np.float32]
    encodings: Mapping[str, Mapping[str, int]]
    strict: bool

    @classmethod
    def load(cls, folder: Path, arch: str) -> TunaNet:
        """Read a net from a database folder.

        Parameters
        ----------
        folder : Path
            Holds ``<arch>.tn.model`` and ``<arch>_metadata.tn.model``.
        arch : str
            "gfx908", "gfx90a" or "gfx942".

        Raises
        ------
        InputError
            If a file is missing or isn't what it should be.
        """
        metadata_path = folder / f"{arch}_metadata.tn.model"
        metadata = load_json(metadata_path)
        try:
            codes = metadata["encodings"]
            features = tuple(metadata["conv_params_used_as_features"])
            # MIOpen scales the gfx942 net's inputs by the statistics of its test set.
            part = "test" if arch == _TEST_STATS_ARCH else "overall"
            stats = metadata["stats"][part]["features"]
            mean = np.array([stats["mean"][name] for name in features], np.float32)
            std = np.array([stats["std"][name] for name in features], np.float32)
            encodings = {name: dict(codes[name]) for name in ("Direction", "Precision", "Layout")}
            solvers = tuple(sorted(codes["solver"], key=codes["solver"].__getitem__))
        except (KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"not TunaNet's metadata ({reason})", str(metadata_path)) from error
        coded = {*_SIZES, *_OLD_NAMES, *_ALWAYS_ONE, *encodings}
        if unknown := [name for name in features if name not in coded]:
            raise InputError(f"unknown inputs: {', '.join(unknown)}", str(metadata_path))
        net = KerasNet.load(folder / f"{arch}.tn.model")
        return cls(net, solvers, features, mean, std, encodings, strict=arch == _STRICT_ARCH)

    def supports(self, problem: ConvProblem) -> bool:
        """Whether MIOpen asks this net about the problem.

        MIOpen also wants one of the net's solvers to be applicable, which the caller must judge.
        """
        if problem.ndim != 2 or problem.layout not in self.encodings["Layout"]:
            return False
        if (
            problem.dtype not in self.encodings["Precision"]
            or problem.stride[0] != problem.stride[1]
        ):
            return False
        if self.strict:
            return (
                problem.groups == 1
                and problem.filter_size[0] == problem.filter_size[1]
                and problem.padding[0] == problem.padding[1]
                and problem.dilation == (1, 1)
            )
        return problem.dilation[0] == problem.dilation[1] and problem.bias == 0

    def rank(self, problems: Sequence[ConvProblem]) -> npt.NDArray[np.float32]:
        """Logits for problems that the net supports.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Each must pass `supports`.

        Returns
        -------
        array of shape (problems, solvers)
            Higher is better; columns are in the order of ``solvers``.
        """
        values = [self._value(name) for name in self.features]
        raw = np.array([[value(p) for value in values] for p in problems], np.float32)
        scaled = (raw.reshape(len(problems), len(self.features)) - self.mean) / self.std
        (out,) = self.net(scaled)
        # gfx908 and gfx90a nets give an unused output and the algorithms first.
        return out[:, -len(self.solvers) :]

    def pick(
        self,
        problems: Sequence[ConvProblem],
        runnable: Sequence[Collection[str]] | None = None,
    ) -> list[str | None]:
        """Best solver for each problem, walking the ranking past what can't run as MIOpen does.

        Parameters
        ----------
        problems : sequence of ConvProblem
            Any problems.
        runnable : sequence of collection of str, optional
            For each problem, the solvers that can run it. Without it only solvers of another
            direction are passed over.

        Returns
        -------
        list of str or None
            None where the net isn't asked, or none of its solvers can run.
        """
        supported = [index for index, problem in enumerate(problems) if self.supports(problem)]
        picks: list[str | None] = [None] * len(problems)
        orders = np.argsort(-self.rank([problems[index] for index in supported]), axis=1)
        for index, order in zip(supported, orders, strict=True):
            direction = problems[index].direction
            picks[index] = next(
                (
                    self.solvers[column]
                    for column in order
                    if runs_direction(self.solvers[column], direction)
                    and (runnable is None or self.solvers[column] in runnable[index])
                ),
                None,
            )
        return picks

    def _value(self, name: str) -> _Value:
        if name in _ALWAYS_ONE:
            return lambda _: 1
        if name == "Direction":
            return lambda p: self.encodings["Direction"][p.direction]
        if name == "Precision":
            return lambda p: self.encodings["Precision"][p.dtype]
        if name == "Layout":
            return lambda p: self.encodings["Layout"][p.layout]
        return _SIZES[_OLD_NAMES.get(name, name)]


def runs_direction(solver: str, direction: str) -> bool:
    """Whether a solver that TunaNet knows can run in a direction, going by its name.

    Examples
    --------
    >>> [runs_direction("GemmWrwUniversal", direction) for direction in "FBW"]
    [False, False, True]
    >>> [runs_direction("ConvBinWinogradRxSf2x3", direction) for direction in "FBW"]
    [True, True, True]
    """
    if solver == "fft":
        return direction != "W"
    for word, only in (("Wrw", "W"), ("WrW", "W"), ("Bwd", "B"), ("Fwd", "F")):
        if word in solver:
            return direction == only
    return True
