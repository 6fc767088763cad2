"""What `outpace plan` says of another batch size and of a part left out, against what they take.

    python bench/changes.py [--only gpt_flash] [--batch 16]

Of each training in bench/models.py: the time of a step with half and with twice the batch, and of one
without a part of the model, all over the step as it is. The truth is timed in processes of their own,
which take turns, and are started twice: what the allocator keeps differs from process to process.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS
from outpace.records.files import read_json
from outpace.records.session import Session

SCRIPT = Path(__file__).parent / "models.py"
NEAR = 0.10
STARTS, TURNS = 2, 9
SCALES = {"batch_half": 0.5, "batch_double": 2.0}


def main() -> None:
    """Ask, time, and print a row each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--only", choices=MODELS)
    options = parser.parse_args()
    right = asked = 0
    print("training      change                    told   truth    off")
    for name in MODELS:
        if options.only not in (None, name):
            continue
        changes = predicted(name, options.batch)
        truths = measured(name, options.batch, list(changes))
        for change, told in changes.items():
            truth = truths[change]
            off = told / truth - 1
            right += abs(off) <= NEAR
            asked += 1
            print(
                f"{name:<12}  {change:<22} {told:>6.2f}x {truth:>6.2f}x {100 * off:>+5.0f} %",
                flush=True,
            )
    print(f"{right} of {asked} within {100 * NEAR:.0f} %")


def predicted(name: str, batch: int) -> dict[str, float]:
    """Times that a step takes as long with another batch, and without parts."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "outpace", "plan", "--json", "--quiet", "--steps", "1000000",
             str(SCRIPT), name, "--batch", str(batch), "--steps", "1000000"],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            sys.exit(done.stderr)
        session = read_json(Path(folder) / ".outpace" / "latest" / "session.json", Session)
    # What does not pay is no row of the plan: so the figures behind the rows.
    named = {f"without {part}": part for part in session.evidence.compute.parts}
    named |= {change: change for change in SCALES}
    return {
        named[arm.name]: 1 / arm.gain.speedup
        for arm in session.evidence.arms
        if arm.failed is None and arm.name in named
    }


def measured(name: str, batch: int, changes: list[str]) -> dict[str, float]:
    """The same, timed."""
    ratios = [one_start(name, batch, changes) for _ in range(STARTS)]
    return {change: statistics.geometric_mean(r[change] for r in ratios) for change in changes}


def one_start(name: str, batch: int, changes: list[str]) -> dict[str, float]:
    """How many times as long a step with each change takes, in the middle of some turns."""
    running = {change: process(name, batch, change) for change in ("as it is", *changes)}
    for each in running.values():
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    turns = [{change: turn(each) for change, each in running.items()} for _ in range(TURNS)]
    for each in running.values():
        each.communicate()
    return {c: statistics.median(t[c] / t["as it is"] for t in turns) for c in changes}


def process(name: str, batch: int, change: str) -> subprocess.Popen[str]:
    """A training with a change, which waits for its turn."""
    command = [sys.executable, str(SCRIPT), name, "--turns"]
    if change in SCALES:
        command += ["--batch", str(round(SCALES[change] * batch))]
    else:
        command += ["--batch", str(batch), *([] if change == "as it is" else ["--without", change])]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def turn(running: subprocess.Popen[str]) -> float:
    """Seconds of a step, in one turn."""
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write("\n")
    running.stdin.flush()
    return float(running.stdout.readline())


if __name__ == "__main__":
    main()
