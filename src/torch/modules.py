"""Models whose convolutions are computed by foretune's kernels."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, TypeVar, Unpack

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from foretune.torch import convolution
from foretune.torch.convolution import Options, autocast_dtype

_OURS: MappingProxyType[Any, Any] = MappingProxyType(
    {
        torch.conv1d: convolution.conv1d,
        torch.conv2d: convolution.conv2d,
        torch.conv3d: convolution.conv3d,
        torch.conv_transpose1d: convolution.conv_transpose1d,
        torch.conv_transpose2d: convolution.conv_transpose2d,
        torch.conv_transpose3d: convolution.conv_transpose3d,
    }
)
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
ModuleT = TypeVar("ModuleT", bound=nn.Module)


class ConvolutionMode(TorchFunctionMode):
    """Has foretune compute the convolutions that PyTorch is asked for inside a `with` block.

    Those of other types (float64), of empty tensors, on other devices and of tensors without
    values are left to PyTorch.

    Parameters
    ----------
    **options
        mode, budget_ms, workspace_limit, deterministic, risk: as for `foretune.conv2d`.

    Examples
    --------
    >>> with ConvolutionMode(mode="FAST"):
    ...     y = torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 3, 3, 3))
    >>> y.shape, float(y[0, 0, 0, 0])
    (torch.Size([1, 4, 6, 6]), 27.0)
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        super().__init__()
        self._options = options

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Take over convolutions."""
        kwargs = kwargs or {}
        ours = _OURS.get(func)
        if ours is None or not _is_computed(*args[:2], **kwargs):
            return func(*args, **kwargs)
        return ours(*args, **kwargs, **self._options)


def use(model: ModuleT, **options: Unpack[Options]) -> ModuleT:
    """Have foretune compute a model's convolutions from now on.

    Modules of PyTorch's own classes (`torch.nn.Conv2d` and its kin) become those of this module,
    in place; weights and everything else stay. Subclasses of others are left alone: for them, and
    for convolutions that a model asks for by function, there is `ConvolutionMode`.

    Parameters
    ----------
    model : torch.nn.Module
    **options
        mode, budget_ms, workspace_limit, deterministic, risk: as for `foretune.conv2d`.

    Returns
    -------
    torch.nn.Module
        The same model.

    Examples
    --------
    >>> model = use(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU()))
    >>> isinstance(model[0], Conv2d), model(torch.ones(1, 3, 8, 8)).shape
    (True, torch.Size([1, 8, 6, 6]))
    """
    for module in model.modules():
        swapped = _CLASSES.get(type(module))
        if swapped is not None:
            module.__class__ = swapped
        if isinstance(module, _Computed):
            module.foretune_options = options
    return model


def give_back(model: ModuleT) -> ModuleT:
    """Have PyTorch compute a model's convolutions again.

    Examples
    --------
    >>> type(give_back(use(torch.nn.Conv2d(3, 8, 3)))) is torch.nn.Conv2d
    True
    """
    originals: dict[type[nn.Module], type[nn.Module]]
    originals = {swapped: original for original, swapped in _CLASSES.items()}
    for module in model.modules():
        original = originals.get(type(module))
        if original is not None:
            module.__class__ = original
            vars(module).pop("foretune_options", None)
    return model


class _Computed(nn.Module):
    """A module that asks for one convolution."""

    foretune_options: Options = Options()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with ConvolutionMode(**self.foretune_options):
            return super().forward(*args, **kwargs)


class Conv1d(_Computed, nn.Conv1d):
    """`torch.nn.Conv1d`, computed by foretune."""


class Conv2d(_Computed, nn.Conv2d):
    """`torch.nn.Conv2d`, computed by foretune.

    Examples
    --------
    >>> Conv2d(3, 8, 3, padding="same")(torch.ones(1, 3, 8, 8)).shape
    torch.Size([1, 8, 8, 8])
    """


class Conv3d(_Computed, nn.Conv3d):
    """`torch.nn.Conv3d`, computed by foretune."""


class ConvTranspose1d(_Computed, nn.ConvTranspose1d):
    """`torch.nn.ConvTranspose1d`, computed by foretune."""


class ConvTranspose2d(_Computed, nn.ConvTranspose2d):
    """`torch.nn.ConvTranspose2d`, computed by foretune."""


class ConvTranspose3d(_Computed, nn.ConvTranspose3d):
    """`torch.nn.ConvTranspose3d`, computed by foretune."""


_CLASSES: MappingProxyType[type[nn.Module], type[_Computed]] = MappingProxyType(
    {
        nn.Conv1d: Conv1d,
        nn.Conv2d: Conv2d,
        nn.Conv3d: Conv3d,
        nn.ConvTranspose1d: ConvTranspose1d,
        nn.ConvTranspose2d: ConvTranspose2d,
        nn.ConvTranspose3d: ConvTranspose3d,
    }
)


def _is_computed(input: Any, weight: Any = None, **_: Any) -> bool:
    """Whether tensors have values that foretune's kernels can compute with."""
    return all(
        type(tensor) in (Tensor, nn.Parameter)
        and tensor.device.type in ("cpu", "cuda")
        and autocast_dtype(tensor) in _DTYPES
        and tensor.numel() > 0
        for tensor in (input, weight)
    )
