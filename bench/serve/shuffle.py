"""How well `outpace.Loader` shuffles data that lie sorted by class, in every format that it reads.

    python bench/serve/shuffle.py [--data FOLDER]

Printed for each: distinct classes in a batch, as a share of what a perfect shuffle would give. LitData's
chunks and Hugging Face's rows are written by their own packages, and told of where these are not installed.
"""

import argparse
import contextlib
import tarfile
import tempfile
from pathlib import Path

from rivals import load, missing
from workloads import WORKLOADS

import outpace
from outpace.serve.doctor import shuffle_score
from outpace.serve.pack import pack

BATCH = 64
LEAST = 0.95
FIELDS = ("cls", "label")
"""where a sample has its class"""
OTHERS = ("litdata", "hugging_face")
"""rivals whose formats are read"""
SHARDS = 16


def label(batch):
    return next(batch[name] for name in FIELDS if name in batch)


def cut(samples):
    """Of a batch as it is, the class alone: sounds and images are not looked at."""
    return {"label": [label(sample) for sample in samples]}


def tars(files, folder):
    """Of a folder of files, in their order."""
    folder.mkdir()
    paths = sorted(files.glob("*/*"))
    each = -(-len(paths) // SHARDS)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:02}.tar", "w") as tar:
            for path in paths[shard * each : (shard + 1) * each]:
                tar.add(path, path.relative_to(files))


def sources(data):
    """Format -> what the Loader is given; or why it is not there."""
    sound, table = (WORKLOADS[name].quick() for name in ("audio", "csv"))
    files, rows = sound.source(data), table.source(data)
    found = {"files": files, "csv": rows / table.file}
    found["tars"] = data / "shuffle-tars"
    if not found["tars"].exists():
        tars(files, found["tars"])
    stores = {
        "records": (files, "records"),
        "tars with an index": (found["tars"], "index"),
        "table": (rows / table.file, "table"),
    }
    for name, (source, kind) in stores.items():
        found[name] = data / f"shuffle-{kind}"
        if not found[name].exists():
            pack(source, found[name], kind)
    raw = sound.raw(files)
    found["arrays"] = data / "shuffle-arrays"
    if not found["arrays"].exists():
        pack([{"x": x[:1], "label": of} for x, of, _ in raw], found["arrays"], "arrays")
    for name in OTHERS:
        rival, folder = load(name), data / f"shuffle-{name}"
        if absent := missing(rival):
            found[rival.TITLE] = f"not installed: {', '.join(absent)}"
            continue
        if not folder.exists():
            folder.mkdir()
            rival.convert(sound, files, folder)
        found[rival.TITLE] = folder
    return found


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    home = Path(tempfile.gettempdir(), "outpace-bench-serve")
    parser.add_argument("--data", type=Path, default=home)
    for name, source in sources(parser.parse_args().data.absolute()).items():
        if isinstance(source, str):
            print(f"{name}: {source}")
            continue
        loader = outpace.Loader(source, BATCH, collate=cut, executor="none")
        with contextlib.closing(loader):
            found = shuffle_score(loader, label=label)
        told = "" if found.share >= LEAST else f", less than {LEAST:.0%}"
        print(f"{name}: {found.share:.1%} of perfect{told}")


if __name__ == "__main__":
    main()
