"""SPDL: threads, a batch at a time (sample by sample it is slower). Reads files as they are."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import kit
import numpy as np
from workloads import Workload

TITLE = "SPDL"
PACKAGES = ["spdl.pipeline", "simplejpeg"]
GRID = [{"threads": threads} for threads in (1, 2, 4)]


def orders(work: Workload, epochs: int | None) -> Iterator[np.ndarray]:
    """Indices of batches."""
    for _ in kit.again([None], epochs):
        order = np.random.default_rng().permutation(work.count)
        yield from np.split(order, range(work.batch, work.count, work.batch))


def batches(work: Workload, folder: Path, epochs: int | None, threads: int) -> Iterator[kit.Batch]:
    from spdl.pipeline import PipelineBuilder

    take = partial(work.taken, work.raw(folder))
    builder = PipelineBuilder().add_source(orders(work, epochs))
    pipeline = builder.pipe(take, concurrency=threads).add_sink(4).build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline
