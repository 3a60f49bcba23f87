"""Finds the entries of a find-db that the model and simple physics say are wrong."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from foretune.errors import InputError
from foretune.kernels.devices import DeviceFacts, device_facts
from foretune.miopen.archive import Issue
from foretune.miopen.audit_entries import check_solvers, check_times, check_workspaces
from foretune.miopen.audit_model import BulkModel, check_expected
from foretune.miopen.audit_neighbours import check_neighbours
from foretune.miopen.audit_records import AuditedRecord, AuditSetting, Check, Suspicion
from foretune.miopen.find_db import read_find_db
from foretune.miopen.inspect import is_find_db
from foretune.miopen.names import parse_arch, parse_database_name, usual_compute_units
from foretune.miopen.solvers import ANY_VERSION, can_run

#: What is told of an entry -> what it means, the most certain first.
REASONS: Mapping[str, str] = MappingProxyType(
    {
        "time": "time is not above zero",
        "roofline": "faster than the device can be",
        "workspace": "workspace isn't what the solver needs",
        "algorithm": "algorithm isn't the solver's",
        "unknown": "no solver of this name is known",
        "retired": "the release doesn't run the solver",
        "batch": "10 times slower than the same solver at another batch",
        "slow": "best is 10 times slower than the model expects",
        "naive": "naive solver won where another should take less than half",
    }
)
_CHECKS: tuple[Check, ...] = (
    check_times,
    check_workspaces,
    check_solvers,
    check_neighbours,
    check_expected,
)
_RELEASE = re.compile(r"\.(\d+)_(\d+)_(\d+)_[^.]*\.ufdb\.txt")
_BATCH = 16_384

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Finding:
    """An entry that looks wrong.

    Attributes
    ----------
    line : int
        Line number in the file.
    key : str
        The problem's find-db key.
    solver : str
    time_ms : float
        Time that the entry gives.
    reason : str
        A name in `REASONS`.
    detail : str
        The numbers that speak against it.
    better, better_ms : str and float, or None
        The model's pick and its predicted time. None where the model has no answer, or the pick
        is this very solver: then it is the measurement alone that is suspected.
    """

    line: int
    key: str
    solver: str
    time_ms: float
    reason: str
    detail: str
    better: str | None
    better_ms: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(vars(self))


@dataclass(frozen=True)
class AuditReport:
    """What an audit came to.

    Attributes
    ----------
    path, arch, miopen : str
        The file, the device's arch, and the release whose solvers were asked for.
    compute_units : int
    problems, items : int
        Records and entries looked at.
    counts : dict of str to int
        Findings by reason, in the order of `REASONS`; reasons without any are left out.
    findings : tuple of Finding
        By reason, in the order of `REASONS`, then by line.
    not_checked : tuple of str
        Reasons that could not be looked for, and why.
    issues : tuple of Issue
        What could not be read.
    """

    path: str
    arch: str
    compute_units: int
    miopen: str
    problems: int
    items: int
    counts: dict[str, int]
    findings: tuple[Finding, ...]
    not_checked: tuple[str, ...]
    issues: tuple[Issue, ...]

    def only(self, reasons: Collection[str]) -> AuditReport:
        """Keep the findings of some reasons."""
        return replace(
            self,
            counts={name: count for name, count in self.counts.items() if name in reasons},
            findings=tuple(found for found in self.findings if found.reason in reasons),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values = dict(vars(self))
        values["findings"] = [finding.to_dict() for finding in self.findings]
        values["issues"] = [dict(vars(issue)) for issue in self.issues]
        return values


def audit_find_db(
    path: str | os.PathLike[str],
    arch: str = "",
    compute_units: int | None = None,
    *,
    miopen: str = "",
    models: str | os.PathLike[str] | None = None,
    on_progress: Progress | None = None,
) -> AuditReport:
    r"""Look for entries of a find-db that can't be right.

    Parameters
    ----------
    path : path-like
        Find-db text, AMD's or a user's, plain or compressed.
    arch : str, optional
        Device that it was measured on. Default: what the file's name says.
    compute_units : int, optional
        Default: what the file's name says, else the arch's usual count.
    miopen : str, optional
        Release that is to read it, such as "3.4"; for what it doesn't run. Default: that of a
        user database's name; else "any", with which every solver runs.
    models : path-like, optional
        Folder with a bundle for each arch. Default: the bundles that come with foretune.
    on_progress : callable, optional
        Called with a text, steps done and steps in all.

    Returns
    -------
    AuditReport

    Raises
    ------
    InputError
        If the file can't be used, is no find-db, or nothing says which device it is of.

    Examples
    --------
    >>> import tempfile
    >>> line = (
    ...     "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F="
    ...     "GemmFwd1x1_0_1:0.0001,0,miopenConvolutionFwdAlgoGEMM"
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "gfx942130.HIP.fdb.txt")
    ...     _ = path.write_text(line + "\n")
    ...     [(found.reason, found.detail) for found in audit_find_db(path).findings]
    [('roofline', '0.0001 ms, at least 0.001258 ms on MI300X')]
    """
    if not Path(path).exists():
        raise InputError("there is no such file", str(path))
    arch, units = _device_of(path, arch, compute_units)
    device, not_checked = _facts(arch, units)
    release = miopen or _release_of(path, arch)
    can_run("", arch, release)
    if release == ANY_VERSION:
        not_checked.append("retired: no MIOpen release is named")
    tell = on_progress or (lambda _text, _done, _all: None)
    tell("reading", 0, 1)
    if not is_find_db(path):
        raise InputError(
            "this is no find-db; a perf-db has no times that could be wrong", str(path)
        )
    reader = read_find_db(path)
    records = []
    for record in reader:
        try:
            records.append(AuditedRecord(record, record.problem))
        except InputError as error:
            reader.report(record, f"{error}; the line is skipped")
    model = BulkModel(arch, device, release, models)
    if not model.has_data:
        not_checked.append(f"slow, better solvers: there is no model for {arch}")
    for start in range(0, len(records), _BATCH):
        tell("asking the model", start, len(records))
        part = records[start : start + _BATCH]
        answers = model.expect([audited.problem for audited in part])
        records[start : start + _BATCH] = [
            replace(audited, expected=answer) for audited, answer in zip(part, answers, strict=True)
        ]
    setting = AuditSetting(arch, device, release)
    suspicions: list[Suspicion] = []
    for done, check in enumerate(_CHECKS):
        tell("checking", done, len(_CHECKS))
        suspicions += check(records, setting)
    findings = _findings(records, suspicions)
    counts = Counter(finding.reason for finding in findings)
    return AuditReport(
        os.fspath(path),
        arch,
        units,
        release,
        len(records),
        sum(len(audited.record.items) for audited in records),
        {reason: counts[reason] for reason in REASONS if counts[reason]},
        tuple(findings),
        tuple(not_checked),
        tuple(reader.issues),
    )


def _device_of(
    path: str | os.PathLike[str], arch: str, compute_units: int | None
) -> tuple[str, int]:
    name = parse_database_name(Path(path).name)
    if arch:
        arch = parse_arch(arch)
        if name and name.arch != arch:
            raise InputError(f"its name says {name.arch}, not {arch}", str(path))
    elif name:
        arch = name.arch
    else:
        raise InputError(
            "its name doesn't say which device it is of; give the arch (--arch gfx942)", str(path)
        )
    units = compute_units or (name and name.compute_units) or usual_compute_units(arch)
    if not units:
        raise InputError(f"how many has {arch}? give them (--cu 304)", "compute units")
    return arch, units


def _facts(arch: str, units: int) -> tuple[DeviceFacts | None, list[str]]:
    try:
        return device_facts(arch, units), []
    except InputError:
        return None, [f"roofline: the peak rates of {arch} aren't known"]


def _release_of(path: str | os.PathLike[str], arch: str) -> str:
    match = _RELEASE.search(Path(path).name)
    release = ".".join(match.groups()) if match else ANY_VERSION
    try:
        can_run("", arch, release)
    except InputError:  # older than what is known
        return ANY_VERSION
    return release


def _findings(records: Sequence[AuditedRecord], suspicions: Sequence[Suspicion]) -> list[Finding]:
    order = {reason: place for place, reason in enumerate(REASONS)}
    findings = []
    for suspicion in suspicions:
        audited = records[suspicion.index]
        expected = audited.expected
        if expected and expected.solver == suspicion.item.solver:
            expected = None
        findings.append(
            Finding(
                audited.record.line,
                audited.record.key,
                suspicion.item.solver,
                suspicion.item.time_ms,
                suspicion.reason,
                suspicion.detail,
                expected.solver if expected else None,
                expected.time_ms if expected else None,
            )
        )
    findings.sort(key=lambda found: (order[found.reason], found.line, found.solver))
    return findings
