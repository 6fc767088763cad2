"""Memory that `outpace plan --memory` predicts against what the allocator then holds.

    python bench/memory.py [--batch 16] [--times 3] [--only gpt_flash]

Each of the ten trainings in bench/models.py is looked at with one batch size; predicted is the peak of
a step with so many times as large a one, which is then run and measured by torch's profiler.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from models import MODELS

SCRIPT = Path(__file__).parent / "models.py"


def main() -> None:
    """Predict, measure, and print a row a training."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--only", choices=MODELS)
    options = parser.parse_args()
    names = [name for name in MODELS if options.only in (None, name)]
    large = options.times * options.batch
    right = 0
    print(f"training       at {options.batch:>4}   off     at {large:>4}   off   (MB predicted)")
    for name in names:
        row, errors = [], []
        for batch in (options.batch, large):
            told = predicted(name, options.batch, batch)
            error = told / measured(name, batch) - 1
            errors.append(abs(error))
            row.append(f"{told / 1e6:>8.1f} {100 * error:>+5.1f} %")
        right += max(errors) <= 0.02
        print(f"{name:<12} {'  '.join(row)}", flush=True)
    print(f"{right} of {len(names)} within 2 %")


def predicted(name: str, batch: int, asked: int) -> int:
    """Bytes of a step with ``asked`` samples, as told of a training with ``batch``."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", "outpace", "plan", "--memory", "--json", "--quiet", "--batch",
             str(asked), str(SCRIPT), name, "--batch", str(batch)],
            cwd=folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
    if done.returncode != 0:
        sys.exit(done.stderr)
    return int(json.loads(done.stdout)["memory"]["peak_bytes"])


def measured(name: str, batch: int) -> int:
    """Bytes that the allocator holds at the peak of a step."""
    done = subprocess.run(
        [sys.executable, str(SCRIPT), name, "--batch", str(batch), "--measure"],
        env={**os.environ, "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return int(done.stdout.split()[-1])


if __name__ == "__main__":
    main()
