"""What `outpace plan` says of another batch size and of a part left out, against what they take.

    python bench/changes.py [--only gpt_flash] [--batch 16]

Of each training in bench/models.py: the time of a step with half and with twice the batch, and of one
without a part of the model, all over the step as it is. The truth is timed by the script itself, in turns.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS
from outpace.records.files import read_json
from outpace.records.session import Session

SCRIPT = Path(__file__).parent / "models.py"
NEAR = 0.10


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
        for change, told in predicted(name, options.batch).items():
            truth = measured(name, options.batch, change)
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
    named |= {f"batch_{size}": f"batch_{size}" for size in ("half", "double")}
    return {
        named[arm.name]: 1 / arm.gain.speedup
        for arm in session.evidence.arms
        if arm.failed is None and arm.name in named
    }


def measured(name: str, batch: int, change: str) -> float:
    """The same, timed."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--batch", str(batch), "--times", change],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return float(done.stdout)


if __name__ == "__main__":
    main()
