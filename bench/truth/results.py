"""Scores of the truth bench, and RESULTS.md."""

from __future__ import annotations

import math
import os
import statistics
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from cases import Case
from peers import FAILED

from outpace.measure.statistics import paired_gain

Row = dict[str, Any]

BOUNDS = ("io", "compute", "memory", "communication", "outside")
LEAST = 1.05
"""cost of a plant below which it is not one"""
HALF = 2.0
"""cost of a plant from which on the training is bound by it"""
OF_80 = 1.2816 / 1.9600
"""width of an 80 % interval by that of a 95 % one"""


class Truth(NamedTuple):
    """How many times as fast a dose would be without the plant."""

    speedup: float
    low: float
    high: float
    rounds: int
    """pairs of runs that it is from"""

    @property
    def shown(self) -> bool:
        """Whether the dose costs anything that can be shown."""
        return self.low > 1 and self.speedup >= LEAST

    def __str__(self) -> str:
        return f"{self.speedup:.2f}x [{self.low:.2f}, {self.high:.2f}]"


class Told(NamedTuple):
    """A verdict beside the truth."""

    case: Case
    row: Row
    truth: Truth | None
    """None: a script without its plant, or a plant that costs no time"""
    without: Row | None
    """the verdict on the same script without its plant; None for that itself"""


def truth_of(planted: list[float], fixed: list[float]) -> Truth:
    """From seconds of the same rounds."""
    gain = paired_gain(planted, fixed)
    return Truth(gain.speedup, gain.low, gain.high, len(fixed))


def bound_right(told: Told) -> bool:
    """Whether the first finding is of the planted bound, or, for a plant that takes less than half
    of the time, of what the script is bound by without it.
    """
    row, case, without = told.row, told.case, told.without
    if told.truth is None:
        return bool(row["found"])  # it costs no time: what is bound by time comes first
    if told.truth.speedup >= HALF or without is None:
        return bool(row["bound"] == case.bound)
    return row["bound"] in (case.bound, without["bound"])


def cause_right(told: Told) -> bool:
    """The same of the cause; a smaller plant has to be among the findings."""
    row, without = told.row, told.without
    if told.truth is None or row["top"]:
        return bool(row["found"])
    if told.truth.speedup >= HALF or without is None:
        return False
    return bool(row["found"]) and row["cause"] in (told.case.cause, without["cause"])


def first_of_its_own(told: Told) -> bool:
    """Whether the planted cause is told, and before it only causes that are told without it too."""
    row, without = told.row, told.without
    if without is None:
        return bool(row["top"])
    causes = [tuple(each[:2]) for each in row["told"]]
    planted = (told.case.bound, told.case.cause)
    own = {tuple(each[:2]) for each in without["told"]}
    return planted in causes and own.issuperset(causes[: causes.index(planted)])


def alarm(told: Told) -> bool:
    """Whether a control is told to have another cause than its own, or a script one not in it.

    That threads wait for the core of a hog is none; nor is computing, by which a script may be bound
    without its plant too.
    """
    row, case = told.row, told.case
    if not case.amounts:
        verdict = (row["bound"], row["cause"])
        held_up = row["hog"] and verdict == ("compute", "threads")
        return row["bound"] != "none" and verdict != (case.bound, case.cause) and not held_up
    return bool(told.row["top"]) and told.case.bound != "compute"


class PlantGain(NamedTuple):
    """What is told of the plant alone: a logarithm, and how far down and up its interval goes."""

    log: float
    down: float
    up: float


def plant_gain(told: Told) -> PlantGain | None:
    """The gain of the planted cause over what is told of that cause without the plant.

    A finding tells what a training would gain without its cause at all: with T seconds of which p
    are the plant and a other things of the same cause, T / (T - p - a). What the plant costs is
    T / (T - p), that over (T - p) / (T - p - a). What arithmetic is told to gain without a plant is
    of another kind: the distance to the machine's ceiling. Nor is there a quotient where those other
    things are a finding of their own beside the plant's: then T / (T - p) is told.
    """
    gain = told.row["gain"]
    if not gain:
        return None
    log, down, up = _logs(gain)
    own = told.without["gain"] if told.without is not None else None
    planted = [told.case.bound, told.case.cause]
    beside = sum(each[:2] == planted for each in told.row["told"]) > 1
    if own and not beside and told.case.cause != "arithmetic":
        own_log, own_down, own_up = _logs(own)
        return PlantGain(log - own_log, math.hypot(down, own_up), math.hypot(up, own_down))
    return PlantGain(log, down, up)


def _logs(gain: dict[str, float]) -> PlantGain:
    middle = math.log(gain["speedup"])
    return PlantGain(middle, middle - math.log(gain["low"]), math.log(gain["high"]) - middle)


def off(told: Told) -> float | None:
    """ln(truth / gain told of the plant)."""
    gain = plant_gain(told)
    return math.log(told.truth.speedup) - gain.log if gain and told.truth else None


def covered(told: Told, width: float = 1.0, *, as_measured: bool = True) -> bool | None:
    """Whether the truth lies in the interval told, made narrower on the log scale.

    The truth is measured too, and now and then less well than the gain. Unless it is taken ``as_measured``,
    the difference of the two is held against the limits of both.
    """
    gain, distance = plant_gain(told), off(told)
    if gain is None or distance is None or told.truth is None:
        return None
    down, up = gain.down, gain.up
    if not as_measured:
        true = _logs(told.truth._asdict())
        down, up = math.hypot(down, true.up), math.hypot(up, true.down)
    return -width * down <= distance <= width * up


def same_each_time(all_told: list[Told]) -> list[bool]:
    """For each verdict after the first of a script and seed: whether it is the usual one."""
    groups: dict[tuple[str, str, int], list[tuple[str, str]]] = {}
    for told in all_told:
        key = (told.case.name, told.row["amount"], told.row["seed"])
        groups.setdefault(key, []).append((told.row["bound"], told.row["cause"]))
    usual = {key: Counter(group).most_common(1)[0][1] for key, group in groups.items()}
    return [i < usual[key] for key, group in groups.items() for i in range(1, len(group))]


def share(marks: Iterable[bool]) -> str:
    """Right ones of all."""
    seen = list(marks)
    return f"{sum(seen)} of {len(seen)} ({100 * sum(seen) / len(seen):.0f} %)" if seen else "-"


def middle(values: list[float]) -> str:
    """Their median."""
    return f"{statistics.median(values):.2f} over {len(values)}" if values else "-"


def scores(planted: list[Told], clean: list[Told]) -> dict[str, str]:
    """Each with its name."""
    costly = [told for told in planted if told.truth is not None]
    twins = [told for told in clean if told.case.amounts]
    errors = [abs(e) for told in planted if (e := off(told)) is not None]
    alone = [off(told) for told in planted if told.case.cause != "arithmetic"]
    of_plant = [abs(e) for e in alone if e is not None]
    wide = [c for told in planted if (c := covered(told)) is not None]
    narrow = [c for told in planted if (c := covered(told, OF_80)) is not None]
    both = [c for t in planted if (c := covered(t, OF_80, as_measured=False)) is not None]
    return {
        "bound right": share(map(bound_right, planted)),
        "cause right": share(map(cause_right, planted)),
        "planted bound first, of plants that take half of the time or more": share(
            t.row["bound"] == t.case.bound for t in costly if half(t)
        ),
        "planted bound first, of all plants that take time": share(
            t.row["bound"] == t.case.bound for t in costly
        ),
        "planted cause first, but for what is told without it too": share(
            map(first_of_its_own, planted)
        ),
        "planted cause found at all": share(t.row["found"] for t in planted),
        "file:line right, of those found": share(
            t.row["line_right"] for t in planted if t.row["found"]
        ),
        "an accepted remedy is advised": share(
            t.row["advice_right"] for t in planted if t.case.remedies
        ),
        "false alarms on controls": share(alarm(t) for t in clean if not t.case.amounts),
        "the planted cause first without its plant": share(
            t.row["top"] for t in twins if t.case.bound != "compute"
        ),
        "the same of compute, which a script may be bound by without its plant too": share(
            t.row["top"] for t in twins if t.case.bound == "compute"
        ),
        "the same verdict in repeats": share(same_each_time(planted + clean)),
        "median of abs(ln(gain told of the plant / truth))": middle(errors),
        "the same without arithmetic, whose gain is told against the machine's ceiling": middle(
            of_plant
        ),
        "truth in the 95 % interval told": share(wide),
        "truth in its 80 % part": share(narrow),
        "the same, with the 80 % part of the truth's own interval": share(both),
    }


def half(told: Told) -> bool:
    """Whether the plant takes half of the time or more."""
    return told.truth is not None and told.truth.speedup >= HALF


def confusion(planted: list[Told], clean: list[Told]) -> list[str]:
    """True bound by told bound, of what a training is bound by: half of the time, or a control."""
    counts: Counter[tuple[str, str]] = Counter()
    for told in planted:
        if half(told):
            counts[told.case.bound, told.row["bound"]] += 1
    for told in clean:
        if not told.case.amounts:
            counts[told.case.bound, told.row["bound"]] += 1
    columns = (*BOUNDS, "none")
    lines = [f"| truly | {' | '.join(columns)} |", "| --- |" + " --- |" * len(columns)]
    for bound in BOUNDS:
        cells = " | ".join(str(counts[bound, column] or "") for column in columns)
        lines.append(f"| {bound} | {cells} |")
    return lines


def peer_lines(planted: list[Told], clean: list[Told]) -> list[str]:
    """Bound right where half of the time or more is lost, and on controls, ours and of each peer."""
    costly = [told for told in planted if half(told) and "peers" in told.row]
    controls = [told for told in clean if "peers" in told.row]
    if not costly and not controls:
        return []
    lines = [
        "The same scripts given to other tools; those of two ranks are left out for all of them, as",
        "these tools start a script without torchrun.",
        "",
    ]
    lines += ["| tool | bound right, of half the time or more | right on controls |"]
    lines += ["| --- | --- | --- |"]
    for name in ("outpace", *(costly or controls)[0].row["peers"]):
        ran = [t for t in costly if _said(t, name) != FAILED]
        quiet = [t for t in controls if _said(t, name) != FAILED]
        right = [share(_said(t, name) == t.case.bound for t in ran)]
        right += [share(_said(t, name) in (t.case.bound, "none") for t in quiet)]
        lines.append(f"| {name} | {' | '.join(right)} |")
    return lines


def _said(told: Told, name: str) -> str:
    return str(told.row["bound"] if name == "outpace" else told.row["peers"][name])


def results(
    cases: list[Case],
    true: dict[tuple[str, str, int], Truth],
    rows: list[Row],
    how: str,
    *,
    twins: bool = True,
) -> str:
    """RESULTS.md, from truths by case, amount and seed, and verdicts; ``how`` they were taken.

    ``twins``: a verdict counts only beside the one of its script without the plant.
    """
    by_name = {case.name: case for case in cases}
    without = {_twin(row): row for row in rows if row["amount"] in ("", "0")}
    clean = [Told(by_name[r["case"]], r, None, None) for r in rows if r["amount"] in ("", "0")]
    planted = []
    for row in rows:
        case, amount = by_name[row["case"]], row["amount"]
        if amount in ("", "0") or (twins and _twin(row) not in without):
            continue
        truth = true[case.name, amount, row["seed"]] if case.timed else None
        if truth is None or truth.shown:
            planted.append(Told(case, row, truth, without.get(_twin(row))))
    dropped = [f"{name} {a} ({truth})" for (name, a, _), truth in true.items() if not truth.shown]
    groups: dict[str, Callable[[Told], bool]] = {
        "all": lambda told: True,
        "held out": lambda told: told.case.held_out,
        "the rest": lambda told: not told.case.held_out,
    }
    seeds = sorted({row["seed"] for row in rows})
    for seed in seeds if len(seeds) > 1 else ():
        groups[f"seed {seed}"] = lambda told, seed=seed: told.row["seed"] == seed
    columns = {
        name: scores([*filter(group, planted)], [*filter(group, clean)])
        for name, group in groups.items()
    }
    lines = [
        "# The truth bench",
        "",
        "Made by `python bench/truth/run.py`. What a plant costs is measured in turns with the",
        "script without it. Gains told are those of the planted cause; what is told of the plant is",
        "that gain over the one told of the same cause where the plant is not. A third of the cases,",
        "by a hash of the name, is held out: nothing is to be tuned on it. They are marked *.",
        "",
        how,
        "",
        f"Scripts run: {len({row['case'] for row in rows})} of {len(cases)}.",
        f"Verdicts with a plant: {len(planted)}, without: {len(clean)}; {codes(rows)}.",
        "",
        f"| score | {' | '.join(columns)} |",
        "| --- |" + " --- |" * len(columns),
        *(f"| {s} | {' | '.join(c[s] for c in columns.values())} |" for s in columns["all"]),
        "",
        "What is truly bound by something (half of the time or more), and what was told:",
        "",
        *confusion(planted, clean),
        "",
        *peer_lines(planted, clean),
        "",
        "| case | amount | truth | verdict | gain told | of the plant | where | advised |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        *map(told_line, sorted(planted + clean, key=lambda t: (t.case.name, _number(t.row)))),
    ]
    if dropped:
        lines += ["", f"Dropped, as nothing could be shown to be lost: {', '.join(dropped)}."]
    return "\n".join(lines) + "\n"


def _twin(row: Row) -> tuple[str, int, int]:
    """What a verdict has in common with that on the same script without the plant."""
    return row["case"], row["seed"], row["repeat"]


def codes(rows: list[Row]) -> str:
    """How many verdicts are of which version of the code."""
    counts = Counter(row["code"] for row in rows)
    return ", ".join(f"{count} by code {code}" for code, count in counts.most_common())


def _number(row: Row) -> tuple[float, int]:
    return float(row["amount"] or 0), row["seed"]


def told_line(told: Told) -> str:
    """A line of the table."""
    row = told.row
    planted = row["amount"] not in ("", "0")
    wrong = not (bound_right(told) and cause_right(told)) if planted else alarm(told)
    gain = "{speedup:.2f}x [{low:.2f}, {high:.2f}]".format(**row["gain"]) if row["gain"] else ""
    alone = plant_gain(told)
    of_plant = f"{math.exp(alone.log):.2f}x" if alone and told.truth else ""
    line = os.path.basename(row["where"] or "")
    if planted and row["found"] and not row["line_right"]:
        line += " (wrong)"
    cells = [
        row["case"] + (" *" if told.case.held_out else ""),
        row["amount"] or "control",
        str(told.truth or "-"),
        f"{row['bound']}, {row['cause']}" + (" (wrong)" if wrong else ""),
        gain,
        of_plant,
        line,
        ", ".join(row["advised"]),
    ]
    return f"| {' | '.join(cells)} |"
