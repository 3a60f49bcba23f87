"""How much may be measured when a problem is new: MIOpen's find modes and what enforces them."""

from __future__ import annotations

import os
from enum import IntEnum
from typing import TypeVar

from foretune.errors import InputError

MODE_VARIABLE = "FORETUNE_FIND_MODE"
ENFORCE_VARIABLE = "FORETUNE_FIND_ENFORCE"


class FindMode(IntEnum):
    """What happens to a problem that no database knows; numbers are MIOpen's.

    Attributes
    ----------
    NORMAL
        It is measured: a full find.
    FAST
        Nothing is measured: the model answers, sure or not, else the default candidate.
    HYBRID
        The model answers if it is sure, else its best candidates are measured; where there is no
        model, a full find.
    DYNAMIC_HYBRID
        As HYBRID, but of those that would be measured only such are whose kernels are built
        already, and the model's first and the default.
    """

    NORMAL = 1
    FAST = 2
    HYBRID = 3
    DYNAMIC_HYBRID = 5


class FindEnforce(IntEnum):
    """What is done whatever the mode; all but NONE make every mode NORMAL, as in MIOpen.

    Attributes
    ----------
    NONE
        Nothing.
    DB_UPDATE
        What the databases know is measured anew, and replaced.
    SEARCH
        What they don't know is searched for with ten times the budget.
    SEARCH_DB_UPDATE
        Both.
    DB_CLEAN
        What the user database knows of the problem is removed; nothing is measured.
    """

    NONE = 1
    DB_UPDATE = 2
    SEARCH = 3
    SEARCH_DB_UPDATE = 4
    DB_CLEAN = 5


#: The first call of a new shape then compiles two kernels at most.
DEFAULT_MODE = FindMode.DYNAMIC_HYBRID
E_ = TypeVar("E_", FindMode, FindEnforce)


def parse_find_mode(word: str | int | None, where: str = "mode") -> FindMode:
    """Read a find mode by its name in any case, or by MIOpen's number.

    Parameters
    ----------
    word : str, int, or None
        None for what FORETUNE_FIND_MODE says, else the default.
    where : str, optional
        What an error names.

    Raises
    ------
    InputError
        If it is none; the message lists them.

    Examples
    --------
    >>> parse_find_mode("fast").name, parse_find_mode(3).name
    ('FAST', 'HYBRID')
    """
    if word is None:
        word, where = os.environ.get(MODE_VARIABLE, "").strip() or DEFAULT_MODE, MODE_VARIABLE
    return _member(FindMode, word, where)


def find_enforce() -> FindEnforce:
    """Read FORETUNE_FIND_ENFORCE, by name or MIOpen's number.

    Raises
    ------
    InputError
        If it is set to something else; the message lists what is known.

    Examples
    --------
    >>> find_enforce().name
    'NONE'
    """
    word = os.environ.get(ENFORCE_VARIABLE, "").strip() or FindEnforce.NONE
    return _member(FindEnforce, word, ENFORCE_VARIABLE)


def _member(kind: type[E_], word: str | int, where: str) -> E_:
    for member in kind:
        if str(word).strip().upper() in (member.name, str(member.value)):
            return member
    known = ", ".join(f"{member.name} ({member.value})" for member in kind)
    raise InputError(f"expected one of {known}, got {str(word)!r}", where)
