"""Memory of a loader with many samples, epoch after epoch: python bench/serve/soak.py [--as packed]

A million paths, four worker processes, three epochs: the proportional set size of the process and its
workers after each. Once kept as `outpace` keeps paths, once as a list of strings, whose pages forked
workers copy as they read.
"""

import argparse

import numpy as np
import psutil

import outpace
from outpace.serve.strings import PackedStrings

PATH = "/data/some/long/folder/class-{:04d}/image-{:08d}.jpg"


class Paths:
    """The last bytes of each path."""

    def __init__(self, names):
        self.names = names

    def __len__(self):
        return len(self.names)

    def __getitem__(self, index):
        return np.frombuffer(self.names[index].encode(), np.uint8)[-12:].copy()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--as", dest="kinds", choices=("packed", "list"), action="append")
    parser.add_argument("--paths", type=int, default=1_000_000)
    parser.add_argument("--epochs", type=int, default=3)
    options = parser.parse_args()
    for kind in options.kinds or ("packed", "list"):
        names = (PATH.format(i % 1000, i) for i in range(options.paths))
        source = Paths(PackedStrings(names) if kind == "packed" else list(names))
        loader = outpace.Loader(source, 1024, executor="processes", workers=4)
        sizes = []
        for _ in range(options.epochs):
            for number, _ in enumerate(loader):
                if number == 20 and not sizes:
                    sizes.append(held())
            sizes.append(held())
        loader.close()
        told = ", ".join(f"{size:.0f}" for size in sizes)
        print(f"{kind}: {told} MiB, {100 * (sizes[-1] / sizes[0] - 1):+.1f} %", flush=True)


def held():
    process = psutil.Process()
    each = [process, *process.children(recursive=True)]
    return sum(one.memory_full_info().pss for one in each) / 2**20


if __name__ == "__main__":
    main()
