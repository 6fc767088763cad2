"""Progress that cannot be told costs no training."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from outpace.train.progress import Telling, interrupted, under_way
from outpace.train.run import Run
from tests.train.toys import Slow, Time, fit, ready, same, trainer


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


class Lines:
    """The line that changes, as it would be after each step."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def step_end(self, run: Run) -> None:
        self.told.append(under_way(run))


@pytest.mark.parametrize(
    ("budget", "when"),
    [
        (100.0, "20s · 20s left · 1m ahead of its budget"),
        (35.0, "20s · 15s left · 5s behind its budget"),
        (None, "20s · 20s left"),
    ],
)
def test_when_it_ends_and_how_that_stands_to_the_budget(budget: float | None, when: str) -> None:
    lines, time = Lines(), Time()
    fit(train=Slow(ready(), time, 1.0), budget=budget, epochs=4, now=time, callbacks=[lines])
    assert lines.told[19].startswith("step 20 of 40 · ")
    assert lines.told[19].endswith(f" · {when}")


def test_no_checkpoint_is_named_that_is_gone_by_then(tmp_path: Path) -> None:
    seen: list[str] = []

    class Look:
        def step_end(self, run: Run) -> None:
            if run.step == 12:
                seen.extend(interrupted(run, lasting=lasting) for lasting in (True, False))

    fit(checkpoint=tmp_path, every=0, callbacks=[Look()])
    assert "started again it goes on from" in seen[0]
    assert seen[1] == "interrupted at step 12, the model has the best weights, of step 10"


def test_the_last_metric_is_told_and_the_best_where_it_is_another() -> None:
    values = iter([0.1, 0.5, 0.9, 0.7, 0.95])  # the first one is a look before the training
    lines = Lines()
    fit(metric=lambda outputs, targets: next(values), valid=ready(24, seed=1), callbacks=[lines])
    told = [line.split(" · ")[2:-2] for line in lines.told]
    assert told[20] == ["metric 0.9"]
    assert told[39] == ["metric 0.7, best 0.9"]
