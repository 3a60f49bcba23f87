"""Checks that look at one entry alone: its time, its workspace, its solver's name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretune.miopen.audit_records import AuditedRecord, AuditSetting, Suspicion
from foretune.miopen.audit_roofline import least_ms
from foretune.miopen.inspect import MAX_WORKSPACE
from foretune.miopen.solvers import SOLVERS, can_run, table_name
from foretune.miopen.workspace import workspace_bytes


def check_times(records: Sequence[AuditedRecord], setting: AuditSetting) -> Iterator[Suspicion]:
    """Find times that aren't above zero, and those that the device can't reach."""
    for index, audited in enumerate(records):
        for item in audited.record.items:
            if item.time_ms <= 0:
                yield Suspicion(index, item, "time", f"{item.time_ms:g} ms")
            elif setting.device is not None:
                family = item.algorithm.rpartition("Algo")[2]
                least = least_ms(audited.problem, item.solver, family, setting.device)
                if least is not None and item.time_ms < least:
                    detail = (
                        f"{item.time_ms:g} ms, at least {least:.4g} ms on {setting.device.name}"
                    )
                    yield Suspicion(index, item, "roofline", detail)


def check_workspaces(
    records: Sequence[AuditedRecord], setting: AuditSetting
) -> Iterator[Suspicion]:
    """Find workspaces that no device has, or that aren't what the solver needs.

    With too small a workspace the call fails; with too large a one MIOpen skips the entry where
    the caller provides what would be enough.
    """
    for index, audited in enumerate(records):
        for item in audited.record.items:
            if not 0 <= item.workspace <= MAX_WORKSPACE:
                yield Suspicion(index, item, "workspace", f"{item.workspace} bytes")
                continue
            needed = workspace_bytes(table_name(item.solver), audited.problem, setting.arch)
            if needed is not None and needed != item.workspace:
                detail = f"{item.workspace} bytes, {item.solver} needs {needed}"
                yield Suspicion(index, item, "workspace", detail)


def check_solvers(records: Sequence[AuditedRecord], setting: AuditSetting) -> Iterator[Suspicion]:
    """Find solvers that nobody knows, that the release can't run, or with a wrong algorithm."""
    for index, audited in enumerate(records):
        for item in audited.record.items:
            info = SOLVERS.get(table_name(item.solver))
            if info is None:
                yield Suspicion(index, item, "unknown", item.solver)
                continue
            if not can_run(item.solver, setting.arch, setting.miopen):
                detail = f"MIOpen {setting.miopen} doesn't run it on {setting.arch}"
                yield Suspicion(index, item, "retired", detail)
            direction = audited.problem.direction
            if direction not in info.directions:
                yield Suspicion(index, item, "algorithm", f"it isn't for direction {direction}")
            elif item.algorithm.rpartition("Algo")[2] != info.algorithm_family:
                detail = f"{item.algorithm}, {item.solver} is {info.algorithm(direction)}"
                yield Suspicion(index, item, "algorithm", detail)
