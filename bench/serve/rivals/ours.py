"""`outpace.Loader` over what `outpace pack` has written; workers are its own choice."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kit
import numpy as np
import torch
from workloads import WORKLOADS, Workload

TITLE = "outpace.Loader"
PACKAGES = ["outpace", "simplejpeg"]
GRID = [{"workers": "auto", "executor": "auto"}]
EVERY = [
    {"workers": 0, "executor": "none"},
    *({"workers": n, "executor": kind} for kind in ("threads", "processes") for n in (1, 2, 3, 4)),
]
"""what its own choice is held against"""
SOURCE = "OUTPACE_BENCH_SOURCE"


class Samples:
    """A data set as dictionaries, for `outpace pack`."""

    def __init__(self, raw: Any, decode: Callable[[Any], Any] = lambda data: data) -> None:
        self.raw, self.decode = raw, decode

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, index: int) -> dict[str, Any]:
        data, label, number = self.raw[index]
        return {"data": self.decode(data), "label": label, "id": number}


def samples() -> Samples:
    """Those that the environment names."""
    name, source = os.environ[SOURCE].split(":", 1)
    return Samples(WORKLOADS[name].raw(Path(source)))


def convert(work: Workload, source: Path, folder: Path) -> None:
    table = work.change is kit.row
    pack(work, source, folder, str(source / work.file) if table else "rivals.ours:samples")


def pack(work: Workload, source: Path, folder: Path, wanted: str) -> None:
    """By the command."""
    folder.rmdir()  # `outpace pack` makes it
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), SOURCE: f"{work.name}:{source}"}
    command = [sys.executable, "-m", "outpace", "pack", wanted, str(folder)]
    subprocess.run(command, env={**os.environ, **path}, check=True)


def upper(data: bytes, rng: Any) -> np.ndarray:
    """Decoded no further than to the bottom of what is cut out."""
    from outpace.serve.images import decode_box

    pixels, at = decode_box(data, lambda height, width: kit.box(height, width, rng))
    return kit.cut(pixels, rng, at)


def batches(
    work: Workload,
    folder: Path,
    epochs: int | None,
    workers: Any,
    executor: str,
    change: Callable[[Any, Any], np.ndarray] | None = None,
) -> Iterator[kit.Batch]:
    import outpace

    change = change or (upper if work.change is kit.jpeg else work.change)

    def changed(sample: dict[str, Any], rng: Any) -> kit.Sample:
        return change(sample["data"], rng), sample["label"], sample["id"]

    def whole(batch: dict[str, torch.Tensor]) -> kit.Batch:
        if work.change is kit.row:
            x = batch["x"].float()
        else:
            x = torch.from_numpy(change(batch["data"].numpy(), None))
        return x, batch["label"], batch["id"]

    how = {"after": whole} if work.sliced else {"transform": changed, "collate": kit.collated}
    source = folder
    if work.change is kit.row:
        source = outpace.Table(folder, together={"x": work.columns})
    loader = outpace.Loader(source, work.batch, workers=workers, executor=executor, **how)
    return kit.again(loader, epochs)
