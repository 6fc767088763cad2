"""DataLoader as an expert writes it: simplejpeg, and arrays sliced a batch at a time."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kit
from torch.utils.data import DataLoader
from workloads import Workload

TITLE = "DataLoader + kit"
PACKAGES = ["simplejpeg"]


def batches(
    work: Workload, folder: Path, epochs: int | None, workers: int, loader: Any = DataLoader
) -> Iterator[kit.Batch]:
    take = partial(work.taken, work.raw(folder))
    return kit.again(kit.drawn(take, work.count, work.batch, workers, loader), epochs)
