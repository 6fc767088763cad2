"""StatefulDataLoader of torchdata, over the data sets of the expert's DataLoader."""

from collections.abc import Iterator
from pathlib import Path

import kit
from workloads import Workload

from rivals import dataloader

TITLE = "StatefulDataLoader + kit"
PACKAGES = ["torchdata", "simplejpeg"]


def batches(work: Workload, folder: Path, epochs: int | None, workers: int) -> Iterator[kit.Batch]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    return dataloader.batches(work, folder, epochs, workers, StatefulDataLoader)
