"""The ledger: where the wall clock of a run went, in rows that add up to all of it.

Rows inside of steps come from the steps that ran as the script is; they stand for all steps of the
run. Rows outside of steps (start-up, validation, checkpoints, the tail after the last step, the end
of the process) are taken as they were measured, as often as they come. Where the length of the whole
run is known the ledger speaks of the whole run, else of the part that was seen.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from outpace.measure.by_hand import Place, Update
from outpace.measure.lines import (
    is_input,
    is_logging,
    is_loss,
    is_optimizers,
    is_telling,
    is_update,
    of_steps,
    places,
    tasks,
)
from outpace.measure.sampler import LOADING, Line, of_phase
from outpace.measure.statistics import correlation, linear_regression, median
from outpace.records.ledger import NOW_AND_THEN, Row, rows_of
from outpace.seams.host import Step
from outpace.seams.phases import WORK

SMALLEST_ROW = 0.01
"""places with a smaller share of the run are put together"""
FEWEST = 3
"""samples that a place is told by"""
WARM_UP = 2
FEWEST_GROWING, SURELY_GROWS, MUCH_GROWING = 30, 0.9, 0.05
"""steps, the correlation, and the part of a step by which it has grown, from which on something grows"""
BLOCKS = 10
"""that the steps are divided into to tell it"""
GROWING = ("elsewhere", "logging")
"""kinds of lines that may"""
IN_EITHER_HALF = 0.5
"""of the whole slope that either half of the steps has by itself: what jumps, or fills up, has not"""

Totals = defaultdict[tuple[str, str | None], float]


@dataclass
class Seen:
    """What the ledger is made from; seconds."""

    startup_s: float
    steps: list[Step]
    """steps that ran as the script is"""
    count: int
    """all steps seen, those of arms included"""
    outside: dict[str, float] = field(default_factory=dict)
    """validation, checkpoint and epoch starts of the run that the ledger speaks of, and the tail"""
    samples: Counter[Line] = field(default_factory=Counter)
    input_lines: set[tuple[str, str, int]] = field(default_factory=set)
    by_hand: Update | None = None
    loss_lines: set[Place] = field(default_factory=set)
    total_steps: int | None = None
    whole: bool = False
    """the run was seen to its end"""
    mingled: bool = False
    """every step has in it what otherwise comes now and then"""
    phases: dict[str, float] | None = None
    """seconds of a step, where they are not as the host's clock tells"""

    @cached_property
    def slope(self) -> float:
        """Seconds that each step takes longer than the one before it."""
        return growing(self.steps) if self.phases is None else 0.0


def clean_steps(steps: list[Step]) -> list[Step]:
    """Steps to judge by: without warm-up, validation, checkpoints or an epoch's start."""
    clean = [s for s in steps if s.clean and s.index >= WARM_UP]
    return clean or [s for s in steps if s.clean] or steps


def mean_phases(steps: list[Step]) -> dict[str, float]:
    """Mean seconds a step by phase."""
    if not steps:
        return {}
    names = steps[0].phases
    # A group with something else in it has that whole in its phases.
    weighted = [(step.count if step.clean else 1, step.phases) for step in steps]
    count = sum(weight for weight, _ in weighted)
    return {n: sum(w * took.get(n, 0) for w, took in weighted) / count / 1e9 for n in names}


def longer_firsts(firsts: Sequence[Step], phases: Mapping[str, float]) -> float:
    """Seconds that steps which begin an epoch compute longer than ``phases`` tell of others, in the median.

    Where workers were forked just before, memory is shared with them: each page that such a step writes
    to is copied first.
    """
    if not firsts:
        return 0.0
    usual = sum(phases.get(name, 0.0) for name in WORK)
    took = [sum(s.phases.get(n, 0) for n in WORK) / 1e9 - s.count * usual for s in firsts]
    return max(0.0, median(took))


def mean_of(steps: Sequence[Step]) -> tuple[float, float]:
    """Mean seconds of a step, and CPU seconds; groups of short ones count as many."""
    count = sum(step.count for step in steps)
    if not count:
        return 0.0, 0.0
    wall, cpu = sum(s.wall * s.count for s in steps), sum(s.cpu * s.count for s in steps)
    return wall / count / 1e9, cpu / count / 1e9


def growing(steps: Sequence[Step]) -> float:
    """Seconds that each step takes longer than the one before it in what no seam explains, as where a script
    goes through all that it has noted so far; 0 where that is not sure.
    """
    clean = clean_steps(list(steps))
    if len(clean) < FEWEST_GROWING:
        return 0.0
    # The medians of some steps each: single ones may be held up for long.
    size = len(clean) / BLOCKS
    blocks = [clean[round(i * size) : round((i + 1) * size)] for i in range(BLOCKS)]
    at = [median([float(step.index) for step in block]) for block in blocks]
    took = [median([step.phases.get("elsewhere", 0) / 1e9 for step in block]) for block in blocks]
    if len(set(took)) < 2 or correlation(at, took) < SURELY_GROWS:
        return 0.0
    slope, begin = linear_regression(at, took)
    half = BLOCKS // 2
    halves = [
        linear_regression(at[part], took[part])[0] for part in (slice(half), slice(half, None))
    ]
    first, last = clean[0].index, clean[-1].index
    rise = slope * (last - first)
    much = rise > MUCH_GROWING * mean_of(clean)[0] and rise > begin + slope * first
    return slope if much and min(halves) >= IN_EITHER_HALF * slope else 0.0


def grown(seen: Seen) -> float:
    """Seconds that all steps of the run take longer than as many like those that were looked at."""
    slope = seen.slope
    if not slope:
        return 0.0
    clean = clean_steps(seen.steps)
    count = sum(step.count for step in clean)
    middle = sum(step.count * (step.index - (step.count - 1) / 2) for step in clean) / count
    times = _times(seen)
    return slope * max(0.0, (times - 1) / 2 - middle) * times


def _times(seen: Seen) -> int:
    """Steps that the ledger speaks of."""
    return seen.total_steps if seen.total_steps and not seen.whole else seen.count


def build(seen: Seen) -> list[Row]:
    """The rows, the largest first; their shares add to 1."""
    phases = mean_phases(clean_steps(seen.steps)) if seen.phases is None else seen.phases
    times = _times(seen)
    seconds: Totals = defaultdict(float)
    seconds["startup", _place(seen, "startup")] += seen.startup_s
    for name, value in phases.items():
        counted = name in NOW_AND_THEN and not seen.mingled  # as often as it comes, below
        if name != "elsewhere" and not counted:
            seconds[name, _place(seen, name)] += value * times
    for name, value in seen.outside.items():
        _add_outside(seen, name, value, seconds)
    _split_elsewhere(seen, phases.get("elsewhere", 0.0) * times, grown(seen), seconds)
    total = sum(seconds.values()) or 1.0
    kept: Totals = defaultdict(float)
    for (name, where), value in seconds.items():
        small = name == "elsewhere" and value / total < SMALLEST_ROW
        kept[name, None if small else where] += value
    return rows_of(kept)


def saving(samples: Counter[Line]) -> Counter[Line]:
    """The samples, with all that a function does which calls `torch.save` as part of the checkpoint."""
    steps = {frame[:2] for frame in of_steps(samples)}
    frames = {f[:2] for line in samples if line.phase == "checkpoint" for f in line.lines}
    saves = frames - steps
    found: Counter[Line] = Counter()
    for line, count in samples.items():
        within = line.phase == "elsewhere" and any(frame[:2] in saves for frame in line.lines)
        found[line._replace(phase="checkpoint") if within else line] += count
    return found


def _add_outside(seen: Seen, name: str, value: float, rows: Totals) -> None:
    """Add what came between steps; a validation without the figures and files that follow from it."""
    samples = of_phase(seen.samples, name)
    if name == "validation" and (told := _telling(samples)):
        part = told.total() / samples.total()
        rows["logging", places(told, most=1)[0][0]] += part * value
        value *= 1 - part
        samples -= told
    if name == "validation":
        samples = _beside_steps(samples, of_steps(seen.samples))
    at = places(samples, most=1)
    rows[name, at[0][0] if at else None] += value


def _telling(samples: Counter[Line]) -> Counter[Line]:
    """Those in which a validation's figures and files are made; none where they are few."""
    told = Counter({k: v for k, v in samples.items() if is_telling(k)})
    return told if told.total() >= FEWEST else Counter()


def told_s(seen: Seen) -> float:
    """Seconds of the ledger's logging that come with validations, and not with steps."""
    samples = of_phase(seen.samples, "validation")
    told = _telling(samples).total()
    return told / samples.total() * seen.outside.get("validation", 0.0) if told else 0.0


def _beside_steps(samples: Counter[Line], steps: set[Place]) -> Counter[Line]:
    """The samples from the innermost line on that no step runs, where there is one: the model's own lines are
    those of the training too.
    """
    found: Counter[Line] = Counter()
    for line, count in samples.items():
        own = next((i for i, frame in enumerate(line.lines) if frame not in steps), 0)
        found[line._replace(lines=line.lines[own:])] += count
    return found


def _split_elsewhere(seen: Seen, seconds: float, more: float, rows: Totals) -> None:
    """Give the time that no seam explains to the lines that were seen to run in it; what has grown by
    ``more`` to those of no known kind, and of logging.
    """
    samples = of_phase(seen.samples, "elsewhere")
    total = sum(samples.values())
    if not total:
        rows["elsewhere", None] += seconds + more
        return
    groups: defaultdict[str, Counter[Line]] = defaultdict(Counter)
    for line, count in samples.items():
        groups[_kind(line, seen)][line] += count
    steps = of_steps(seen.samples)
    grow = sum(group.total() for kind, group in groups.items() if kind in GROWING)
    if not grow:
        rows["elsewhere", None] += more
    for kind, group in groups.items():
        share = sum(group.values()) / total * seconds
        if kind in GROWING:
            share += group.total() / grow * more
        at = tasks(group, steps)
        if kind != "elsewhere":
            if share:
                rows[kind, at[0][0] if at else None] += share
            continue
        at = [(where, part) for where, part in at if part * sum(group.values()) >= FEWEST]
        for where, part in at:
            rows[kind, where] += part * share
        rows[kind, None] += share * (1 - sum(part for _, part in at))


def _kind(line: Line, seen: Seen) -> str:
    if is_loss(line, seen.loss_lines):
        return "forward"  # also where it makes what another model is given
    if is_input(line, seen.input_lines):
        return "input"
    if is_update(line, seen.by_hand) or is_optimizers(line):
        return "optimizer"
    return "logging" if is_logging(line) else "elsewhere"


def by_hand_share(seen: Seen) -> float:
    """Share of the time that no seam explains in which the script changes parameters itself."""
    return _share(seen, lambda line: is_update(line, seen.by_hand))


def own_share(seen: Seen, kind: str) -> float:
    """Share of the time that no seam explains in which the script's own lines do this.

    "optimizer": what goes with an update; "forward": they compute a loss.
    """
    return _share(seen, lambda line: _kind(line, seen) == kind)


def _share(seen: Seen, is_mine: Callable[[Line], bool]) -> float:
    samples = of_phase(seen.samples, "elsewhere")
    total = samples.total()
    return sum(count for line, count in samples.items() if is_mine(line)) / total if total else 0.0


def _place(seen: Seen, phase: str) -> str | None:
    taken = of_phase(seen.samples, phase)
    samples = Counter({k: v for k, v in taken.items() if k.function != LOADING})
    at = places(samples, most=1)
    return at[0][0] if at else None
