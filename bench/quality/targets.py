"""Fixes the learning rate and the target of each workload, and keeps them in targets.json.

    python bench/quality/targets.py [--only mnist] [--seeds 5] [--shard 1/2]

The plain script is run for a fixed number of steps, so that what comes out does not depend on how fast
a machine is: once with each rate of a grid, then from several seeds with the rate that had come
furthest after three quarters of the steps. The target is what the middle one of these seeds had reached
by then: what is left of the steps is for those that are later. The deviation of what they reach in the
end is the margin by which a contender's quality may fall short. Runs are kept in .outpace/quality.
"""

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

from contenders import PLAIN
from kept import DATA, HERE, KEPT, Failed, answer
from scores import best, early
from workload import NAMES, TINY, Workload, load

from outpace.measure.machine import describe

TARGETS = HERE / "targets.json"
RATES = (3e-4, 1e-3, 3e-3, 1e-2, 3e-2)
TRIED, FIRST = 100, 101
"""seeds: of the grid, and of the first run that sets the target"""
LONGEST_S = 1200.0
"""that a run may take"""


def job_of(name: str, work: Workload, rate: float, seed: int, data: Path) -> dict[str, Any]:
    """A run of the plain script to the end of its steps."""
    return {
        "work": name,
        "contender": PLAIN,
        "seed": seed,
        "budget_s": LONGEST_S,
        "target": None,
        "rate": rate,
        "steps": work.steps,
        "data": str(data),
    }


def fixed(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Of one workload. Raises Failed."""
    work = load(name)
    seeds = range(FIRST, FIRST + options.seeds)

    def curve(rate: float, seed: int) -> list[Any]:
        made = answer(job_of(name, work, rate, seed, options.data), options.home)
        assert made is not None
        value = early(made["curve"], work.steps, larger=work.larger)
        print(f"  rate {rate:g}, seed {seed}: {value:.4f} in {made['wall_s']:.0f} s", flush=True)
        seconds.append(made["wall_s"])
        return list(made["curve"])

    seconds: list[float] = []
    grid = {rate: early(curve(rate, TRIED), work.steps, larger=work.larger) for rate in RATES}
    rate = (max if work.larger else min)(grid, key=lambda each: grid[each])
    curves = {seed: curve(rate, seed) for seed in seeds}
    values = {s: early(of, work.steps, larger=work.larger) for s, of in curves.items()}
    finals = {s: best((p[3] for p in of), larger=work.larger) for s, of in curves.items()}
    return {
        "measure": work.measure,
        "target": statistics.median(values.values()),
        "margin": statistics.stdev(finals.values()),
        "rate": rate,
        "grid": {f"{each:g}": value for each, value in grid.items()},
        "seeds": {str(seed): {"early": values[seed], "final": finals[seed]} for seed in seeds},
        "steps": work.steps,
        "seconds": round(statistics.median(seconds), 1),
        "machine": describe().cpu,
    }


def main() -> None:
    """Fix those that are asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=(*NAMES, TINY), help="a workload")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shard", default="1/1", help="part of the workloads, as 2/4")
    parser.add_argument("--data", type=Path, default=DATA, help="where data sets are kept")
    parser.add_argument("--home", type=Path, default=KEPT, help="where runs are kept")
    parser.add_argument("--output", type=Path, default=TARGETS)
    options = parser.parse_args()
    options.data = options.data.absolute()
    part, _, parts = options.shard.partition("/")
    for name in (options.only or NAMES)[int(part) - 1 :: int(parts)]:
        print(name, flush=True)
        try:
            found = fixed(name, options)
        except Failed as failed:
            print(f"  failed: {failed}", flush=True)
            continue
        # Read again: another shard may have written meanwhile.
        before = json.loads(options.output.read_text()) if options.output.exists() else {}
        text = json.dumps({**before, name: found}, indent=2)
        options.output.write_text(text + "\n")
        print(f"  rate {found['rate']:g}, target {found['target']:.4f}", flush=True)


if __name__ == "__main__":
    main()
