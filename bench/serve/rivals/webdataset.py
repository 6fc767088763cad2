"""WebDataset: tar shards, shuffled among themselves and through a buffer of 1,000 samples."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kit
import numpy as np
from workloads import Workload

TITLE = "WebDataset"
PACKAGES = ["webdataset", "simplejpeg"]
WITHOUT = dict.fromkeys(("csv", "parquet"), "tars are not for tables")
SHARDS = 16
BUFFER = 1000


def convert(work: Workload, source: Path, folder: Path) -> None:
    import webdataset as wds

    raw = work.raw(source)
    with wds.ShardWriter(f"{folder}/%04d.tar", maxcount=-(-work.count // SHARDS)) as sink:
        for index in range(len(raw)):
            data, label, number = raw[index]
            data = data if work.dtype is None else data.tobytes()
            sink.write({"__key__": f"{number:06d}", "bin": data, "cls": str(label).encode()})


def batches(work: Workload, folder: Path, epochs: int | None, workers: int) -> Iterator[kit.Batch]:
    import webdataset as wds

    def changed(sample: dict[str, Any]) -> kit.Sample:
        data = sample["bin"] if work.dtype is None else np.frombuffer(sample["bin"], work.dtype)
        return work.change(data, random), int(sample["cls"]), int(sample["__key__"])

    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    samples = wds.WebDataset(shards, shardshuffle=SHARDS).shuffle(BUFFER).map(changed)
    samples = samples.batched(work.batch, collation_fn=kit.collated)
    return kit.again(wds.WebLoader(samples, batch_size=None, **kit.kept(workers)), epochs)
