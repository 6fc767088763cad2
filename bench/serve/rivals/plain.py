"""DataLoader as it is usually written: Pillow for images, arrays and tables row by row."""

import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kit
import numpy as np
from torch.utils.data import DataLoader, Dataset
from workloads import Workload

TITLE = "DataLoader, as usual"
PACKAGES = ["PIL"]


class Samples(Dataset[Any]):
    """Sample by sample."""

    def __init__(self, work: Workload, folder: Path) -> None:
        self.raw, self.change = (
            work.raw(folder),
            by_pillow if work.change is kit.jpeg else work.change,
        )

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> kit.Sample:
        data, label, number = self.raw[index]
        return self.change(data, random), label, number


def by_pillow(data: bytes, rng: Any) -> np.ndarray:
    """A JPEG decoded, cut and flipped."""
    from PIL import Image

    image = Image.open(io.BytesIO(data)).convert("RGB")
    image = image.crop(kit.box(image.height, image.width, rng))
    image = image.resize((kit.SIZE, kit.SIZE), Image.Resampling.BILINEAR)
    if rng.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.array(image)


def batches(work: Workload, folder: Path, epochs: int | None, workers: int) -> Iterator[kit.Batch]:
    samples = Samples(work, folder)
    return kit.again(DataLoader(samples, work.batch, shuffle=True, **kit.kept(workers)), epochs)
