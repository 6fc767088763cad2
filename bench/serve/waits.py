"""How long a step waits for its batch where it is a little slower than the loader.

    python bench/serve/waits.py [--data FOLDER] [--slower 1.05]

The loader's batches are drawn as fast as they come; then with a step that takes so many times as long
as a batch took, and does nothing else. Printed: the share of the time that was waited.
"""

import argparse
import contextlib
import time
from itertools import islice
from pathlib import Path

import outpace
from outpace.serve.crops import RandomCrop

IMAGES = Path(__file__).resolve().parents[2] / "examples" / "data" / "images"
BATCHES = 60


def endless(loader):
    while True:
        yield from loader


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=IMAGES)
    parser.add_argument("--slower", type=float, default=1.05)
    options = parser.parse_args()
    with contextlib.closing(outpace.Loader(options.data, 64, transform=RandomCrop(128))) as loader:
        batches = endless(loader)
        for _ in islice(batches, BATCHES):
            pass
        print(loader.choice.reason)
        for _ in range(3):
            begun = time.perf_counter()
            for _ in islice(batches, BATCHES):
                pass
            each = (time.perf_counter() - begun) / BATCHES
            waited, begun = 0.0, time.perf_counter()
            for _ in range(BATCHES):
                asked = time.perf_counter()
                next(batches)
                waited += time.perf_counter() - asked
                time.sleep(options.slower * each)
            share = waited / (time.perf_counter() - begun)
            print(
                f"{1e3 * each:.1f} ms a batch; {100 * share:.1f} % of the time waited", flush=True
            )


if __name__ == "__main__":
    main()
