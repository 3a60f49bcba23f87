"""Show in a minute, without a GPU, what foretune does: predict, check, count what it saves.

First MIOpen's solvers for a network's training on an MI300X, from the model alone. Then foretune's
own kernels on this machine's processor: what is picked without measuring, measured beside the best
that a search finds, and what that search took. Nothing is kept but built kernels.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from foretune.cli.json_text import to_json
from foretune.cli.problems import name_of
from foretune.cli.progress import progress
from foretune.cli.table import format_table
from foretune.errors import InputError
from foretune.predictor.prediction import Prediction
from foretune.quickstart import (
    DEFAULT_BUDGET,
    KernelsPart,
    MIOpenPart,
    check_on_processor,
    predict_for_miopen,
)

EXAMPLES = """\
examples:
  foretune quickstart
  search longer:
    foretune quickstart --budget 20

With --json it is one object:
  {"miopen": {"device", "network", "seconds", "answers": [{"problem", "accepted", "reason",
   "solutions"}, ...]},
   "kernels": {"device", "network", "load_seconds", "layers": [{"name", "problem", "count", "pick",
   "rung", "reason", "best", "pick_ms", "best_ms", "default_ms", "ask_seconds", "search_seconds"},
   ...], "pick_ms", "best_ms", "default_ms", "ask_seconds", "search_seconds"},
   "skipped": ""}
where kernels is null, and skipped says why, if there is nothing to compute on.

exit codes: 0 all was shown, or said to be skipped; 2 some input can't be used
"""

#: Answers of MIOpen's that are shown, of those that the network has.
_SHOWN = 6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "--budget",
        type=float,
        default=DEFAULT_BUDGET,
        metavar="S",
        help="seconds of search for each layer (default %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")


def run(options: argparse.Namespace) -> int:
    """Predict, measure, print, and return the exit code."""
    if not options.budget > 0:
        raise InputError(f"expected seconds above 0, got {options.budget}", "--budget")
    miopen = predict_for_miopen()
    if not options.json:
        print("\n".join(_miopen_lines(miopen)), flush=True)
    kernels, skipped = None, ""
    try:
        with progress() as show:
            kernels = check_on_processor(options.budget, show)
    except InputError as error:
        skipped = error.message
    if options.json:
        print(to_json(_record(miopen, kernels, skipped)))
    elif kernels is None:
        print(f"skipped: measuring foretune's own kernels on this processor; {skipped}")
    else:
        print("\n".join(_kernel_lines(kernels)))
    return 0


def _miopen_lines(part: MIOpenPart) -> Iterator[str]:
    yield f"MIOpen on an {part.device}, from the model alone: {part.network}"
    answers = part.answers[:: max(1, len(part.answers) // _SHOWN)][:_SHOWN]
    rows = [_miopen_row(answer) for answer in answers]
    yield format_table(("problem", "sure", "solver", "predicted ms"), rows, right={"predicted ms"})
    sure = sum(answer.accepted for answer in part.answers)
    total = sum(answer.solutions[0].predicted_ms for answer in part.answers if answer.solutions)
    yield (
        f"all {len(part.answers)} different convolutions: {total:.3g} ms predicted, {sure} sure "
        f"enough to run unmeasured; answered in {part.seconds:.2f} s, the model's loading included"
    )
    yield ""


def _miopen_row(answer: Prediction) -> tuple[str, ...]:
    first = answer.solutions[0] if answer.solutions else None
    return (
        name_of(answer.problem),
        "yes" if answer.accepted else "no",
        "" if first is None else first.solver,
        "" if first is None else f"{first.predicted_ms:.4g}",
    )


def _kernel_lines(part: KernelsPart) -> Iterator[str]:
    yield (
        f"foretune's own kernels on this processor ({part.device}), picked without measuring, then "
        f"checked: {part.network}"
    )
    rows = [
        (
            layer.name,
            f"{layer.count}",
            layer.pick.partition("{")[0],
            layer.rung,
            f"{layer.pick_ms:.4g}",
            f"{layer.best_ms:.4g}",
            f"{layer.pick_ms / layer.best_ms:.2f}",
            f"{1e3 * layer.ask_seconds:.1f}",
            f"{layer.search_seconds:.1f}",
        )
        for layer in part.layers
    ]
    headers = (
        *("layer", "times", "picked solver", "by", "ms", "best found", "ratio", "asking ms"),
        "searching s",
    )
    yield format_table(headers, rows, right={*headers} - {"layer", "picked solver", "by"})
    yield (
        f"the network's convolutions: {part.pick_ms:.3g} ms as picked, {part.best_ms:.3g} ms with "
        f"the best found ({100 * part.best_ms / part.pick_ms:.0f}%), {part.default_ms:.3g} ms by "
        "default"
    )
    yield (
        f"asking took {1e3 * part.ask_seconds:.1f} ms (and {part.load_seconds:.2f} s once, to "
        f"start), searching {part.search_seconds:.1f} s"
    )


def _record(miopen: MIOpenPart, kernels: KernelsPart | None, skipped: str) -> dict[str, Any]:
    return {
        "miopen": {
            "device": miopen.device,
            "network": miopen.network,
            "seconds": miopen.seconds,
            "answers": [
                {
                    "problem": name_of(answer.problem),
                    "accepted": answer.accepted,
                    "reason": answer.reason,
                    "solutions": [solution.to_dict() for solution in answer.solutions],
                }
                for answer in miopen.answers
            ],
        },
        "kernels": None
        if kernels is None
        else {
            "device": kernels.device,
            "network": kernels.network,
            "load_seconds": kernels.load_seconds,
            "layers": [
                {**vars(layer), "problem": name_of(layer.problem)} for layer in kernels.layers
            ],
            "pick_ms": kernels.pick_ms,
            "best_ms": kernels.best_ms,
            "default_ms": kernels.default_ms,
            "ask_seconds": kernels.ask_seconds,
            "search_seconds": kernels.search_seconds,
        },
        "skipped": skipped,
    }
