"""Arguments that say how a model is run; verbs that take a model share them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from foretune.errors import InputError
from foretune.miopen.sources import ModelOptions, takes_model_options


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments, in a group of their own."""
    group = parser.add_argument_group("how a model is run (model.py:build, model.onnx)")
    group.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="SHAPE",
        help="shape of its input, such as 1x3x224x224; several tensors as "
        "1x4x64x64,1:int64,1x77x768, named ones as image=1x3x64x64; again for each other size",
    )
    group.add_argument(
        "--dtype",
        default="",
        help="converts parameters and inputs to fp32, fp16, bf16 or fp64, or is the type of "
        "--autocast (default: the model's own)",
    )
    group.add_argument("--backward", action="store_true", help="also the gradients of training")
    group.add_argument(
        "--channels-last",
        action="store_true",
        help="converts model and inputs to channels-last (MIOpen sees it if the environment "
        "variable PYTORCH_MIOPEN_SUGGEST_NHWC is 1)",
    )
    group.add_argument(
        "--autocast", action="store_true", help="under torch.autocast, in --dtype or fp16"
    )


def model_options(options: argparse.Namespace, sources: Sequence[str]) -> ModelOptions:
    """Options out of the parsed arguments.

    Raises
    ------
    InputError
        If some are given, and no source is a model.
    """
    model = ModelOptions(
        tuple(options.input),
        options.dtype,
        options.backward,
        options.channels_last,
        options.autocast,
    )
    if model != ModelOptions() and not any(map(takes_model_options, sources)):
        raise InputError(
            "--input, --dtype, --backward, --channels-last and --autocast are for a model, such as "
            "model.py:build; a file of convolutions has its own"
        )
    return model
