"""What is told of a training while it runs: on stderr, a line a validation, and on a terminal one that
changes in place. The user's own output stays whole: our line is wiped before another is written.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from outpace.plan.budget import duration
from outpace.records.training import Row
from outpace.train.result import Result

if TYPE_CHECKING:
    from outpace.train.run import Run

EVERY_S = 0.25
SOME = 3
"""names that are told"""


@final
class Telling:
    """``next_s``: the second of training at which it wants to be called again."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.next_s = 0.0 if not quiet and on_terminal() else float("inf")
        self.drawn = False
        self.told_s = float("-inf")

    def say(self, text: str) -> None:
        """A line that stays."""
        if not self.quiet:
            self.warn(text)

    def warn(self, text: str) -> None:
        """The same, also where it is to be quiet: without it something of the user's would be lost unseen."""
        self._wipe()
        self._write(f"outpace: {text}\n")

    def row(self, run: Run) -> None:
        """A validation, if the last one told is a second ago."""
        if run.clock.elapsed - self.told_s >= 1.0:
            self.told_s = run.clock.elapsed
            self.say(validated(run))

    def draw(self, run: Run) -> None:
        """The line that changes."""
        self.next_s = run.clock.elapsed + EVERY_S
        text = under_way(run)[: shutil.get_terminal_size().columns - 1]
        self.drawn = True
        self._write(f"\r\x1b[2K{text}")

    def close(self) -> None:
        """Wipe the line that changes."""
        self._wipe()

    def _wipe(self) -> None:
        if self.drawn:
            self.drawn = False
            self._write("\r\x1b[2K")

    def _write(self, text: str) -> None:
        """On stderr; where that cannot be written, a disk being full or a terminal gone, nothing more is."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self.quiet, self.drawn, self.next_s = True, False, float("inf")


def on_terminal() -> bool:
    """Whether a line may change in place."""
    try:
        return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    except ValueError:  # it is closed
        return False


def validated(run: Run) -> str:
    """``epoch 3 · step 1,200 · loss 0.512 · validation 0.498 · metric 0.912 (best) · 1m20s``."""
    row = run.history[-1]
    parts = [f"epoch {row.epoch}", f"step {row.step:,}"]
    for name, value in (
        ("loss", row.train_loss),
        ("validation", row.valid_loss),
        ("metric", row.metric),
    ):
        if value is not None:
            parts.append(f"{name} {value:.4g}")
    if run.best is not None and run.best.row is row:
        parts[-1] += " (best)"
    return " · ".join([*parts, *_when(run)])


def ended(result: Result) -> str:
    """``ended by target after 3m: step 1,200, epoch 5; best 0.943 at step 1,150``."""
    text = f"ended by {result.stopped} after {duration(result.seconds)}: step {result.steps:,}"
    if result.best is None or result.metric is None:
        return text
    return f"{text}; best {result.metric:.4g} at step {result.best.step:,}"


def interrupted(run: Run, *, lasting: bool = True) -> str:
    """``interrupted at step 1,240: started again it goes on from runs/a/step-0000001200.pt``; ``lasting``:
    what was written stays there.
    """
    text = f"interrupted at step {run.step:,}"
    if run.best is not None:
        text += f", the model has the best weights, of step {run.best.row.step:,}"
    if not lasting:
        return text
    if run.checkpoints is None:
        return f"{text}: with checkpoint='runs/a' it would go on from there, started again"
    run.checkpoints.wait()
    newest = next(iter(run.checkpoints.paths()), None)
    if newest is None:
        return f"{text}, before the first checkpoint: started again it begins anew"
    return f"{text}: started again it goes on from {newest}"


def under_way(run: Run) -> str:
    """The same between validations, with the newest loss: ``metric 0.905, best 0.912``."""
    total = run.clock.steps
    parts = [f"step {run.step:,}" + (f" of {total:,}" if total is not None else "")]
    recent = run.losses.recent
    if recent:
        parts.append(f"loss {sum(recent) / len(recent):.4g}")
    if run.best is not None:
        name = "metric" if run.objective.metric is not None else "validation"
        last, best = (f"{_value(run, row):.4g}" for row in (run.history[-1], run.best.row))
        parts.append(f"{name} {last}" + (f", best {best}" if best != last else ""))
    return " · ".join([*parts, *_when(run)])


def _value(run: Run, row: Row) -> float:
    value = run.value(row)
    return float("nan") if value is None else value


def _when(run: Run) -> list[str]:
    """How long it took, when it ends, and how that stands to the budget."""
    clock = run.clock
    parts = [duration(clock.elapsed)]
    by_steps, by_time = clock.left_s(run.step), clock.seconds - clock.elapsed
    if min(by_steps, by_time) < float("inf"):
        parts.append(f"{duration(max(0.0, min(by_steps, by_time)))} left")
    ahead = by_time - by_steps
    if abs(ahead) < float("inf"):
        parts.append(f"{duration(abs(ahead))} {'ahead of' if ahead >= 0 else 'behind'} its budget")
    return parts


def some(names: Sequence[str]) -> str:
    """``head.weight, head.bias`` and, where there are more, others."""
    return f"{', '.join(names[:SOME])}{' and others' if len(names) > SOME else ''}"
