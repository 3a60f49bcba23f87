"""A shell script that has MIOpen measure problems and put the results into a user database."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

from foretune.errors import InputError
from foretune.miopen.driver import format_driver_line
from foretune.miopen.solvers import table_name

if TYPE_CHECKING:
    from foretune.miopen.config_ranking import ConfigRanking
    from foretune.miopen.warm import Answer, Target

#: Times that MIOpen runs what it measures: once to warm up, and seven times for the mean.
RUNS = 8
#: What the estimate takes into account, in words.
BASIS = (
    "for each convolution the likely candidates (at most 4), each with as many configs as AMD's "
    f"tuning ever chose for the solver and type, {RUNS} runs (1 to warm up, 7 measured) of the "
    "predicted time. MIOpen tries more configs than that, and compiling them comes on top, which "
    "usually takes longest: take it as the least"
)


@dataclass(frozen=True)
class Estimate:
    """GPU time that measuring takes.

    Parameters
    ----------
    seconds : float
        By `BASIS`.
    without : int
        Problems that nothing is predicted for, which are not in it.

    Examples
    --------
    >>> str(Estimate(5400, 2))
    '1.5 h (2 convolutions without a prediction not counted)'
    """

    seconds: float
    without: int = 0

    def __str__(self) -> str:
        size, unit = self.seconds, "s"
        for step, name in ((60, "min"), (60, "h")):
            if size < 60:
                break
            size, unit = size / step, name
        left_out = (
            f" ({self.without} convolutions without a prediction not counted)"
            if self.without
            else ""
        )
        return f"{size:.2g} {unit}{left_out}"


def estimate_tuning(answers: Sequence[Answer], configs: ConfigRanking | None) -> Estimate:
    """Estimate the GPU time that tuning some problems takes.

    Parameters
    ----------
    answers : sequence of Answer
    configs : ConfigRanking or None
        Says how many configs a solver has; without it each is measured once.

    Examples
    --------
    >>> estimate_tuning([], None).seconds
    0
    """
    seconds = sum(
        solution.predicted_ms
        / 1e3
        * RUNS
        * _config_count(configs, table_name(solution.solver), answer)
        for answer in answers
        for solution in answer.solutions
    )
    return Estimate(seconds, sum(not answer.solutions for answer in answers))


def _config_count(configs: ConfigRanking | None, solver: str, answer: Answer) -> int:
    if configs is None:
        return 1
    problem = answer.problem
    choices = configs.by_type(solver, problem.direction).get(problem.dtype)
    return len(choices.configs) if choices else 1


def tuning_script(answers: Sequence[Answer], target: Target, estimate: Estimate) -> str:
    """Script that tunes problems into the target's user databases.

    Parameters
    ----------
    answers : sequence of Answer
        The problems. One that MIOpen's driver has no command for is left as a comment.
    target : Target
    estimate : Estimate
        Told in the script.

    Examples
    --------
    >>> from foretune.miopen.user_db import Release
    >>> from foretune.miopen.warm import Target
    >>> target = Target("gfx942", 304, Release(3, 4, 0, ""), "/db")
    >>> tuning_script([], target, Estimate(0)).splitlines()[0]
    '#!/bin/sh'
    """
    commands = [_command(answer) for answer in answers]
    count = sum(not line.startswith("#") for line in commands)
    told = wrap(f"GPU time: about {estimate}. Basis: {BASIS}.", 96)
    find_db = f"{os.path.abspath(target.folder)}/{target.find_db.name}"  # noqa: PTH100
    return f"""\
#!/bin/sh
# Has MIOpen {target.release} measure, on a {target.arch} with {target.compute_units} units, \
the {count} convolutions that
# foretune is not sure enough of. What it finds goes into
#   {find_db}
{chr(10).join(f"# {line}" for line in told)}
#
# The driver has to load the MIOpen that the program loads; another one writes into another file.
# For PyTorch's own: LD_PRELOAD=.../torch/lib/libMIOpen.so sh THIS_SCRIPT
: "${{MIOPEN_DRIVER:=/opt/rocm/bin/MIOpenDriver}}"
export MIOPEN_USER_DB_PATH={shlex.quote(os.path.dirname(find_db))}
export MIOPEN_FIND_MODE=1 # NORMAL: measure every solver that applies
export MIOPEN_FIND_ENFORCE=3 # SEARCH: tune those that have no parameters yet
find_db={shlex.quote(find_db)}
number=0
failed=0
before=$(wc -l <"$find_db" 2>/dev/null || echo 0)

tune() {{
    number=$((number + 1))
    echo "[$number/{count}] $*"
    "$MIOPEN_DRIVER" "$@" -V 0 -i 1 || failed=$((failed + 1))
}}

{chr(10).join(commands)}

after=$(wc -l <"$find_db" 2>/dev/null || echo 0)
echo "$((number - failed)) of $number commands ended well; $find_db had $before lines, has $after"
if [ "$failed" -gt 0 ] || {{ [ "$number" -gt 0 ] && [ ! -s "$find_db" ]; }}; then
    echo "something is missing: did the driver load MIOpen {target.release}?" >&2
    exit 1
fi
"""  # noqa: PTH120


def _command(answer: Answer) -> str:
    try:
        line = format_driver_line(answer.problem)
    except InputError as error:
        return f"# {answer.key}: {error}"
    return f"tune {line.partition('MIOpenDriver ')[2]}"
