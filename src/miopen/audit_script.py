"""A shell script that measures again what an audit doesn't believe."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence

from foretune.errors import InputError
from foretune.miopen.audit import Finding
from foretune.miopen.driver import format_driver_line
from foretune.miopen.keys import parse_find_key

_HEAD = """\
#!/bin/sh
# Measures again the {count} problems whose entries look wrong in
# {path}
#
# NORMAL find mode times every solver and writes the user find-db, which MIOpen prefers to the
# shipped one. DB_UPDATE keeps it in that mode and lets it replace what is stored;
# SEARCH_DB_UPDATE tunes each solver's parameters anew as well, which takes minutes for a problem.
# Run it on the device that the database is of, with nothing else running there.
driver="${{MIOPEN_DRIVER:-MIOpenDriver}}"
export MIOPEN_FIND_MODE="${{MIOPEN_FIND_MODE:-NORMAL}}"
export MIOPEN_FIND_ENFORCE="${{MIOPEN_FIND_ENFORCE:-DB_UPDATE}}"
status=0
"""


def remeasure_script(path: str, findings: Sequence[Finding]) -> str:
    """Shell script with a MIOpenDriver command for each suspected problem, in the file's order.

    A problem that the driver can't be asked for (a bias, tensors of unlike types) becomes a
    comment that says so.

    Parameters
    ----------
    path : str
        The database, for the script's head.
    findings : sequence of Finding

    Examples
    --------
    >>> key = "64-56-56-1x1-128-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F"
    >>> found = Finding(7, key, "GemmFwd1x1_0_1", 0.0, "time", "0 ms", None, None)
    >>> print(remeasure_script("a.fdb.txt", [found]).splitlines()[-2][:59])
    "$driver" convfp16 -n 32 -c 64 -H 56 -W 56 -k 128 -y 1 -x 1
    """
    by_key: dict[str, list[Finding]] = defaultdict(list)
    for finding in sorted(findings, key=lambda found: found.line):
        by_key[finding.key].append(finding)
    lines = [_HEAD.format(count=len(by_key), path=" ".join(path.split()))]
    for key, found in by_key.items():
        lines.append(f"# line {found[0].line}, {key}\n")
        lines += [f"#   {one.solver}, {one.reason}: {one.detail}\n" for one in found]
        lines.append(_command(key))
    lines.append("exit $status\n")
    return "".join(lines)


def _command(key: str) -> str:
    try:
        words = format_driver_line(parse_find_key(key)).split()[1:]
    except InputError as error:
        return f"# not measured: {error.message}\n"
    # Results aren't compared with the CPU's, which would take most of the time.
    return f'"$driver" {shlex.join([*words, "-i", "1", "-V", "0"])} || status=1\n'
