"""Train a model from what was measured, calibrate it, and write a bundle."""

from __future__ import annotations

import argparse

from foretune.errors import InputError

#: Whose kernels -> the module that has the arguments and does the work.
FAMILIES = {
    "miopen": "foretune.cli.train_miopen",
    "kernels": "foretune.cli.train_kernels",
}

EXAMPLES = """\
examples:
  foretune train miopen --help     MIOpen's solvers, from AMD's tuning databases
  foretune train kernels --help    foretune's own kernels, from datasets of foretune tune
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments: whose kernels; the rest is the family's own."""
    parser.add_argument("family", choices=FAMILIES, help="whose kernels")


def run(options: argparse.Namespace) -> int:
    """Say where the family belongs: it was named, but not right after the verb."""
    raise InputError(f"name {options.family} right after train")
