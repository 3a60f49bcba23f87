"""Progress is shown where somebody watches, and leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from foretune.cli.progress import progress


class Terminal(io.StringIO):
    """What a terminal is to a program that writes."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_last_step_and_then_nothing() -> None:
    terminal = Terminal()
    with progress(terminal) as show:
        assert show
        show("first", 0, 3)
        show("second", 2, 3)
        assert terminal.getvalue().endswith("\r[################........] 2/3 second\x1b[K")
    assert terminal.getvalue().endswith("\r\x1b[K")
    assert "\n" not in terminal.getvalue()


def test_the_line_is_cleared_when_the_work_fails() -> None:
    terminal = Terminal()
    with pytest.raises(KeyError), progress(terminal):
        raise KeyError
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_file_shows_nothing() -> None:
    stream = io.StringIO()
    with progress(stream) as show:
        assert show is None
    assert not stream.getvalue()
