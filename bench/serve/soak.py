"""Memory of a loader with many samples, epoch after epoch: python bench/serve/soak.py [--as packed]

A million paths, four worker processes, three epochs: the memory of the process and its
workers after each, against that after the first 20 batches. Once kept as `outpace` keeps paths, once as a
list of strings, whose pages forked workers copy as they read. Then batches of 24 MiB from four workers
with a /dev/shm of 64 MiB, in a mount namespace of its own (`unshare -rm`), where that is allowed.
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil

import outpace
from outpace.serve.strings import PackedStrings

PATH = "/data/some/long/folder/class-{:04d}/image-{:08d}.jpg"
WARM = 20
MOST = 5.0
"""per cent that the memory may grow by"""
SMALL = "mount -t tmpfs -o size=64m tmpfs /dev/shm && exec"


class Paths:
    """The last bytes of each path."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return np.frombuffer(self.names[index].encode(), np.uint8)[-12:].copy()


class Large:
    """Samples of 3 MiB."""

    def __len__(self):
        return 400

    def __getitem__(self, index):
        return np.full(3 << 20, index % 256, np.uint8)


def grown(kind, count, epochs):
    """Per cent by which the memory grew."""
    names = (PATH.format(i % 1000, i) for i in range(count))
    source = Paths(PackedStrings(names) if kind == "packed" else list(names))
    loader = outpace.Loader(source, 1024, executor="processes", workers=4)
    sizes = []
    for _ in range(epochs):
        for number, _ in enumerate(loader):
            if number == WARM and not sizes:
                sizes.append(held())
        sizes.append(held())
    loader.close()
    growth = 100 * (max(sizes[1:]) / sizes[0] - 1)
    told = ", ".join(f"{size:.0f}" for size in sizes)
    print(f"{kind}: {told} MiB, at most {growth:+.1f} %", flush=True)
    return growth


def held():
    """MiB of this process and all that it started; what they share counts once.

    Not of files, torch's libraries for one: their share depends on who else on the machine maps them.
    """
    this = psutil.Process()
    kib = 0
    for process in (this, *this.children(recursive=True)):
        for line in Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines():
            name, _, size = line.partition(":")
            kib += int(size.split()[0]) if name in ("Pss_Anon", "Pss_Shmem") else 0
    return kib / 1024


def drawn():
    """All of the large samples, in whatever shared memory there is."""
    loader = outpace.Loader(Large(), 8, executor="processes", workers=4, shuffle=False)
    firsts = [int(row[-1]) for batch in loader for row in batch]
    loader.close()
    assert firsts == [index % 256 for index in range(400)], "other samples than there are"
    print(f"large batches: all drawn; {'; '.join(loader.notes)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="kinds", choices=("packed", "list", "large"), action="append")
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    for kind in options.kinds or ("packed", "list"):
        growth = drawn() if kind == "large" else grown(kind, options.paths, options.epochs)
        if kind == "packed" and growth >= MOST:
            sys.exit(f"memory grew by {growth:.1f} %, {MOST:.0f} may be")
    if options.kinds:
        return
    if subprocess.run(["unshare", "-rm", "true"], check=False).returncode:
        print("large batches: not tried, /dev/shm cannot be made small here")
        return
    again = [*SMALL.split(), sys.executable, __file__, "--as", "large"]
    subprocess.run(["unshare", "-rm", "sh", "-c", " ".join(again)], check=True)


if __name__ == "__main__":
    main()
