"""Progress that cannot be told costs no training."""

from __future__ import annotations

import io
import sys

import pytest

from outpace.train.progress import Telling
from tests.train.toys import fit, same, trainer


class Gone(io.StringIO):
    """A terminal that was closed, or a file on a disk that is full: so many writes, then none."""

    def __init__(self, writes: int) -> None:
        super().__init__()
        self.left, self.tried = writes, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.tried += 1
        if self.tried > self.left:
            raise OSError(28, "No space left on device")
        return super().write(text)


@pytest.mark.parametrize("writes", [0, 1, 2, 5])
def test_a_training_goes_on_where_nothing_can_be_written(
    writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = Gone(writes)
    monkeypatch.setenv("TERM", "xterm")
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", gone)
        result = trainer(epochs=3).fit()
    assert result.steps == 30
    assert gone.tried <= writes + 2  # a line that is wiped is two
    assert same(dict(result.weights), dict(fit(epochs=3).weights))


def test_nor_where_stderr_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    assert trainer(epochs=1).fit().steps == 10


def test_a_line_that_changes_is_wiped_before_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Gone(1000)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", kept)
    telling = Telling()
    assert telling.next_s == 0.0
    telling.drawn = True
    telling.say("told")
    telling.close()
    assert kept.getvalue() == "\r\x1b[2Koutpace: told\n"
    assert Telling(quiet=True).next_s == float("inf")
