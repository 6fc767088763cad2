"""How good the forecast of a running training is: `outpace run --deadline` on the examples.

    python bench/forecast.py [--only mnist_cnn.py] [--hog] [--runs 2] [--output told.jsonl]

Each example runs to its end, some five minutes; what was forecast on the way is compared with when it then
ended: after 1 % and 5 % of its steps, and, for how often the interval held the truth, at each tenth.
Beside it how much slower its first 5 % were than all of it: a machine that changes its speed later is
not to be foreseen. Files are read once before, so that the first epoch is not their first reading.
With --hog another process takes a core for half of every few seconds, by chance.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from paired import EXAMPLES, ROOT

LENGTHS = {
    "image_classifier.py": ["--epochs", "40"],
    "char_gpt.py": ["--steps", "3200"],
    "flights.py": ["--epochs", "66"],
    "mnist_cnn.py": ["--epochs", "60"],
}
LOOK_S = 0.1
HOG = "import time\nend = time.time() + {seconds}\nwhile time.time() < end: pass"


class Told(NamedTuple):
    """A forecast: share of the steps done, seconds since the begin, and the whole run's."""

    share: float
    at: float
    estimate: float
    low: float
    high: float


def main() -> None:
    """Run them, print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=EXAMPLES)
    parser.add_argument("--hog", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, help="add all that was forecast, a line for each run"
    )
    options = parser.parse_args()
    for file in (ROOT / "examples" / "data").rglob("*.jpg"):
        file.read_bytes()
    held: list[bool] = []
    early: dict[float, list[float]] = {0.01: [], 0.05: []}
    print("script               took     at 1 %   at 5 %   first 5 %  interval held at tenths")
    for name in EXAMPLES:
        if options.only not in (None, name):
            continue
        for _ in range(options.runs):
            took, told = watched(name, hog=options.hog)
            if options.output:
                keep(options.output, name, took, told)
            errors = {at: first(told, at).estimate / took - 1 for at in early}
            for at, error in errors.items():
                early[at].append(abs(error))
            inside = [first(told, i / 10) for i in range(1, 10)]
            right = [each.low <= took <= each.high for each in inside]
            held += right
            print(
                f"{name:<20} {took:>5.0f} s  {100 * errors[0.01]:>+6.1f} %  "
                f"{100 * errors[0.05]:>+6.1f} %  {100 * slower(told, took):>+7.1f} %  "
                f"{sum(right)} of {len(right)}",
                flush=True,
            )
    print(
        f"median error {100 * median(early[0.01]):.1f} % after 1 %, "
        f"{100 * median(early[0.05]):.1f} % after 5 %; intervals held {sum(held)} of {len(held)}"
    )


def keep(path: Path, name: str, took: float, told: list[Told]) -> None:
    """Add a run's forecasts to a file."""
    line = {"script": name, "took_s": took, "told": [each._asdict() for each in told]}
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def first(told: list[Told], share: float) -> Told:
    """The first forecast after a share of the steps."""
    return next((each for each in told if each.share >= share), told[-1])


def slower(told: list[Told], took: float, share: float = 0.05) -> float:
    """How many times longer a step of the first part was than one of the whole run, less one."""
    begin, early = told[0], first(told, share)
    of_the_part = (early.at - begin.at) / max(1e-9, early.share - begin.share)
    return of_the_part / ((took - begin.at) / (1 - begin.share)) - 1


def watched(name: str, *, hog: bool) -> tuple[float, list[Told]]:
    """How long a run took, and what was told of it meanwhile."""
    told: list[Told] = []
    with tempfile.TemporaryDirectory() as folder:
        session = Path(folder) / "session"
        command = [sys.executable, "-m", "outpace", "run", "--deadline", "10h", "--quiet",
                   "--session", str(session), str(ROOT / "examples" / name),
                   *LENGTHS[name], "--out", str(Path(folder) / "model.pt")]  # fmt: skip
        begun = time.perf_counter()
        child = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        chance, hogs_next, hogs = random.Random(0), 0.0, []
        while child.poll() is None:
            time.sleep(LOOK_S)
            if hog and time.perf_counter() > hogs_next:
                seconds = chance.uniform(0.5, 8.0)
                hogs.append(subprocess.Popen([sys.executable, "-c", HOG.format(seconds=seconds)]))
                hogs_next = time.perf_counter() + 2 * seconds
            progress = read(session / "progress.json")
            if progress and progress["finish_s"] and progress["of"]:
                found = {k: progress["elapsed_s"] + v for k, v in progress["finish_s"].items()}
                share = progress["steps"] / progress["of"]
                told.append(Told(share, progress["elapsed_s"], **found))
        took = time.perf_counter() - begun
        for each in hogs:  # else they would slow the next run's beginning
            each.kill()
            each.wait()
        if child.returncode != 0 or not told:
            sys.exit(f"{name} ended with {child.returncode}: {child.communicate()[1]}")
    return took, told


def read(path: Path) -> dict[str, Any]:
    """What the run told last; empty while it told nothing."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    main()
