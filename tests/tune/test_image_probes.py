from __future__ import annotations

import io
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from outpace.records.input import Images
from outpace.seams.decode import DecodeSeam
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loader_record import Record
from outpace.seams.setup import AS_IS
from outpace.tune.image_probes import probe_images, with_scaled
from tests.remedies.trainings import hosted

FOUND = Images(0.004, 1.0, 76_800.0, True, 1.5)


@pytest.fixture
def photographs(tmp_path: Path) -> list[Path]:
    maker = np.random.default_rng(0)
    paths = [tmp_path / f"{index}.jpg" for index in range(12)]
    for path in paths:
        small = Image.fromarray(maker.integers(0, 255, (24, 32, 3), dtype=np.uint8))
        small.resize((1280, 960), Image.Resampling.BICUBIC).save(path, quality=90)
    return paths


class Crops:
    """Crops of so many pixels at random, brought to so many."""

    def __init__(self, paths: list[Path], crop: int, size: int) -> None:
        self.paths, self.crop, self.size = paths, crop, size

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = Image.open(self.paths[index]).convert("RGB")
        left, top = random.randrange(100), random.randrange(100)
        image = image.crop((left, top, left + self.crop, top + self.crop))
        return torch.from_numpy(np.array(image.resize((self.size, self.size))))


def probed(dataset: Any, host: Host) -> Images:
    seam: Any = host.seam(DecodeSeam)
    host.told.makes(Record(trains=True))
    return with_scaled(FOUND, DataLoader(dataset, batch_size=2), seam)


def test_large_crops_for_a_small_input(photographs: list[Path]) -> None:
    with hosted() as host:
        before = random.getstate()
        found = probed(Crops(photographs, 800, 64), host)
        assert random.getstate() == before
        assert Image.open(photographs[0]).convert("RGB").resize((9, 9)).size == (9, 9)
        assert host.seam(DecodeSeam).setup == AS_IS  # type: ignore[union-attr]
    assert found.scaled_share == 1.0
    assert found.scaled_saves_s > 0
    assert 0 < found.scaled_levels < 64


def test_crops_that_need_all_of_their_pixels(photographs: list[Path]) -> None:
    with hosted() as host:
        assert probed(Crops(photographs, 100, 64), host) == FOUND


def test_a_data_set_that_only_its_workers_can_draw_from(photographs: list[Path]) -> None:
    class Broken(Crops):
        def __getitem__(self, index: int) -> torch.Tensor:
            raise RuntimeError("the file is opened by workers")

    with hosted() as host:
        assert probed(Broken(photographs, 800, 64), host) == FOUND


def test_other_images_are_no_jpegs(photographs: list[Path]) -> None:
    kept = io.BytesIO()
    Image.open(photographs[0]).save(kept, "PNG")

    class Drawings(Crops):
        def __getitem__(self, index: int) -> torch.Tensor:
            image = Image.open(io.BytesIO(kept.getvalue())).convert("RGB")
            return torch.from_numpy(np.array(image.resize((32, 32))))

    with hosted() as host:
        assert probed(Drawings(photographs, 800, 64), host) == FOUND


class Opened(Crops):
    """Its images come as ``ImageFolder`` has them, or out of an archive."""

    def __init__(self, paths: list[Path], *, memory: bool) -> None:
        super().__init__(paths, 800, 64)
        self.memory = memory

    def __getitem__(self, index: int) -> torch.Tensor:
        with self.paths[index].open("rb") as file:
            image = Image.open(io.BytesIO(file.read()) if self.memory else file)
            return torch.from_numpy(np.array(image.convert("RGB")))


@pytest.mark.parametrize(("memory", "share"), [(False, 1.0), (True, 0.0)])
@pytest.mark.parametrize("seen", [True, False])
def test_images_that_are_not_opened_by_their_paths_are_looked_at(
    photographs: list[Path], memory: bool, share: float, seen: bool
) -> None:
    """``seen``: while the script trained; else in its workers, and some are drawn anew."""
    dataset = Opened(photographs, memory=memory)
    with hosted() as host:
        loader = DataLoader(dataset, batch_size=2)
        record = Record(trains=True)
        host.seam(LoaderSeam).records[loader] = record  # type: ignore[union-attr]
        if seen:
            [dataset[index] for index in range(3)]
        observed: Any = SimpleNamespace(host=host, found=SimpleNamespace(images=None))
        probe_images(observed)
        assert not host.broken
    assert observed.found.images.files == (3 if seen else 8)
    assert observed.found.images.identical
    assert observed.found.images.file_share == share
