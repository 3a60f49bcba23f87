"""Predictions as entries of MIOpen's user databases: which are safe, and writing and removing them.

An item of a find-db can make a call of MIOpen fail: by an algorithm that isn't its direction's, or
by a workspace that is too small. So an item is made only of a solver that the release has and runs
by default on the arch, with the algorithm that belongs to it and a workspace by an exact formula.
Tuning parameters that MIOpen can't use only cost their effect; they are checked all the same.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from foretune.errors import InputError
from foretune.miopen.archive import ARCHIVES, IssueLog, open_archive, read_lines
from foretune.miopen.config_grammar import parameter_names
from foretune.miopen.find_db import ALGORITHM_DIRECTIONS, FindItem
from foretune.miopen.keys import format_find_key, format_perf_key
from foretune.miopen.ledger import Entry, Ledger, ledger_path, read_ledger, write_ledger
from foretune.miopen.lock import DEFAULT_TIMEOUT, Holder, database_lock
from foretune.miopen.names import database_base_name, parse_arch
from foretune.miopen.perf_db import read_perf_db
from foretune.miopen.release_workspace import workspace_in
from foretune.miopen.solvers import SOLVERS, can_run, name_in, table_name
from foretune.miopen.user_db import (
    Release,
    UserDatabase,
    prepare_folder,
    read_user_database,
    user_find_db_name,
    user_perf_db_name,
    write_user_database,
)

if TYPE_CHECKING:
    from foretune.kernels.conv.problem import ConvProblem
    from foretune.miopen.predictor import MIOpenPredictor
    from foretune.predictor.prediction import Prediction, Solution

Waiting = Callable[[Holder], object]


@dataclass(frozen=True)
class Target:
    """Device and MIOpen that databases are for.

    Parameters
    ----------
    arch : str
        As devices report it, or "gfx942".
    compute_units : int
    release : Release
        With its tweak.
    folder : str
        Folder of the user databases, spelled as the program's ``MIOPEN_USER_DB_PATH``.
    system_folder : Path, optional
        Folder of the databases that come with that MIOpen.

    Examples
    --------
    >>> target = Target("gfx90a:sramecc+:xnack-", 110, Release(3, 4, 0, ""), "/db")
    >>> target.find_db.name
    'gfx90a6e.HIP.3_4_0_.ufdb.txt'
    """

    arch: str
    compute_units: int
    release: Release
    folder: str
    system_folder: Path | None = None

    @property
    def find_db(self) -> Path:
        """The user find-db."""
        name = user_find_db_name(self.arch, self.compute_units, self.release)
        return Path(self.folder, name)

    @property
    def perf_db(self) -> Path:
        """The user perf-db."""
        name = user_perf_db_name(self.arch, self.compute_units, self.release)
        return Path(self.folder, name)

    @property
    def system_find_db(self) -> Path | None:
        """The find-db that comes with MIOpen, if it has one for the device."""
        return self._system(".HIP.fdb.txt")

    @property
    def system_perf_db(self) -> Path | None:
        """The perf-db that comes with MIOpen, if it has one for the device."""
        return self._system(".db.txt") or self._system(".db")

    @property
    def perf_db_is_text(self) -> bool:
        """Whether that MIOpen keeps perf-dbs as text; a build that ships SQLite doesn't."""
        path = self.system_perf_db
        return path is None or ".db.txt" in path.name

    def _system(self, ending: str) -> Path | None:
        if self.system_folder is None:
            return None
        base = database_base_name(self.arch, self.compute_units)
        paths = (self.system_folder / f"{base}{ending}{suffix}" for suffix in ("", *ARCHIVES))
        return next((path for path in paths if path.is_file()), None)


@dataclass(frozen=True)
class Answer:
    """What is to be done about one problem.

    Parameters
    ----------
    problem : ConvProblem
    key : str
        Its find-db key.
    reason : str
        Why nothing is to be written; empty if something is.
    kind : {'sure', 'system', 'unsure', 'unsafe'}
        Accepted and safe; held by MIOpen's own find-db; not accepted; accepted, but no safe entry.
    find : Entry, optional
        For the find-db.
    config : Entry, optional
        For the perf-db; None if no parameters are known, or the solver has none.
    solutions : tuple of Solution, optional
        Candidates that were predicted.
    """

    problem: ConvProblem
    key: str
    reason: str
    kind: str
    find: Entry | None = None
    config: Entry | None = None
    solutions: tuple[Solution, ...] = ()


def decide(
    problems: Iterable[ConvProblem], predictor: MIOpenPredictor, target: Target
) -> list[Answer]:
    """Decide for each problem what may be written.

    Parameters
    ----------
    problems : iterable of ConvProblem
    predictor : MIOpenPredictor
        Made for the target's device and release, with the risk that is allowed.
    target : Target

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> from foretune.miopen.predictor import MIOpenPredictor
    >>> problem = ConvProblem("F", 64, 256, (14, 14), 256, (3, 3), padding=(1, 1), dtype="FP16")
    >>> target = Target("gfx942", 304, Release(3, 4, 0, ""), "/db")
    >>> answers = decide([problem], MIOpenPredictor("gfx942", miopen="3.4"), target)
    >>> answers[0].kind, answers[0].key[:9]
    ('sure', '256-14-14')
    """
    keys = {problem: format_find_key(problem) for problem in problems}
    shipped = _keys_in(target.system_find_db, set(keys.values()))
    asked = [problem for problem, key in keys.items() if key not in shipped]
    predictions = iter(predictor.predict_many(asked))
    answers = []
    for problem, key in keys.items():
        if key in shipped:
            answers.append(Answer(problem, key, "MIOpen's own find-db holds it", "system"))
        else:
            answers.append(_answer(next(predictions), key, target))
    return answers


def _answer(prediction: Prediction, key: str, target: Target) -> Answer:
    problem, solutions = prediction.problem, prediction.solutions
    if not prediction.accepted:
        return Answer(problem, key, prediction.reason, "unsure", solutions=solutions)
    try:
        item = find_item(problem, solutions[0], target.arch, target.release)
    except InputError as error:
        return Answer(problem, key, str(error), "unsafe", solutions=solutions)
    find = Entry(key, item.solver, str(item).partition(":")[2])
    params = safe_config(solutions[0]) if target.perf_db_is_text else None
    config = Entry(format_perf_key(problem), item.solver, params) if params else None
    return Answer(problem, key, "", "sure", find, config, solutions)


def find_item(problem: ConvProblem, solution: Solution, arch: str, release: Release) -> FindItem:
    """Item that a find-db may hold of a solution.

    Raises
    ------
    InputError
        If the release or the arch doesn't run the solver, or it can't be said safely what it
        needs.

    Examples
    --------
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> from foretune.predictor.prediction import Solution
    >>> problem = ConvProblem("F", 1, 64, (56, 56), 64, (3, 3), padding=(1, 1))
    >>> print(find_item(problem, Solution("GemmFwdRest", 0.5, 0, 0.9), "gfx942", Release(3, 4, 0)))
    GemmFwdRest:0.5,7225344,miopenConvolutionFwdAlgoGEMM
    """
    solver, arch = solution.solver, parse_arch(arch)
    known = table_name(solver)
    info = SOLVERS.get(known)
    if info is None or name_in(known, release.solvers) != solver:
        raise InputError(f"MIOpen {release} knows no solver of this name", solver)
    if not can_run(solver, arch, release.solvers):
        raise InputError(f"MIOpen {release} doesn't run it on {arch}", solver)
    algorithm = info.algorithm(problem.direction)
    if ALGORITHM_DIRECTIONS.get(algorithm) != problem.direction:
        raise InputError(f"{algorithm} is no algorithm of direction {problem.direction}", solver)
    workspace = workspace_in(known, problem, release.version[:2])
    if workspace is None:
        raise InputError(f"how much workspace MIOpen {release} asks for isn't known", solver)
    time_ms = float(f"{solution.predicted_ms:.6g}")
    if not isfinite(time_ms) or time_ms <= 0:
        raise InputError(f"the predicted time is {solution.predicted_ms}", solver)
    return FindItem(solver, time_ms, workspace, algorithm)


def safe_config(solution: Solution) -> str | None:
    """Tuning parameters of a solution that a text perf-db may hold; None if there are none.

    Examples
    --------
    >>> from foretune.predictor.prediction import Solution
    >>> safe_config(Solution("ConvAsm3x3U", 0.1, 0, 0.9, lambda: "0,8,7"))
    '0,8,7'
    >>> safe_config(Solution("ConvAsm3x3U", 0.1, 0, 0.9, lambda: "0,8,7,1")) is None
    True
    """
    known = table_name(solution.solver)
    text = solution.config
    if text is None or not SOLVERS[known].tunable or not text.isprintable() or ";" in text:
        return None
    try:
        names = parameter_names(known, text)
    except InputError:
        return None
    # A parameter without a name is one that the solver's grammar doesn't have.
    return None if any(name[0] == "p" and name[1:].isdigit() for name in names) else text


@dataclass
class Changes:
    """What was done to a user find-db and perf-db, or would be.

    Attributes
    ----------
    answers : sequence of Answer
    written, unchanged, kept, withdrawn : list of str
        Find-db keys: written now; there already as they would be written; the user's own, which
        stay; foretune's of another time that aren't sure any more, and were taken out.
    configs : int
        Parameters written or there already.
    configs_kept : int
        Parameters that the user's tuning or AMD's found, which stay.
    unusable : list of str
        Those of the kept keys whose entries make MIOpen's calls fail, or say nothing.
    made_folder : bool
        Whether the folder was made.
    """

    answers: Sequence[Answer]
    written: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    withdrawn: list[str] = field(default_factory=list)
    configs: int = 0
    configs_kept: int = 0
    unusable: list[str] = field(default_factory=list)
    made_folder: bool = False

    @cached_property
    def kinds(self) -> Counter[str]:
        """Problems of each kind of answer."""
        return Counter(answer.kind for answer in self.answers)

    @property
    def unsure(self) -> list[Answer]:
        """Problems that only measuring can answer, and that the user hasn't measured."""
        kept = set(self.kept)
        return [
            answer
            for answer in self.answers
            if answer.kind in ("unsure", "unsafe") and answer.key not in kept
        ]


class _Edit:
    """A database that is being edited, and its ledger."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.database = read_user_database(path)
        self.ledger = read_ledger(path)
        self.changed = False

    def ours(self, key: str) -> bool:
        """Whether all that is said of a problem is as foretune wrote it."""
        entries = [Entry(key, *item) for item in self.database.solvers(key).items()]
        return bool(entries) and all(entry in self.ledger for entry in entries)

    def put(self, entry: Entry) -> None:
        self.ledger.add(entry)
        self.database.put(entry)
        self.changed = True

    def remove(self, entry: Entry) -> None:
        self.database.remove(entry.key, entry.id)
        self.changed = True

    def remove_ours(self, key: str, solver: str) -> None:
        """Remove what is said of a solver, if it is as foretune wrote it."""
        values = self.database.solvers(key).get(solver)
        if values is not None and Entry(key, solver, values) in self.ledger:
            self.remove(Entry(key, solver, values))

    def write(self) -> None:
        if not self.changed:
            return
        # The ledger comes first: one that knows too much claims nothing that isn't as it says.
        write_ledger(self.path, self.ledger)
        if self.database.text():
            write_user_database(self.path, self.database)
        else:
            self.path.unlink(missing_ok=True)
        self.ledger.keep(self.database)
        write_ledger(self.path, self.ledger)


def warm(
    answers: Sequence[Answer],
    target: Target,
    *,
    dry_run: bool = False,
    parents: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    waiting: Waiting | None = None,
) -> Changes:
    """Write what was decided into the user databases, under MIOpen's lock.

    Entries that the user's own tuning made stay. What foretune wrote before is brought up to date.

    Parameters
    ----------
    answers : sequence of Answer
        Of `decide`.
    target : Target
    dry_run : bool, default False
        Change nothing, and take no lock.
    parents : bool, default False
        Make all folders that are missing, not only the last.
    timeout : float, default 60
        Seconds to wait for a process that holds a database.
    waiting : callable, optional
        Told who is waited for.

    Raises
    ------
    InputError
        If the folder or a database in it can't be used.

    Examples
    --------
    >>> import tempfile
    >>> from foretune.kernels.conv.problem import ConvProblem
    >>> problem = ConvProblem("F", 64, 256, (14, 14), 256, (3, 3), padding=(1, 1), dtype="FP16")
    >>> key = format_find_key(problem)
    >>> answer = Answer(problem, key, "", "sure", Entry(key, "fft", "0.5,0,..."))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     changes = warm([answer], Target("gfx942", 304, Release(3, 4, 0, ""), folder))
    ...     len(changes.written), sorted(path.name[-9:] for path in Path(folder).glob("g*"))
    (1, ['.foretune', '.ufdb.txt'])
    """
    changes = Changes(answers)
    if not dry_run:
        changes.made_folder = prepare_folder(target.folder, parents)
    with ExitStack() as locks:
        if not dry_run:
            for path in (target.find_db, target.perf_db):
                # Not the path, because the lock depends on how the folder is spelled.
                name = f"{target.folder}/{path.name}"
                locks.enter_context(database_lock(name, timeout, waiting))
        find, perf = _Edit(target.find_db), _Edit(target.perf_db)
        shipped = _configs_in(
            target.system_perf_db,
            {answer.config.key for answer in answers if answer.config is not None},
        )
        # First what goes, because problems that differ can have one perf-db key.
        for answer in sorted(answers, key=lambda answer: answer.find is not None):
            _settle(answer, find, perf, changes)
        _settle_configs(answers, perf, shipped, changes)
        if not dry_run:
            # Parameters without their find-db item do nothing; the other way round they are missed.
            perf.write()
            find.write()
    return changes


def _settle(answer: Answer, find: _Edit, perf: _Edit, changes: Changes) -> None:
    key = answer.key
    if key in find.database and not find.ours(key):
        changes.kept.append(key)
        if not _is_usable(find.database.solvers(key), answer.problem.direction):
            changes.unusable.append(key)
        return
    before = [Entry(key, *item) for item in find.database.solvers(key).items()]
    if before and before == [answer.find]:
        changes.unchanged.append(key)
        return
    if answer.find is not None:
        find.put(answer.find)
        changes.written.append(key)
    elif before:
        changes.withdrawn.append(key)
    for entry in before:
        if answer.find is None or entry.id != answer.find.id:
            find.remove(entry)
            perf.remove_ours(format_perf_key(answer.problem), entry.id)


def _is_usable(solvers: Mapping[str, str], direction: str) -> bool:
    """Whether MIOpen reads what a find-db says of a problem without giving up."""
    for solver, values in solvers.items():
        # MIOpen of long ago wrote the algorithm in front, where the solver is now.
        algorithms = [solver] if solver in ALGORITHM_DIRECTIONS else values.split(",")[2:3]
        if [ALGORITHM_DIRECTIONS.get(name) for name in algorithms] != [direction]:
            return False
    return bool(solvers)


def _settle_configs(
    answers: Sequence[Answer], perf: _Edit, shipped: set[tuple[str, str]], changes: Changes
) -> None:
    kept = set(changes.kept)
    entries: dict[tuple[str, str], Entry] = {}
    for answer in answers:
        if answer.config is not None and answer.key not in kept:
            # The first, if several sizes of x have one perf-db key.
            entries.setdefault((answer.config.key, answer.config.id), answer.config)
    for (key, solver), entry in entries.items():
        values = perf.database.solvers(key).get(solver)
        is_ours = values is not None and Entry(key, solver, values) in perf.ledger
        if (key, solver) in shipped or (values is not None and not is_ours):
            perf.remove_ours(key, solver)
            changes.configs_kept += 1
            continue
        if values != entry.values:
            perf.put(entry)
        changes.configs += 1


@dataclass(frozen=True)
class Removal:
    """What was taken out of one database, or would be.

    Parameters
    ----------
    path : Path
        The database.
    removed : int
        Entries that were as foretune wrote them.
    changed : int
        Entries that foretune wrote and that are others now; they stay.
    """

    path: Path
    removed: int
    changed: int


def unwarm(
    folder: str,
    *,
    dry_run: bool = False,
    timeout: float = DEFAULT_TIMEOUT,
    waiting: Waiting | None = None,
) -> list[Removal]:
    """Take out of the databases in a folder what foretune wrote and nobody has changed since.

    Parameters
    ----------
    folder : str
    dry_run : bool, default False
        Change nothing, and take no lock.
    timeout, waiting
        As for `warm`.

    Returns
    -------
    list of Removal
        One for each database that has a ledger.

    Raises
    ------
    InputError
        If there is no such folder, or a file in it can't be used.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     unwarm(folder)
    []
    """
    names = _ledgered(folder)
    if names and not dry_run:
        prepare_folder(folder)
    removals = []
    with ExitStack() as locks:
        if not dry_run:
            for name in names:
                locks.enter_context(database_lock(f"{folder}/{name}", timeout, waiting))
        # All are read before one is written, so that nothing is half done if one can't be.
        edits = [_Edit(Path(folder, name)) for name in names]
        for edit in edits:
            written = len(edit.ledger)
            ours = [entry for entry in edit.database if entry in edit.ledger]
            for entry in ours:
                edit.remove(entry)
            if not dry_run:
                edit.write()
                write_ledger(edit.path, Ledger())
            removals.append(Removal(edit.path, len(ours), written - len(ours)))
    return removals


def _ledgered(folder: str) -> list[str]:
    """Names of the databases in a folder that have a ledger."""
    ending = ledger_path("").name
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208
    except FileNotFoundError:
        raise InputError("there is no such folder", folder) from None
    except NotADirectoryError:
        raise InputError("this is no folder", folder) from None
    except OSError as error:
        raise InputError(f"the folder can't be read ({error.strerror})", folder) from None
    return [name.removesuffix(ending) for name in names if name.endswith(f".txt{ending}")]


def _keys_in(path: Path | None, wanted: set[str]) -> set[str]:
    """Those of some keys that a find-db holds."""
    if path is None:
        return set()
    lines = read_lines(open_archive(path), IssueLog(str(path)))
    return wanted.intersection(text.partition("=")[0] for _, text in lines)


def _configs_in(path: Path | None, wanted: set[str]) -> set[tuple[str, str]]:
    """Keys and solvers that a perf-db has parameters for."""
    if path is None or not wanted:
        return set()
    if ".db.txt" not in path.name:
        records = (record for record in read_perf_db(path) if record.key in wanted)
        return {(record.key, solver) for record in records for solver in record.params}
    # A whole file is only searched, because taking all of it apart would take seconds.
    lines = read_lines(open_archive(path), IssueLog(str(path)))
    found = UserDatabase("\n".join(text for _, text in lines if text.partition("=")[0] in wanted))
    return {(entry.key, entry.id) for entry in found}
