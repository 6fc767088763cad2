"""The tables of the serve bench."""

import statistics
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from rivals import BASE, BESIDE, OURS

from outpace.measure.statistics import paired_gain

MIB = 2**20
HEAD = "| loader | setting | samples/s | ratio | CPU us | PSS MiB | first batch s | shuffled | MiB on disk |"
TUNED = "| data | chosen | chosen in s | share of the best | error of predictions | grown by MiB | of MiB |"
TOTALS = "| data | outpace.Loader, samples/s | best other | ratio | CPU saved |"


class Measured(NamedTuple):
    """One round of one loader. ``seconds`` and ``cpu_s`` are of a sample."""

    seconds: float
    cpu_s: float
    pss_bytes: float
    grown_bytes: float
    """memory since before there was a loader"""
    first_s: float


@dataclass
class Arm:
    """A loader with a setting, and what is known of it on one data set."""

    name: str
    title: str
    folder: Path = Path()
    setting: dict[str, Any] = field(default_factory=dict)
    trouble: str = ""
    """what keeps it from being measured"""
    checked: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    """what our loader chose, and what it predicts of all other choices"""
    rounds: list[Measured] = field(default_factory=list)

    def middle(self, what: str) -> float:
        """Median over the rounds."""
        return statistics.median(getattr(one, what) for one in self.rounds)

    def over(self, base: "Arm") -> str:
        """How many times as many samples a second, by the rounds that both have."""
        both = list(zip(base.rounds, self.rounds, strict=False))
        gain = paired_gain([b.seconds for b, _ in both], [s.seconds for _, s in both])
        return f"{gain.speedup:.2f}x [{gain.low:.2f}, {gain.high:.2f}]"

    def line(self, base: "Arm | None") -> str:
        """Of its data set's table."""
        setting = ", ".join(f"{value} {name}" for name, value in self.setting.items())
        cells = [self.title, self.trouble or setting]
        if self.rounds and not self.trouble:
            files = self.folder.rglob("*")
            cells += [
                f"{1 / self.middle('seconds'):,.0f}",
                self.over(base) if base else "",
                f"{1e6 * self.middle('cpu_s'):,.1f}",
                f"{max(one.pss_bytes for one in self.rounds) / MIB:,.0f}",
                f"{self.middle('first_s'):.2f}",
                f"{100 * self.checked['shuffle']:.0f} %" if self.checked else "",
                f"{sum(f.stat().st_size for f in files if f.is_file()) / MIB:,.0f}",
            ]
        if self.checked.get("wrong"):
            cells[0] += f" (**{'; '.join(self.checked['wrong'])}**)"
        return f"| {' | '.join(cells)} |" + " |" * (HEAD.count("|") - 1 - len(cells))


def total(title: str, arms: list[Arm]) -> str | None:
    """How ours is to the best other."""
    right = [arm for arm in arms if arm.rounds and not arm.trouble and not arm.checked.get("wrong")]
    ours = next((arm for arm in right if arm.name == OURS), None)
    others = [arm for arm in right if arm.name not in (OURS, *BESIDE)]
    if ours is None or not others:
        return None
    best = min(others, key=lambda arm: arm.middle("seconds"))
    rate, other = (f"{1 / arm.middle('seconds'):,.0f}" for arm in (ours, best))
    saved = best.middle("cpu_s") / ours.middle("cpu_s")
    return f"| {title} | {rate} | {best.title}, {other} | {ours.over(best)} | {saved:.2f}x |"


def tuned(title: str, arms: list[Arm]) -> str | None:
    """How good our loader's choice is, and what it says of others."""
    ours, every = arms[0], arms[1:]
    if not ours.told or not ours.rounds:
        return None
    right = [
        (arm, one) for arm, one in zip(every, ours.told["predicted"], strict=True) if arm.rounds
    ]
    best = min((arm for arm, _ in right), key=lambda arm: arm.middle("seconds"), default=ours)
    errors = [abs(arm.middle("seconds") / one - 1) for arm, one in right]
    cells = [
        title,
        ours.told["choice"],
        f"{ours.told['choosing_s']:.1f}",
        f"{best.middle('seconds') / ours.middle('seconds'):.2f}",
        f"{100 * statistics.median(errors):.0f} %" if errors else "",
        f"{max(one.grown_bytes for one in ours.rounds) / MIB:,.0f}",
        f"{ours.told['ram'] / MIB:,.0f}",
    ]
    return f"| {' | '.join(cells)} |"


def table(head: str, lines: list[str | None]) -> list[str]:
    """Those of them that there are, under their head."""
    found = [line for line in lines if line]
    return [head, "| --- " * head.count(" | ") + "| --- |", *found, ""] if found else []


def results(done: dict[str, list[Arm]], how: str) -> str:
    """RESULTS.md."""
    lines = ["# The serve bench", "", "Made by `python bench/serve/run.py`; see its docstring.", ""]
    lines += [how, ""]
    lines += table(TOTALS, [total(title, arms) for title, arms in done.items()])
    lines += table(TUNED, [tuned(title, arms) for title, arms in done.items()])
    for title, arms in done.items():
        base = next((arm for arm in arms if arm.name == BASE and arm.rounds), None)
        base = base or next((arm for arm in arms if arm.rounds), None)
        lines += [f"## {title}", "", *table(HEAD, [arm.line(base) for arm in arms])]
    return "\n".join(lines)
