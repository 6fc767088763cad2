"""What every report of an `outpace.Trainer`'s training says in words, written once here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from outpace.records.counted import counted
from outpace.records.machine import Machine
from outpace.records.training import OUTCOMES, Rates, Row, Training, Tried
from outpace.report import words
from outpace.report.sentences import Next, Tone, Verdict

ENDED = {
    "budget": "the budget",
    "target": "the target",
    "epochs": "the number of epochs",
    "steps": "the number of steps",
    "diverged": "a loss that diverged",
    "data": "the end of the data",
}
HISTORY = ("epoch", "step", "after", "training loss", "validation loss")
"""columns of a table of the history; then a metric's, and the rate"""
TRIED = ("tried", "against", "ended at", "for", "steps", "seeds", "came of it", "why", "took")
ABOUT_TRIED = (
    "Short trainings of copies, judged by their loss on held-out batches, or by the metric where what is "
    "tried changes the loss; what is clearly better was taken."
)
NOTHING_TRIED = "Nothing was tried in short trainings."
RATES = ("learning rate", "loss in the end")
SEEDS = ("seed", "step", "after")
MOST_ROWS = 40
"""of a history in a table"""


def verdict(training: Training) -> Verdict:
    """What came of it, the main thing first."""
    name, best = measure(training), words.number(training.metric, 4)
    detail = " ".join(filter(None, (ended(training), where_best(training))))
    if training.target is not None:
        target = f"The target, {name} {training.target:g}, was"
        if training.time_to_target_s is not None:
            after = words.seconds(training.time_to_target_s)
            return Verdict(f"{target} reached after {after}.", detail, "good")
        got = f": the best is {best}" if words.finite(training.metric) else ""
        return Verdict(f"{target} not reached{got}.", detail, "warn")
    if training.best is None:
        steps = counted(training.steps, "step")
        return Verdict(f"It trained for {steps}, and nothing was validated.", detail, "plain")
    if not words.finite(training.metric):
        return Verdict("No validation gave a number.", detail, "bad")
    tone: Tone = "bad" if training.stopped == "diverged" else "plain"
    return Verdict(f"The best {name} is {best}.", detail, tone)


def measure(training: Training) -> str:
    """What it was judged by."""
    return words.plain(training.metric_name or "validation loss")


def source(training: Training) -> str:
    """``outpace train mine:make``; of one in code the class of its model."""
    what = words.plain(training.what)
    return f"outpace {training.command} {what}" if ":" in what else f"outpace.Trainer of {what}"


def ended(training: Training) -> str:
    """``Ended by the budget after 45 s: 1,200 steps, 12 epochs.``"""
    why = ENDED.get(training.stopped, words.plain(training.stopped))
    steps, epochs = counted(training.steps, "step"), counted(training.epochs, "epoch")
    return f"Ended by {why} after {words.seconds(training.seconds)}: {steps}, {epochs}."


def where_best(training: Training) -> str:
    """When the best was come to; empty where nothing was validated."""
    row = training.best
    if row is None or not words.finite(training.metric):
        return ""
    at = f"after {words.seconds(row.seconds)}, at step {row.step:,} of epoch {row.epoch}"
    own = training.judged_by(row)
    if own != training.metric:
        alone = f"the best one alone has {words.number(own, 4)}, {at}"
        return f"It is that of several seeds' mean weights; {alone}."
    loss = f"; the validation loss is {words.number(row.valid_loss, 4)} there"
    return f"The best came {at}{loss if training.metric_name else ''}."


def curves(training: Training) -> dict[str, list[tuple[float, float]]]:
    """(seconds, value) of what was measured, by name; rows that have none are left out."""
    values = {
        "training loss": [row.train_loss for row in training.history],
        "validation loss": [row.valid_loss for row in training.history],
        measure(training): [training.judged_by(row) for row in training.history],
    }
    times = [row.seconds for row in training.history]
    found = {
        name: [(at, y) for at, y in zip(times, ys, strict=True) if y is not None]
        for name, ys in values.items()
    }
    return {name: points for name, points in found.items() if points}


def history(training: Training) -> tuple[tuple[str, ...], list[tuple[str, ...]], int]:
    """The head and the cells of a table, and how many rows it leaves out; the best and the last are in."""
    metric = (measure(training),) if training.metric_name else ()
    rows = training.history
    each = max(1, -(-len(rows) // MOST_ROWS))
    some = [r for i, r in enumerate(rows) if i % each == 0 or r in (training.best, rows[-1])]
    cells = [_cells(row, bool(metric)) for row in some]
    return (*HISTORY, *metric, "rate"), cells, len(rows) - len(some)


def _cells(row: Row, metric: bool) -> tuple[str, ...]:
    losses = (row.train_loss, row.valid_loss, *((row.metric,) if metric else ()))
    figures = (words.number(value, 4) for value in losses)
    when = (f"{row.epoch:,}", f"{row.step:,}", words.seconds(row.seconds))
    return (*when, *figures, words.number(row.rate))


def outcome(tried: Tried) -> str:
    """``better, taken``; ``worse, left out``; why it failed."""
    said = words.plain(tried.verdict)
    return f"{said}{OUTCOMES.get(tried.verdict, ', left out')}" if tried.seeds else said


def costs(tried: Tried) -> tuple[str, ...]:
    """What both ended at; nothing where it failed."""
    both = (math.inf if cost is None else cost for cost in (tried.cost, tried.base))
    return tuple(words.number(cost, 4) for cost in both) if tried.seeds else ()


def tried(training: Training) -> list[tuple[str, ...]]:
    """The cells of a table of what "auto" tried."""
    return [
        (
            words.plain(each.what),
            words.plain(each.against),
            *(costs(each) or ("", "")),
            f"{each.steps:,}",
            f"{each.seeds}",
            outcome(each),
            words.plain(each.why),
            words.seconds(each.seconds),
        )
        for each in training.tried
    ]


def about_rates(rates: Rates) -> str:
    """What lr_finder did, and what came of it."""
    steps, count = counted(rates.steps, "step"), counted(len(rates.points), "learning rate")
    loss = math.inf if rates.before is None else rates.before
    tried = f"Copies of the model learnt for {steps} at each of {count}, judged on other batches"
    before = f"{tried}; the loss was {words.number(loss, 4)} before."
    if rates.found is None:
        return f"{before} No rate lowered it."
    rate, low, high = map(words.short, rates.found)
    return f"{before} {rate} was taken; the best one is from {low} to {high} in four of five trainings."


def rates(found: Rates) -> list[tuple[str, ...]]:
    """The cells of a table of them."""
    return [
        (words.short(rate), words.number(math.inf if loss is None else loss, 4))
        for rate, loss in found.points
    ]


def seeds(training: Training) -> list[tuple[str, ...]]:
    """The cells of a table of the seeds that were trained to their end."""
    return [
        (f"{k.seed}", words.number(k.metric, 4), f"{k.row.step:,}", words.seconds(k.row.seconds))
        for k in training.kept
    ]


def seeds_head(training: Training) -> tuple[str, ...]:
    """Its head."""
    return (SEEDS[0], measure(training), *SEEDS[1:])


def notes(training: Training) -> list[str]:
    """Those that what was tried does not say already."""
    said = {each.told() for each in training.tried}
    return [words.plain(note) for note in training.notes if note not in said]


def machine(found: Machine) -> Iterator[str]:
    """Hardware and software, a line each."""
    cores, memory = counted(found.cores, "core"), words.size(found.memory_bytes)
    yield words.plain(f"{found.cpu}, {cores}, {memory}; {found.system}")
    for each in found.accelerators:
        yield f"{words.plain(each.name)}, {words.size(each.memory_bytes)}"
    yield words.plain(f"Python {found.python}, torch {found.torch}")


def next_steps(folder: Path | str | None) -> list[Next]:
    """What to type next. ``folder``: where the session is kept, if it is."""
    if folder is None:
        return []
    report = words.command("outpace", "report", str(folder), "-o", "report.html")
    return [Next(report, "all of this with charts in one file")]
