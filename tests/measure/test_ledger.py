"""Rows of the ledger: time that no seam explains goes to what the lines in it do."""

from __future__ import annotations

import linecache
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from outpace.measure.ledger import (
    FEWEST,
    Seen,
    build,
    growing,
    longer_firsts,
    mean_of,
    mean_phases,
    own_share,
    saving,
    told_s,
)
from outpace.measure.sampler import Line
from outpace.records.ledger import Row
from outpace.seams.host import Step

FILE = "/home/someone/else.py"
TEXT = ["loss = criterion(out, y)", "confuse(out, y)", "fig.savefig(path)", "predict(model)"]
linecache.cache[FILE] = (80, None, [line + "\n" for line in TEXT], FILE)
TORCH = "/site-packages/torch/nn/functional.py"


def at(line: int, phase: str = "elsewhere", file: str = FILE) -> Line:
    return Line(phase, file, "f", ((FILE, "train", line),))


def rows_of(seen: Seen) -> dict[tuple[str, int | None], float]:
    """Seconds by name and line."""

    def key(row: Row) -> tuple[str, int | None]:
        return row.name, int(row.where.rpartition(":")[2]) if row.where else None

    return {key(row): row.seconds for row in build(seen)}


def steps(elsewhere_s: float) -> list[Step]:
    phases = {"forward": 10_000_000, "elsewhere": round(elsewhere_s * 1e9)}
    return [Step(i, 50_000_000, 50_000_000, phases, 1, 8, True) for i in range(10)]


def test_the_loss_is_part_of_the_forward_pass() -> None:
    samples = Counter({at(1, file=TORCH): 30, at(2): 10})
    seen = Seen(0.0, steps(0.04), 10, {}, samples, loss_lines={(FILE, "train", 1)})
    rows = rows_of(seen)
    assert rows["forward", 1] == pytest.approx(0.3)
    assert rows["elsewhere", 2] == pytest.approx(0.1)
    assert own_share(seen, "forward") == pytest.approx(0.75)


def test_clipping_is_part_of_the_update() -> None:
    samples = Counter({at(2, file="/site-packages/torch/nn/utils/clip_grad.py"): 30})
    assert rows_of(Seen(0.0, steps(0.04), 10, {}, samples))["optimizer", 2] == pytest.approx(0.4)


def test_a_line_that_was_hardly_seen_is_not_told() -> None:
    samples = Counter({at(1, "backward"): 9, at(2): FEWEST, at(4): FEWEST - 1})
    rows = rows_of(Seen(0.0, steps(0.05), 10, {}, samples))
    assert rows["elsewhere", 2] == pytest.approx(0.5 * 3 / 5)
    assert rows["elsewhere", None] == pytest.approx(0.5 * 2 / 5)


def test_figures_of_a_validation_are_no_validation() -> None:
    """A model is in evaluation mode until it trains again, whatever comes in between."""
    samples = Counter({at(3, "validation"): 30, at(4, "validation"): 10})
    rows = rows_of(Seen(0.0, steps(0.0), 10, {"validation": 4.0}, samples))
    assert rows["logging", 3] == pytest.approx(3.0)
    assert rows["validation", 4] == pytest.approx(1.0)


@pytest.mark.parametrize("by_chance", [0, 2])
def test_a_function_beside_the_steps_is_told_as_one(by_chance: int) -> None:
    """By its busiest line; the lines of the loop itself are told apart.

    A stack is looked at just before the phase: ``by_chance`` the next one has begun by then.
    """
    loop, metric = (FILE, "loop", 9), (FILE, "metric", 2)

    def within(*frames: tuple[str, str, int], phase: str = "elsewhere") -> Line:
        return Line(phase, FILE, "f", frames)

    samples = Counter(
        {
            within(loop, phase="backward"): 50,
            within((FILE, "sort", 5), metric, loop): 20,
            within((FILE, "metric", 3), loop, phase="forward"): by_chance,
            within((FILE, "metric", 4), loop): 10,
            within((FILE, "loop", 7)): 6,
            within((FILE, "loop", 8)): 4,
        }
    )
    rows = rows_of(Seen(0.0, steps(0.04), 10, {}, samples))
    found = {line: s for (name, line), s in rows.items() if name == "elsewhere"}
    assert found == pytest.approx({5: 0.3, 7: 0.06, 8: 0.04})


LOOPS = """
for x, y in loader:
    out = model(x)
    out.sum().backward()
    for index in range(4500):
        pair = out[index], y[index]
        counts[pair] = counts.get(pair, 0) + 1
    while waits():
        sleep(1)
"""


def test_a_loop_beside_the_steps_is_told_as_one(tmp_path: Path) -> None:
    """The one in which the steps are is none; what is hardly seen line by line counts together."""
    path = tmp_path / "train.py"
    path.write_text(LOOPS)
    os.utime(path, (0, 0))  # older than this process: its lines are those that run

    def seen_at(line: int, phase: str = "elsewhere") -> Line:
        return Line(phase, str(path), "<module>", ((str(path), "<module>", line),))

    samples = Counter({seen_at(3, "forward"): 20, seen_at(4, "backward"): 20,
                       seen_at(5): 1, seen_at(6): FEWEST - 1, seen_at(7): 1, seen_at(9): 4})  # fmt: skip
    rows = rows_of(Seen(0.0, steps(0.05), 10, {}, samples))
    assert rows["elsewhere", 6] == pytest.approx(0.5 * 4 / 8)
    assert rows["elsewhere", 9] == pytest.approx(0.5 * 4 / 8)
    assert ("elsewhere", None) not in rows


def test_steps_that_were_noted_as_one_count_as_many() -> None:
    """On a GPU long groups of steps that are only launched come before a short one that waits."""
    launched = Step(9, 1_000_000, 1_000_000, {"forward": 1_000_000}, 1, 8, True, 9)
    waits = Step(10, 91_000_000, 1_000_000, {"forward": 1_000_000, "sync": 90_000_000}, 1, 8, True)
    assert mean_of([launched, waits]) == pytest.approx((0.010, 0.001))
    assert mean_phases([launched, waits]) == pytest.approx({"forward": 0.001})
    assert mean_phases([waits, launched]) == pytest.approx({"forward": 0.001, "sync": 0.009})
    assert mean_of([]) == (0.0, 0.0)


def test_what_the_first_step_of_an_epoch_computes_longer() -> None:
    """In the median of 30, 130 and 530 ms, of groups too, whose other steps took 10 ms each."""
    usual = {"input": 0.2, "forward": 0.004, "backward": 0.006}

    def first(computing_ms: int, count: int = 1) -> Step:
        phases = {"input": 10**9, "forward": 2_000_000, "backward": (computing_ms - 2) * 10**6}
        return Step(8, 10**9, 10**9, phases, 1, 8, False, count)

    assert longer_firsts([first(40), first(140), first(540)], usual) == pytest.approx(0.13)
    assert longer_firsts([first(140, count=4)], usual) == pytest.approx(0.1)
    assert longer_firsts([first(6)], usual) == longer_firsts([], usual) == 0.0


def test_what_is_done_around_saving_is_part_of_the_checkpoint() -> None:
    """As where a function writes a file, has the disk take it, and gives it its name."""

    def within(function: str, line: int, phase: str) -> Line:
        return Line(phase, FILE, function, ((FILE, function, line), (FILE, "train", 1)))

    stepping = Line("forward", FILE, "train", ((FILE, "train", 1),))
    beside = within("log", 4, "elsewhere")
    samples = Counter({
        stepping: 50, beside: 5, within("save", 2, "checkpoint"): 5, within("save", 3, "elsewhere"): 7,
    })  # fmt: skip
    found = saving(samples)
    assert found[within("save", 3, "checkpoint")] == 7
    assert found[beside] == 5
    assert found[stepping] == 50
    inline = Counter({stepping: 50, stepping._replace(phase="checkpoint"): 5,
                      stepping._replace(phase="elsewhere"): 5})  # fmt: skip
    assert saving(inline) == inline, "the training's own function is no part of it"


def test_a_validation_is_told_where_it_calls_the_model() -> None:
    """Not at a line of the model's, which the training runs as well."""
    model, fit = (FILE, "forward", 1), (FILE, "fit", 3)
    training = Line("forward", FILE, "relu", (model, fit))
    judged = Line("validation", FILE, "relu", (model, (FILE, "evaluate", 4), fit))
    shared = training._replace(phase="validation")
    seen = Seen(0.0, steps(0.0), 10, {"validation": 1.0}, Counter({training: 90, judged: 30}))
    assert rows_of(seen)["validation", 4] == pytest.approx(1.0)
    seen = Seen(0.0, steps(0.0), 10, {"validation": 1.0}, Counter({training: 90, shared: 30}))
    assert rows_of(seen)["validation", 1] == pytest.approx(1.0), "there is no other line"


def test_what_takes_longer_with_each_step_goes_on_growing() -> None:
    """As where all that was noted so far is written anew: 20 us more a step, seen for 100 of 1,000."""
    steps = [
        Step(
            i,
            5_000_000 + 20_000 * i,
            0,
            {"forward": 5_000_000, "elsewhere": 20_000 * i},
            1,
            8,
            True,
        )
        for i in range(100)
    ]
    assert growing(steps) == pytest.approx(20e-6)
    rows = build(Seen(0.0, steps, 100, total_steps=1000))
    (told,) = (row.seconds for row in rows if row.name == "elsewhere")
    assert told == pytest.approx(sum(20e-6 * i for i in range(1000)), rel=0.01)
    random.seed(0)
    for took in (
        lambda i: 1_000_000,
        lambda i: 1_000_000 + random.randint(0, 400_000),
        lambda i: (
            1_000_000 if i < 50 else 7_000_000
        ),  # as of weights that are averaged from there on
        lambda i: 100_000 * min(i, 40),  # as of a memory that is full then
    ):
        other = [Step(i, 9_000_000, 0, {"elsewhere": took(i)}, 1, 8, True) for i in range(100)]
        assert growing(other) == 0.0


def test_steps_that_are_held_up_hide_no_growth() -> None:
    """A table of all steps so far, written anew each time, on a machine that is busy now and then."""
    draw = random.Random(1)

    def took(step: int) -> int:
        held_up = draw.randint(5_000_000, 40_000_000) if draw.random() < 0.1 else 0
        return round((600_000 + 11_000 * step) * draw.uniform(0.7, 1.6)) + held_up

    steps = [Step(i, 30_000_000, 0, {"elsewhere": took(i)}, 1, 8, True) for i in range(40, 340)]
    assert growing(steps) == pytest.approx(12e-6, rel=0.3)
    level = [Step(i, 30_000_000, 0, {"elsewhere": took(0)}, 1, 8, True) for i in range(300)]
    assert growing(level) == 0.0


def test_what_a_validation_prints_and_draws_comes_with_it_and_not_with_steps() -> None:
    drawn, judged = at(3, "validation"), at(4, "validation")
    seen = Seen(0.0, steps(0.0), 10, {"validation": 8.0}, Counter({drawn: 30, judged: 10}))
    rows = rows_of(seen)
    assert rows["logging", 3] == pytest.approx(6.0)
    assert rows["validation", 4] == pytest.approx(2.0)
    assert told_s(seen) == pytest.approx(6.0)
    few = Seen(0.0, steps(0.0), 10, {"validation": 8.0}, Counter({judged: 10}))
    assert told_s(few) == 0.0
