"""The quality bench: seconds until a model is good enough, ours and others', on eight workloads.

    python bench/quality/run.py [--only mnist] [--contenders plain --contenders ours] [--seeds 3]
        [--budgets 1.0] [--shard 1/2] [--quick] [--kept] [--output bench/quality/RESULTS.md]

Each contender gets model, data, batch size, seed, budget and target, and trains in a process of its
own. The clocks start when these and its packages are there; its tuning and its validations count. All
validate after the same number of steps by the same metric. The plain script's rate is the best of a grid
(targets.json), whose cost is not counted: it is that much harder to beat. Who aims for the target is run
twice, until it is reached, and through the budget without it, for the quality in the end; the others'
one run tells both. Of a model the best validation counts, as one keeps the best weights.

What is done is kept in .outpace/quality, so that a run that was stopped, or made in shards, goes on:
--kept makes the tables of what is there. Contenders that are not installed are left out: pip install
'outpace[quality]'. Budgets are for two cores with nothing else on them; --budgets 2 gives all of them
twice as long, on a slower machine.

The score: median of the seeds, wall and CPU seconds; a run that did not get there counts twice its
budget. Speed-ups are geometric means over workloads; profile is AlgoPerf's score (Dahl et al. 2023): the
area under the share of workloads that are done within 1 to 4 times the shortest time. Quality: a
one-sided 95 % interval of the differences to the best other, seed by seed, held against what the plain
script's seeds differ by. Composer is left out: its last
release, 0.32.1, asks for torch < 2.7.1.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, missing
from kept import DATA, KEPT, Failed, answer
from plot import draw
from scores import ratios, run_of
from tables import Field, results, times_of
from targets import TARGETS
from workload import NAMES, TINY, load

from outpace.measure.machine import describe


def jobs_of(name: str, contender: str, seed: int, field: Field, data: Path) -> list[dict[str, Any]]:
    """The run that aims for the target, and the one through the budget; often the same."""
    job = {
        "work": name,
        "contender": contender,
        "seed": seed,
        "budget_s": field.budget_s,
        "target": None,
        "rate": field.entry["rate"],
        "steps": None,
        "data": str(data),
    }
    return [{**job, "target": field.entry["target"]}, job] if CONTENDERS[contender].aims else [job]


def add(
    field: Field, contender: str, seed: int, jobs: list[dict[str, Any]], options: argparse.Namespace
) -> str:
    """Run what is not kept yet, and take it in; a line about it."""
    answers = [answer(job, options.home, run=not options.kept) for job in jobs]
    aimed, whole = answers[0], answers[-1]
    if aimed is None or whole is None:
        return "not run yet"
    field.made_at += [each["at"] for each in answers if each is not None]
    found = run_of(
        aimed["curve"],
        whole["curve"],
        field.entry["target"],
        field.budget_s,
        larger=field.work.larger,
    )
    field.runs.setdefault(contender, {})[seed] = found
    field.curves.setdefault(contender, aimed["curve"])
    share = f"validations {aimed['judging_s']:.1f} of {aimed['wall_s']:.1f} s"
    field.notes.setdefault(contender, [*aimed["notes"], share])
    when = f"target after {found.wall_s:.1f} s" if found.reached else "target not reached"
    return f"{when}, final {found.final:.4g}"


def days(fields: Sequence[Field]) -> str:
    """When their answers were made: those that were kept may be of other days."""
    made = [date.fromtimestamp(at) for each in fields for at in each.made_at] or [date.today()]
    return f"{min(made)} to {max(made)}" if min(made) < max(made) else str(min(made))


def work_of(options: argparse.Namespace) -> Iterator[tuple[str, str, int]]:
    """Workload, contender and seed; all of a seed before the next, so that each has some early."""
    everything = [
        (name, contender, seed)
        for seed in range(options.seeds)
        for name in options.only or NAMES
        for contender in options.contenders or CONTENDERS
        if not missing(contender)
    ]
    part, _, parts = options.shard.partition("/")
    return iter(everything[int(part) - 1 :: int(parts)])


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=(*NAMES, TINY), help="a workload")
    parser.add_argument("--contenders", action="append", choices=CONTENDERS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budgets", type=float, default=1.0, help="times those of the workloads")
    parser.add_argument("--quick", action="store_true", help="one seed, a fifth of the budgets")
    parser.add_argument("--shard", default="1/1", help="part of the work, as 2/4")
    parser.add_argument("--kept", action="store_true", help="run nothing, tell what is kept")
    parser.add_argument("--data", type=Path, default=DATA, help="where data sets are kept")
    parser.add_argument("--home", type=Path, default=KEPT, help="where runs are kept")
    parser.add_argument("--targets", type=Path, default=TARGETS)
    parser.add_argument("--output", type=Path, help="a file for the tables, as RESULTS.md")
    parser.add_argument("--note", default="", help="on the machine, for the tables")
    options = parser.parse_args()
    options.data = options.data.absolute()
    if options.quick:
        options.seeds, options.budgets = 1, 0.2 * options.budgets
    return options


def main() -> None:
    """Run what is not kept yet, and write the tables."""
    options = arguments()
    targets = json.loads(options.targets.read_text())
    todo = list(work_of(options))
    fields: dict[str, Field] = {}
    for index, (name, contender, seed) in enumerate(todo):
        if name not in targets:
            print(f"{name} has no target: python bench/quality/targets.py --only {name}")
            continue
        work = load(name)
        field = fields.setdefault(name, Field(work, targets[name], options.budgets * work.budget_s))
        jobs = jobs_of(name, contender, seed, field, options.data)
        try:
            said = add(field, contender, seed, jobs, options)
        except (Failed, ValueError) as failed:
            field.failed[contender] = said = f"failed: {failed}"
        print(f"{index + 1} of {len(todo)}: {name}, {contender}, seed {seed}: {said}", flush=True)
    done = [field for field in fields.values() if field.runs or field.failed]
    how = (
        f"{describe().cpu}, {describe().cores} cores, {days(done)}: seeds up to {options.seeds}, "
        f"budgets times {options.budgets:g}. {options.note}".rstrip()
    )
    plots: list[str] = []
    if options.output is not None and any(field.runs for field in done):
        plots = draw(options.output.parent, done, ratios(times_of(done)))
    text = results(done, how, plots)
    if options.output is not None:
        options.output.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
