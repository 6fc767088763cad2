"""Whole runs of the examples: `outpace run` under a recipe against plain python, in pairs.

    python bench/end_to_end.py [--recipes DIR] [--pairs 3] [--only flights.py]

DIR (.outpace/recipes) holds a recipe NAME.toml for each example (`outpace tune --recipe DIR/flights.toml
examples/flights.py`); one that is missing is made. Each pair runs A B, the next B A; same epochs,
start-up included. Printed: wall and CPU seconds, and their ratios with intervals.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from paired import EXAMPLES, ROOT, Spent, ratio, spend


def main() -> None:
    """Run the pairs and print a row an example."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipes", type=Path, default=ROOT / ".outpace" / "recipes")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", choices=EXAMPLES)
    options = parser.parse_args()
    options.recipes = options.recipes.absolute()
    options.recipes.mkdir(parents=True, exist_ok=True)
    for name, args in EXAMPLES.items():
        if options.only not in (None, name):
            continue
        script = ROOT / "examples" / name
        recipe = options.recipes / f"{script.stem}.toml"
        if not recipe.exists():
            spend(
                [sys.executable, "-m", "outpace", "tune", "--recipe", str(recipe), str(script)],
                ROOT,
            )
        if not recipe.exists():
            print(f"{name}: no recipe pays here")
            continue
        with tempfile.TemporaryDirectory() as folder:
            report(name, run_pairs(script, args, recipe, Path(folder), options.pairs))


def run_pairs(
    script: Path, args: list[str], recipe: Path, cwd: Path, pairs: int
) -> tuple[list[Spent], list[Spent]]:
    """Plain and tuned runs, their order turned about each time."""
    plain: list[Spent] = []
    tuned: list[Spent] = []
    commands = (
        (plain, [sys.executable, str(script), *args]),
        (
            tuned,
            [sys.executable, "-m", "outpace", "run", "--recipe", str(recipe), str(script), *args],
        ),
    )
    for index in range(pairs):
        for spent, command in commands if index % 2 == 0 else reversed(commands):
            spent.append(spend(command, cwd))
    return plain, tuned


def report(name: str, runs: tuple[list[Spent], list[Spent]]) -> None:
    """One row."""
    plain, tuned = runs
    for clock in ("wall", "cpu"):
        old = [getattr(s, clock) for s in plain]
        new = [getattr(s, clock) for s in tuned]
        seconds = f"{sorted(old)[len(old) // 2]:.1f} -> {sorted(new)[len(new) // 2]:.1f} s"
        print(f"{name:<22} {clock:<4} {seconds:<18} {ratio(old, new)}", flush=True)


if __name__ == "__main__":
    main()
