"""The ledger knows foretune's entries as they were written, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretune.errors import InputError
from foretune.miopen.ledger import Entry, Ledger, ledger_path, read_ledger, write_ledger

word = st.text("abcXYZ0123<>-_x", min_size=1, max_size=8)
entry = st.builds(Entry, word, word, st.text("0123456789,. <>[]+x", max_size=12))


@settings(max_examples=30)
@given(st.lists(entry, max_size=8), st.lists(entry, max_size=8))
def test_it_knows_what_was_added(added: list[Entry], others: list[Entry]) -> None:
    ledger = Ledger()
    for one in added:
        ledger.add(one)
    again = Ledger(ledger.lines())
    for one in added + others:
        assert (one in again) == (one in added)
    again.keep(others)
    for one in added + others:
        assert (one in again) == (one in added and one in others)


def test_it_lasts_and_goes(tmp_path: Path) -> None:
    database = tmp_path / "a.ufdb.txt"
    assert len(read_ledger(database)) == 0
    ledger = Ledger()
    ledger.add(Entry("key", "fft", "1,2,3"))
    write_ledger(database, ledger)
    assert Entry("key", "fft", "1,2,3") in read_ledger(database)
    assert " key fft\n" in ledger_path(database).read_text()
    write_ledger(database, Ledger())
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_line_costs_itself(tmp_path: Path) -> None:
    database = tmp_path / "a.ufdb.txt"
    ledger = Ledger()
    ledger.add(Entry("key", "fft", "1,2,3"))
    ledger.add(Entry("other", "fft", "1,2,3"))
    write_ledger(database, ledger)
    path = ledger_path(database)
    path.write_text(path.read_text().replace(" other fft", "\x00"))
    again = read_ledger(database)
    assert Entry("key", "fft", "1,2,3") in again
    assert Entry("other", "fft", "1,2,3") not in again


@pytest.mark.parametrize("content", ["", "# foretune ledger 2: ...\n", "\x00"])
def test_another_file_is_no_ledger(tmp_path: Path, content: str) -> None:
    path = ledger_path(tmp_path / "a.ufdb.txt")
    path.write_text(content)
    with pytest.raises(InputError, match="delete it"):
        read_ledger(tmp_path / "a.ufdb.txt")
