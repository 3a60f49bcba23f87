"""Finding the model that ranks candidates on a device: the user's own, or foretune's."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.kernels.store import Store
from foretune.predictor.kernels.bundle import SPEC_FILE, load_candidates

if TYPE_CHECKING:
    from foretune.kernels.runtime.properties import DeviceProperties
    from foretune.predictor.candidates import CandidateModel
    from foretune.predictor.kernels.model import KernelModel


def candidate_model(device: DeviceProperties, operation: str) -> CandidateModel | None:
    """Give the model for an operation's candidates on a device; None if there is none.

    A model in the user's data folder (`user_models`), such as `foretune train kernels --user`
    writes, comes before the one that comes with foretune.

    Parameters
    ----------
    device : DeviceProperties
    operation : str

    Raises
    ------
    InputError
        If there is one, but it is damaged or of another version.

    Examples
    --------
    >>> from foretune.kernels.runtime.properties import DeviceProperties
    >>> candidate_model(DeviceProperties("hip", "", "gfx000", 1, 64, 65536, 1024), "conv") is None
    True
    """
    return model_in((user_models(), shipped_candidates()), device.arch, operation)


def model_in(
    folders: tuple[str | os.PathLike[str], ...], arch: str, operation: str
) -> KernelModel | None:
    """Give the model for an operation on an arch, of the first folder that has one."""
    for folder in folders:
        home = Path(folder, arch.partition(":")[0], operation)
        if (home / SPEC_FILE).is_file():
            return _load(str(home), operation)
    return None


@lru_cache(maxsize=32)
def _load(folder: str, operation: str) -> KernelModel:
    return load_candidates(folder, operation)


def user_models() -> Path:
    """Folder of the user's own models: <arch>/<operation> below it."""
    return Path(Store().path).parent / "models"


def shipped_candidates() -> Path:
    """Folder of the candidate models that come with foretune."""
    from foretune import trained_models

    return Path(trained_models.__path__[0], "kernels")
