"""A progress line keeps to the terminal that it is drawn on, and stops nothing."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import sys
import termios
from typing import TextIO

import pytest

from outpace.cli.progress import ProgressLine


def drawn(monkeypatch: pytest.MonkeyPatch, **variables: str) -> tuple[str, int]:
    """What a terminal of 40 x 10 gets that is stderr, while stdout is none; and the line's length."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 40, 0, 0))
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TERM": "xterm", "NO_COLOR": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(its, "w") as stderr, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stderr)
        with ProgressLine() as progress:
            progress("watching", 1, 2, "a note that is longer than this terminal is wide")
        print("the end", file=stderr, flush=True)
        text = ""
        while "the end" not in text:  # a terminal hands over what it has so far
            text += os.read(ours, 4096).decode()
    os.close(ours)
    return text, len(text.split("\x1b[2K")[1].split("\x1b8")[0])


def test_the_size_is_that_of_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    text, length = drawn(monkeypatch)
    assert "\x1b[1;9r" in text
    assert "\x1b[10;1H" in text
    assert length == 39


def test_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    text, length = drawn(monkeypatch, LINES="7")
    assert "\x1b[7;1H" in text
    assert length == 39


class Gone(io.StringIO):
    """A stream whose other end is closed."""

    calls = 0

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str) -> int:
        self.calls += 1
        raise OSError(5, "Input/output error")


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_that_was_closed_stops_nothing(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    gone = Gone(terminal=terminal)
    stream: TextIO = gone
    monkeypatch.setattr(sys, "stderr", stream)
    with ProgressLine() as progress:
        progress("watching", 1, 2)
        before = gone.calls
        progress("trials", 1, 2)
        assert (gone.calls, progress.quiet) == (before, True)
