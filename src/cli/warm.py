"""Write predictions into MIOpen's user databases, so that a program starts without a search.

SOURCE tells the program's convolutions: its log, a file of find-db keys or MIOpenDriver lines, a
PyTorch model, or an ONNX file. What is accepted at the stated risk is written, beside what your own
tuning found, which stays. What MIOpen's own find-db holds is never hidden.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foretune.api import known_archs
from foretune.cli.gpu import find_gpu
from foretune.cli.json_text import to_json
from foretune.cli.model_options import add_model_arguments, model_options
from foretune.cli.table import format_table, printable
from foretune.errors import InputError
from foretune.files import replace_file
from foretune.kernels.conv.problem import ConvProblem
from foretune.miopen.config_ranking import TABLE_FILE, ConfigRanking
from foretune.miopen.installation import Installation, choose_release, find_installation
from foretune.miopen.lock import DEFAULT_TIMEOUT, Holder
from foretune.miopen.names import parse_arch, usual_compute_units
from foretune.miopen.predictor import (
    BORROWED_MODELS,
    DEFAULT_RISK,
    MIOpenPredictor,
    shipped_models,
)
from foretune.miopen.sources import read_source
from foretune.miopen.tuning_script import BASIS, Estimate, estimate_tuning, tuning_script
from foretune.miopen.user_db import default_folder, network_file_system
from foretune.miopen.warm import Changes, Target, decide, warm

EXAMPLES = """\
examples:
  the convolutions of a program that ran once, for the MIOpen and the GPU of this machine:
    MIOPEN_ENABLE_LOGGING_CMD=1 python train.py 2> train.log
    foretune warm train.log
  on a machine without a GPU, for an MI300X and a MIOpen of which only the name is known:
    foretune warm train.log --arch gfx942 --cu 304 --miopen 3.3.0.a85ca8a54-dirty --out db
    MIOPEN_USER_DB_PATH=$PWD/db python train.py
  look first; and have measured what isn't sure:
    foretune warm train.log --dry-run
    foretune warm train.log --unsure list --script tune.sh && sh tune.sh
  take it back:
    foretune unwarm

The program has to run in find mode 2, 3 or 5 (MIOPEN_FIND_MODE; 5 is the default) and without
MIOPEN_FIND_ENFORCE: find mode 1 measures anew whatever is written.

exit codes: 0 all was done; 2 some input can't be used (all other is used nevertheless)
"""

_SCRIPT = "foretune-tune.sh"
_WITHDRAWN = "not sure any more or in MIOpen's own find-db"
#: What became of problems -> in words; the order of the report.
_OUTCOMES = {
    "written": "written",
    "unchanged": "there already, as they would be written",
    "kept": "your own, which stay",
    "system": "in MIOpen's own find-db, which has them measured",
    "unsure": "not sure enough",
    "unsafe": "sure, but without a safe entry",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    parser.add_argument(
        "sources",
        nargs="+",
        metavar="SOURCE",
        help="a log (MIOPEN_ENABLE_LOGGING_CMD=1), a file of find-db keys or MIOpenDriver lines, "
        "model.py:build, or model.onnx; - is standard input",
    )
    parser.add_argument("--arch", help="for example gfx942; default: this machine's GPU")
    parser.add_argument(
        "--cu", type=int, metavar="N", help="compute units; default: the arch's usual count"
    )
    parser.add_argument(
        "--miopen",
        metavar="VERSION",
        help="release that the program uses, with its tweak, such as 3.3.0.a85ca8a54, and +mlir "
        "after it if it was built with rocMLIR (default: that of the installed PyTorch, else of "
        "ROCm)",
    )
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        help="folder for the databases (default: where MIOpen keeps them, MIOPEN_USER_DB_PATH or "
        "~/.config/miopen)",
    )
    parser.add_argument(
        "--system",
        metavar="FOLDER",
        help="share/miopen/db of the program's MIOpen, whose find-db is never hidden (default: "
        "that of the installed one)",
    )
    parser.add_argument(
        "--risk",
        type=float,
        default=DEFAULT_RISK,
        metavar="SHARE",
        help="share of written picks that may be slower than 1.10 times the best "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--unsure",
        choices=("skip", "list"),
        default="skip",
        help="with list, make a script that has MIOpen measure what isn't sure enough "
        "(default %(default)s)",
    )
    parser.add_argument(
        "--script", metavar="FILE", help=f"where that script goes (default {_SCRIPT})"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be written")
    parser.add_argument(
        "--timeout",
        type=float,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help="how long to wait for a process that holds a database (default %(default)g)",
    )
    parser.add_argument(
        "--models", metavar="FOLDER", help="models that foretune train made (default: the shipped)"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    add_model_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Warm, and return the exit code."""
    if options.script is not None and options.unsure != "list":
        raise InputError("goes with --unsure list alone", "--script")
    notes: list[str] = []
    target = _target(options, notes)
    predictor = MIOpenPredictor(
        target.arch,
        target.compute_units,
        risk=options.risk,
        miopen=target.release.solvers,
        models=options.models,
    )
    counts, errors = _problems(options, notes)
    answers = decide(counts, predictor, target)
    with _script(options) as script:
        changes = warm(
            answers,
            target,
            dry_run=options.dry_run,
            parents=options.out is None,
            timeout=options.timeout,
            waiting=say_who,
        )
        estimate = _estimate(options, changes, target) if options.unsure == "list" else None
        if script and estimate:
            script.write_text(tuning_script(changes.unsure, target, estimate))
    if changes.made_folder:
        notes.append(f"the folder {target.folder} was not there and was made")
    if changes.unusable:
        notes.append(
            f"{len(changes.unusable)} of your own entries in {target.find_db} can't be used: they "
            "are empty, or have no algorithm of their direction, which makes a call of MIOpen "
            f"fail; take the lines out and warm again. The first is {changes.unusable[0]}"
        )
    notes += _advice(options, target)
    if options.json:
        print(to_json(_record(options, target, counts, changes, estimate, notes, errors)))
    else:
        print("\n".join(_report(options, target, counts, changes, estimate)))
        for note in notes:
            print(f"\nnote: {note}")
        for error in errors:
            print(f"foretune: error: {printable(error)}", file=sys.stderr)
    return 2 if errors else 0


def database_folder(out: str | None) -> str:
    """Folder of the user databases: the one that is named, or MIOpen's."""
    if out is None:
        return default_folder()
    if not out:  # a variable of the shell that isn't set
        raise InputError("is empty; name a folder, or leave it out", "--out")
    return out.rstrip("/") or "/"


def say_who(holder: Holder) -> None:
    """Tell a person who is waited for."""
    print(f"foretune: waiting for the database, which {holder} holds", file=sys.stderr, flush=True)


def _target(options: argparse.Namespace, notes: list[str]) -> Target:
    arch, units = _device(options)
    installation = find_installation()
    folder = database_folder(options.out)
    release = choose_release(options.miopen, installation, folder)
    system = _system_folder(options, installation, release.version)
    target = Target(arch, units, release, folder, system)
    if system is None:
        notes.append(
            "no find-db of this MIOpen was looked at, because no such MIOpen is installed here; "
            "name its share/miopen/db by --system, else what is written hides the measurements "
            "that it may hold"
        )
    elif target.system_find_db is None:
        notes.append(f"{system} has no find-db for this device, so there is none to be hidden")
    if not target.perf_db_is_text:
        notes.append(
            f"{target.system_perf_db} is SQLite, so this MIOpen doesn't read parameters from "
            "texts, and none are written; it takes its own defaults"
        )
    if options.out and (kind := network_file_system(folder)):
        notes.append(
            f"{folder} is on a network file system ({kind}), where MIOpen's locks are slow; for "
            "many processes give each a copy of its own"
        )
    return target


def _device(options: argparse.Namespace) -> tuple[str, int]:
    archs = _known_archs(options.models)
    if options.arch is None:
        gpu = find_gpu()
        if gpu is None:
            raise InputError(
                "there is no AMD GPU here, so name the arch that the databases are for, such as "
                f"--arch gfx942; archs with a model are {', '.join(archs)}"
            )
        arch, units = gpu.arch, gpu.compute_units if options.cu is None else options.cu
    else:
        arch, units = options.arch, options.cu
    name = parse_arch(arch)
    if BORROWED_MODELS.get(name, name) not in archs:
        raise InputError(f"there is no model for {name}; known are {', '.join(archs)}", "arch")
    if units is None:
        units = usual_compute_units(name)
    if units is None:
        raise InputError(f"how many units a {name} has isn't known; name them by --cu", "--cu")
    return arch, units


def _known_archs(models: str | None) -> tuple[str, ...]:
    if models is None:
        return known_archs()
    if not Path(models).is_dir():
        raise InputError("there is no such folder of models", models)
    return tuple(sorted(path.name for path in Path(models).glob("gfx*")))


def _system_folder(
    options: argparse.Namespace, installation: Installation | None, version: tuple[int, int, int]
) -> Path | None:
    if options.system is not None:
        folder = Path(options.system)
        if not folder.is_dir():
            raise InputError("there is no such folder", options.system)
        return folder
    if installation is None:
        return None
    # Of a library that doesn't say its release, the user's word on it is taken.
    is_it = installation.release is None or installation.release.version == version
    return installation.system_folder if is_it else None


def _problems(
    options: argparse.Namespace, notes: list[str]
) -> tuple[dict[ConvProblem, int], list[str]]:
    model = model_options(options, options.sources)
    counts: Counter[ConvProblem] = Counter()
    errors = []
    for name in options.sources:
        source = read_source(name, model)
        counts.update(source.counts)
        notes += source.notes
        errors += [
            f"{name}, line {line.number}: {line.error}" if line.number else str(line.error)
            for line in source.errors
        ]
    return dict(counts), errors


@contextmanager
def _script(options: argparse.Namespace) -> Iterator[Path | None]:
    """Give the file of the tuning script, opened before any database is changed."""
    if options.unsure != "list" or options.dry_run:
        yield None
        return
    path = Path(options.script or _SCRIPT)
    with replace_file(path) as temporary:
        yield temporary
    path.chmod(0o755)


def _estimate(options: argparse.Namespace, changes: Changes, target: Target) -> Estimate:
    arch = parse_arch(target.arch)
    folder = Path(options.models or shipped_models(), BORROWED_MODELS.get(arch, arch))
    configs = ConfigRanking(folder) if (folder / TABLE_FILE).exists() else None
    return estimate_tuning(changes.unsure, configs)


def _advice(options: argparse.Namespace, target: Target) -> Iterator[str]:
    if options.out:
        yield f"start the program with MIOPEN_USER_DB_PATH={os.path.abspath(target.folder)}"  # noqa: PTH100
    yield (
        "kernels are still compiled on first use; to have them too, run the program once and keep "
        f"~/.cache/miopen/{target.release}, or the folder that MIOPEN_CUSTOM_CACHE_DIR names"
    )


def _outcomes(changes: Changes) -> dict[str, int]:
    outcomes = {name: changes.kinds[name] for name in ("system", "unsure", "unsafe")}
    # Problems that the user's tuning answered count as such, whatever foretune thinks of them.
    kept = set(changes.kept)
    for answer in changes.answers:
        if answer.kind in outcomes and answer.key in kept:
            outcomes[answer.kind] -= 1
    for name in ("written", "unchanged", "kept"):
        outcomes[name] = len(getattr(changes, name))
    return {name: outcomes[name] for name in _OUTCOMES}


def _report(
    options: argparse.Namespace,
    target: Target,
    counts: dict[ConvProblem, int],
    changes: Changes,
    estimate: Estimate | None,
) -> Iterator[str]:
    yield (
        f"{target.arch} with {target.compute_units} units, MIOpen {target.release}, "
        f"stated risk {options.risk:.2g}"
    )
    yield f"find-db {target.find_db}"
    yield f"perf-db {target.perf_db}"
    yield ""
    if options.dry_run:
        yield "nothing is written; this would be:"
        written = set(changes.written)
        for answer in changes.answers:
            if answer.key in written:
                yield f"  {answer.find}"
                if answer.config:
                    yield f"  {answer.config}"
        yield ""
    rows = [[_OUTCOMES[name], f"{count}"] for name, count in _outcomes(changes).items() if count]
    title = f"{len(changes.answers)} convolutions, asked for {sum(counts.values())} times"
    yield format_table([title, "convolutions"], rows, {"convolutions"}).rstrip("\n")
    yield f"parameters written or there already: {changes.configs}; kept: {changes.configs_kept}"
    if changes.withdrawn:
        yield f"written earlier and taken out, because {_WITHDRAWN}: {len(changes.withdrawn)}"
    yield from _reasons(options, changes, estimate)


def _reasons(
    options: argparse.Namespace, changes: Changes, estimate: Estimate | None
) -> Iterator[str]:
    if not changes.unsure:
        return
    reasons = Counter(re.sub(r": score .*", "", answer.reason) for answer in changes.unsure)
    yield ""
    rows = [[printable(reason), f"{count}"] for reason, count in reasons.most_common()]
    yield format_table(["not written", "convolutions"], rows, {"convolutions"}).rstrip("\n")
    if estimate is None:
        yield "--unsure list makes a script that has MIOpen measure these alone"
        return
    script = options.script or _SCRIPT
    yield f"{'a script for' if options.dry_run else script + ':'} measuring these alone"
    yield f"takes at least {estimate} of GPU time. Basis: {BASIS}."


def _record(
    options: argparse.Namespace,
    target: Target,
    counts: dict[ConvProblem, int],
    changes: Changes,
    estimate: Estimate | None,
    notes: list[str],
    errors: list[str],
) -> dict[str, Any]:
    written = set(changes.written)
    record: dict[str, Any] = {
        "arch": target.arch,
        "compute_units": target.compute_units,
        "miopen": str(target.release),
        "risk": options.risk,
        "find_db": str(target.find_db),
        "perf_db": str(target.perf_db),
        "dry_run": options.dry_run,
        "problems": len(changes.answers),
        "calls": sum(counts.values()),
        **_outcomes(changes),
        "withdrawn": len(changes.withdrawn),
        "configs": changes.configs,
        "configs_kept": changes.configs_kept,
        "entries": [
            {"find": str(answer.find), "config": str(answer.config) if answer.config else None}
            for answer in changes.answers
            if answer.key in written
        ],
        "not_written": [
            {"problem": answer.key, "reason": answer.reason, "count": counts[answer.problem]}
            for answer in changes.unsure
        ],
        "notes": notes,
        "errors": errors,
    }
    if estimate is not None:
        record["script"] = None if options.dry_run else options.script or _SCRIPT
        record["estimate_seconds"] = estimate.seconds
        record["estimate_basis"] = BASIS
    return record
