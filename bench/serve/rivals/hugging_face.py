"""Hugging Face datasets: Arrow on disk, mapped into memory, taken by batches of a DataLoader."""

import random
from collections.abc import Iterator
from pathlib import Path

import kit
import numpy as np
from workloads import Rows, Workload

TITLE = "Hugging Face datasets"
PACKAGES = ["datasets", "simplejpeg"]
COLUMNS = ("data", "label", "id")


def convert(work: Workload, source: Path, folder: Path) -> None:
    from datasets import Dataset, Features, Sequence, Value

    raw = work.raw(source)
    data = Value("binary") if work.dtype is None else Sequence(Value(work.dtype), work.size[0])
    features = Features(dict(zip(COLUMNS, (data, Value("int64"), Value("int64")), strict=True)))
    columns = (
        (np.asarray(raw.x), raw.labels, raw.ids)
        if isinstance(raw, Rows)
        else [*zip(*raw, strict=True)]
    )
    rows = dict(zip(COLUMNS, columns, strict=True))
    Dataset.from_dict(rows, features=features).save_to_disk(str(folder))


def batches(work: Workload, folder: Path, epochs: int | None, workers: int) -> Iterator[kit.Batch]:
    from datasets import load_from_disk

    stored = load_from_disk(str(folder))
    stored = stored if work.dtype is None else stored.with_format("numpy")

    def take(indices: list[int]) -> kit.Batch:
        rows = stored[indices]
        x, change = rows["data"], work.change
        changed = change(x, None) if work.sliced else [change(data, random) for data in x]
        return kit.put_together(changed, rows["label"], rows["id"])

    return kit.again(kit.drawn(take, work.count, work.batch, workers), epochs)
