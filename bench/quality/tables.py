"""RESULTS.md: what the kept runs add up to, and on what they were made."""

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from contenders import CONTENDERS, OURS, PLAIN
from scores import Run, area, geometric_mean, middle, ratios, reached, speedup, worse
from workload import Workload

from outpace.report.markdown import table

DASH = "—"


@dataclass
class Field:
    """What is known of one workload: runs of each contender by seed, and why others have none."""

    work: Workload
    entry: dict[str, Any]
    """of targets.json"""
    budget_s: float
    runs: dict[str, dict[int, Run]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    notes: dict[str, list[str]] = field(default_factory=dict)
    """of each contender's first seed"""
    curves: dict[str, list[Any]] = field(default_factory=dict)
    """of the first seed, aiming for the target where it does"""

    made_at: list[float] = field(default_factory=list)
    """when answers were made, seconds since 1970"""

    def of(self, name: str) -> list[Run]:
        """A contender's runs."""
        return list(self.runs.get(name, {}).values())

    @property
    def peers(self) -> list[str]:
        """Who else was run, the plain script aside."""
        return [name for name in self.runs if name not in (PLAIN, OURS)]

    @property
    def fastest_peer(self) -> str | None:
        """To the target."""
        return min(self.peers, key=lambda name: middle(self.of(name)), default=None)

    @property
    def best_peer(self) -> str | None:
        """By what it reaches in the end; the plain script counts too."""
        sign = -1 if self.work.larger else 1
        names = [name for name in self.runs if name != OURS]
        return min(names, key=lambda name: sign * middle(self.of(name), "final"), default=None)

    @property
    def kept_up(self) -> bool | None:
        """Whether ours is proven to be no worse than the best other; None: too few seeds to tell."""
        found = self.against_best()
        return None if found is None or math.isinf(found.most) else found.most <= self.margin

    @property
    def margin(self) -> float:
        """By which it may fall short: what the plain script's seeds differ by."""
        return float(self.entry["margin"])

    def against_best(self) -> Any:
        """How much worse ours is, by the seeds that both have."""
        ours, other = self.runs.get(OURS, {}), self.runs.get(self.best_peer or "", {})
        both = [seed for seed in ours if seed in other]
        if not both:
            return None
        finals = ([of[seed].final for seed in both] for of in (ours, other))
        return worse(*finals, larger=self.work.larger)


def results(fields: list[Field], how: str, plots: Iterable[str] = ()) -> str:
    """All of it."""
    parts = ["# Time to quality", "Made by `python bench/quality/run.py`; see its docstring.", how]
    parts += [bars(fields), totals(fields), *plots]
    for each in fields:
        parts += [f"## {each.work.title}", *section(each)]
    parts += ["## Data and targets", sources(fields)]
    return "\n\n".join(part for part in parts if part) + "\n"


def bars(fields: list[Field]) -> str:
    """Ours against the plain script and the best peer of each workload."""
    rows = []
    plain = [f for f in fields if f.of(OURS) and f.of(PLAIN)]
    if plain:
        rows.append(["plain script", *against(plain, [PLAIN] * len(plain))])
    peers = [f for f in fields if f.of(OURS) and f.fastest_peer]
    if peers:
        rows.append(["fastest peer of each", *against(peers, [f.fastest_peer for f in peers])])
    lines = table(("Outpace against", "workloads", "wall", "CPU", "slower on"), rows)
    verdicts = [f.kept_up for f in fields if f.of(OURS) and f.best_peer]
    if not verdicts:
        return lines
    told = (
        f"Final metric no worse than that of the best other at 95 %, by the margin of each workload: "
        f"{verdicts.count(True)} of {len(verdicts)}; not shown: {verdicts.count(False)}; "
        f"too few seeds to tell: {verdicts.count(None)}."
    )
    return f"{lines}\n\n{told}"


def against(fields: list[Field], others: list[Any]) -> list[str]:
    """Geometric means over workloads, and where ours is slower."""
    both = [(f, f.of(other), f.of(OURS)) for f, other in zip(fields, others, strict=True)]
    wall = [speedup(base, ours) for _, base, ours in both]
    cpu = [speedup(base, ours, "cpu_s") for _, base, ours in both]
    slower = [f.work.title for (f, _, _), ratio in zip(both, wall, strict=True) if ratio < 1]
    return [
        str(len(both)),
        f"{geometric_mean(wall):.2f}x",
        f"{geometric_mean(cpu):.2f}x",
        "; ".join(slower) or "none",
    ]


def times_of(fields: list[Field]) -> dict[str, dict[str, float]]:
    """Of each contender the middle time to each target, for the profile."""
    names = [name for name in CONTENDERS if any(f.of(name) for f in fields)]
    return {
        name: {
            f.work.title: middle(f.of(name)) if reached(f.of(name)) else math.inf
            for f in fields
            if f.of(name)
        }
        for name in names
    }


def totals(fields: list[Field]) -> str:
    """A line a contender."""
    times = times_of(fields)
    profiles = ratios(times)
    rows = []
    for name, of in times.items():
        both = [f for f in fields if f.of(name) and f.of(PLAIN)]
        wall = [speedup(f.of(PLAIN), f.of(name)) for f in both]
        cpu = [speedup(f.of(PLAIN), f.of(name), "cpu_s") for f in both]
        rows.append(
            [
                CONTENDERS[name].title,
                f"{sum(seconds < math.inf for seconds in of.values())} of {len(of)}",
                f"{geometric_mean(wall):.2f}x" if wall else DASH,
                f"{geometric_mean(cpu):.2f}x" if cpu else DASH,
                f"{area(profiles[name]):.2f}" if profiles[name] else DASH,
            ]
        )
    head = ("contender", "targets reached", "plain's wall / its", "plain's CPU / its", "profile")
    return table(head, rows)


def section(each: Field) -> list[str]:
    """One workload."""
    better = "or more" if each.work.larger else "or less"
    target = f"{each.work.measure} {each.entry['target']:.4g} {better}"
    rows = [row(each, name) for name in CONTENDERS if each.of(name)]
    rows += [[CONTENDERS[n].title, why, *[""] * 6] for n, why in each.failed.items()]
    head = ("contender", "reached", "wall s", "CPU s", "wall", "CPU", "final", "worse by")
    notes = [
        f"- {CONTENDERS[name].title}: {'; '.join(each.notes[name])}"
        for name in CONTENDERS
        if each.notes.get(name)
    ]
    return [f"Target: {target}, within {each.budget_s:g} s.", table(head, rows), "\n".join(notes)]


def row(each: Field, name: str) -> list[str]:
    """A contender on it; in brackets the penalty of what did not reach the target."""
    runs, plain = each.of(name), each.of(PLAIN)
    wall, cpu = f"{middle(runs):.1f}", f"{middle(runs, 'cpu_s'):.1f}"
    against = each.against_best() if name == OURS else None
    cells = [
        CONTENDERS[name].title,
        f"{sum(run.reached for run in runs)} of {len(runs)}",
        wall if reached(runs) else f"({wall})",
        cpu if reached(runs) else f"({cpu})",
        f"{speedup(plain, runs):.2f}x" if plain else DASH,
        f"{speedup(plain, runs, 'cpu_s'):.2f}x" if plain else DASH,
        f"{statistics.median(run.final for run in runs):.4g}",
    ]
    if against is None:
        return [*cells, ""]
    most = f", at most {against.most:.2g}" if math.isfinite(against.most) else ""
    best = CONTENDERS[each.best_peer or PLAIN].title
    return [*cells, f"{against.mean:.2g}{most} (than {best}; margin {each.margin:.2g})"]


def sources(fields: list[Field]) -> str:
    """Where data are from, and how the targets came about."""
    rows = []
    for each in fields:
        entry = each.entry
        grid = ", ".join(f"{rate}: {value:.4g}" for rate, value in entry["grid"].items())
        seeds = ", ".join(f"{seed['early']:.4g}" for seed in entry["seeds"].values())
        rows.append(
            [
                each.work.title,
                each.work.source,
                f"{each.work.measure}, {'larger' if each.work.larger else 'smaller'} is better",
                str(each.work.batch),
                f"{entry['rate']:g} of {grid}",
                f"{entry['target']:.4g} of {seeds}",
            ]
        )
    head = ("workload", "package and licence", "metric", "batch", "plain's rate", "target of seeds")
    return table(head, rows)
