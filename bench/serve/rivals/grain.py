"""Grain, with threads or processes: images and sounds from its own ArrayRecord files, the rest by
batches of indices, as reading row by row is many times slower.
"""

import pickle
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kit
from workloads import Workload

TITLE = "Grain"
PACKAGES = ["grain", "array_record", "simplejpeg"]
GRID = [{"threads": t, "workers": w} for t, w in ((1, 0), (2, 0), (4, 0), (1, 1), (1, 2))]
FILE = "samples.array_record"


def convert(work: Workload, source: Path, folder: Path) -> None:
    if work.sliced:
        shutil.copytree(source, folder, dirs_exist_ok=True)
        return
    from array_record.python.array_record_module import ArrayRecordWriter

    # A group is one record: so random access wants it.
    writer = ArrayRecordWriter(str(folder / FILE), "group_size:1")
    raw = work.raw(source)
    for index in range(len(raw)):
        writer.write(pickle.dumps(raw[index]))
    writer.close()


def batches(
    work: Workload, folder: Path, epochs: int | None, threads: int, workers: int
) -> Iterator[kit.Batch]:
    import grain

    def changed(record: bytes, rng: Any) -> kit.Sample:
        data, label, number = pickle.loads(record)
        return work.change(data, rng), label, number

    if work.sliced:
        samples = grain.MapDataset.range(work.count).seed(0).shuffle().repeat(epochs)
        samples = samples.batch(work.batch).map(partial(work.arrays, work.raw(folder)))
    else:
        source = grain.sources.ArrayRecordDataSource(str(folder / FILE))
        samples = grain.MapDataset.source(source).seed(0).shuffle().random_map(changed)
        samples = samples.repeat(epochs).batch(work.batch)
    reading = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    samples = samples.to_iter_dataset(reading)
    if workers:
        samples = samples.mp_prefetch(grain.MultiprocessingOptions(num_workers=workers))
    for batch in samples:
        yield kit.put_together(*batch)
