"""Turns a missing optional package into one clear message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from foretune.errors import InputError

_TRAIN = {"lightgbm", "sklearn", "scipy", "pandas", "pyarrow", "platformdirs", "filelock"}
_TUNE = {"pyarrow", "platformdirs", "msgpack", "elftools"}
_REPORT = {"matplotlib", "jinja2", "markupsafe"}


@contextmanager
def train_extra(verb: str) -> Iterator[None]:
    """Say what to install if the block fails for want of the extra `train`.

    Examples
    --------
    >>> with train_extra("train"):
    ...     raise ModuleNotFoundError(name="lightgbm")
    Traceback (most recent call last):
    foretune.errors.InputError: train: needs foretune[train]: pip install 'foretune[train]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _TRAIN:
            raise
        raise InputError("needs foretune[train]: pip install 'foretune[train]'", verb) from None
    except OSError as error:
        if "libgomp" not in str(error):
            raise
        raise InputError(
            f"LightGBM can't be loaded ({error}); install the system's libgomp (Debian: libgomp1)",
            verb,
        ) from None


@contextmanager
def tune_extra(verb: str) -> Iterator[None]:
    """Say what to install if the block fails for want of the extra `tune`.

    Examples
    --------
    >>> with tune_extra("tune"):
    ...     raise ModuleNotFoundError(name="pyarrow")
    Traceback (most recent call last):
    foretune.errors.InputError: tune: needs foretune[tune]: pip install 'foretune[tune]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _TUNE:
            raise
        raise InputError("needs foretune[tune]: pip install 'foretune[tune]'", verb) from None


@contextmanager
def report_extra(option: str) -> Iterator[None]:
    """Say what to install if the block fails for want of the extra `report`.

    Examples
    --------
    >>> with report_extra("--report"):
    ...     raise ModuleNotFoundError(name="matplotlib")
    Traceback (most recent call last):
    foretune.errors.InputError: --report: needs foretune[report]: pip install 'foretune[report]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _REPORT:
            raise
        raise InputError("needs foretune[report]: pip install 'foretune[report]'", option) from None
