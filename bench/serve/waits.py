"""How long a step waits for its batch where it is a little slower than the loader.

    python bench/serve/waits.py [--data FOLDER] [--slower 1.05] [--rounds 6]

The loader's batches are drawn as fast as they come; then with a step that takes so many times as long
as a batch took, and does nothing else; then as fast as they come once more. Printed: the share of the
time that was waited, and how much slower than the loader the step really was, by what a batch took before
and after: the machine's speed changes meanwhile.
"""

import argparse
import contextlib
import time
from itertools import islice
from pathlib import Path
from statistics import median

import outpace
from outpace.serve.crops import RandomCrop

IMAGES = Path(__file__).resolve().parents[2] / "examples" / "data" / "images"
WARM, ALONE, STEPS = 150, 150, 300
"""batches: before anything is timed, as fast as they come, and with a step"""


def endless(loader):
    while True:
        yield from loader


def each_s(batches):
    """Seconds of a batch, as fast as they come."""
    begun = time.perf_counter()
    for _ in islice(batches, ALONE):
        pass
    return (time.perf_counter() - begun) / ALONE


def waited(batches, step_s):
    """Share of the time that a step waits."""
    seconds, begun = 0.0, time.perf_counter()
    for _ in range(STEPS):
        asked = time.perf_counter()
        next(batches)
        seconds += time.perf_counter() - asked
        time.sleep(step_s)
    return seconds / (time.perf_counter() - begun)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=IMAGES)
    parser.add_argument("--slower", type=float, default=1.05)
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    found = []
    with contextlib.closing(outpace.Loader(options.data, 64, transform=RandomCrop(128))) as loader:
        batches = endless(loader)
        for _ in islice(batches, WARM):
            pass
        print(f"{loader.choice.workers} {loader.choice.kind}: {loader.choice.reason}")
        before = each_s(batches)
        for _ in range(options.rounds):
            step_s = options.slower * before
            share = waited(batches, step_s)
            after = each_s(batches)
            really = 2 * step_s / (before + after)
            print(
                f"{1e3 * before:.1f} ms a batch, then {1e3 * after:.1f}: a step {really:.2f} times as "
                f"long waited {100 * share:.1f} % of the time",
                flush=True,
            )
            found.append(share)
            before = after
    print(f"in the median {100 * median(found):.1f} %")


if __name__ == "__main__":
    main()
