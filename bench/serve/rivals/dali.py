"""DALI on the CPU, its own decoder: it cuts while it decodes. 984 MB, so it is in no extra:
pip install nvidia-dali-cuda120.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kit
import torch
from workloads import WORKLOADS, Workload

TITLE = "DALI on the CPU, own decoder"
PACKAGES = ["nvidia.dali"]
GRID = [{"threads": threads} for threads in (1, 2, 4)]
WITHOUT = {w.name: "images are what it is for" for w in WORKLOADS.values() if w.dtype}


def read(paths: list[str], work: Workload) -> tuple[Any, Any]:
    """A batch and its samples' numbers, in a pipeline."""
    from nvidia.dali import fn

    numbers = list(range(len(paths)))
    data, number = fn.readers.file(
        files=paths, labels=numbers, shuffle_after_epoch=True, name="samples"
    )
    if work.change is kit.jpeg:
        whole = {"random_area": [0.08, 1.0], "random_aspect_ratio": [3 / 4, 4 / 3]}
        x = fn.resize(fn.decoders.image_random_crop(data, **whole), size=[kit.SIZE, kit.SIZE])
    else:
        left, top = fn.random.uniform(range=[0, 1]), fn.random.uniform(range=[0, 1])
        patch = {"crop": [kit.PATCH, kit.PATCH], "crop_pos_x": left, "crop_pos_y": top}
        x = fn.crop(fn.decoders.image(data), **patch)
    return fn.flip(x, horizontal=fn.random.coin_flip()), number


def batches(work: Workload, folder: Path, epochs: int | None, threads: int) -> Iterator[kit.Batch]:
    from nvidia.dali import pipeline_def
    from nvidia.dali.plugin.pytorch import DALIGenericIterator, LastBatchPolicy

    paths = [str(path) for path in work.raw(folder).paths]
    make = pipeline_def(read, batch_size=work.batch, num_threads=threads, device_id=None)
    whole = {"reader_name": "samples", "last_batch_policy": LastBatchPolicy.PARTIAL}
    loader = DALIGenericIterator([make(paths, work)], ["x", "id"], auto_reset=True, **whole)
    labels = torch.from_numpy(work.labels)
    for (batch,) in kit.again(loader, epochs):
        number = batch["id"].flatten().long()
        yield batch["x"], labels[number], number
