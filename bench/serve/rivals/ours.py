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
LOOKED_AT = 16
"""batches that predictions are made from, as the loader's own are"""
made: list[Any] = []
"""loaders"""


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
    # As all others have it, a row's numbers have the 32 bits that the training takes them in.
    wanted = ["--float32", str(source / work.file)] if table else ["rivals.ours:samples"]
    pack(work, source, folder, *wanted)


def pack(work: Workload, source: Path, folder: Path, *wanted: str) -> None:
    """By the command."""
    folder.rmdir()  # `outpace pack` makes it
    path = {"PYTHONPATH": str(Path(__file__).parents[1]), SOURCE: f"{work.name}:{source}"}
    command = [sys.executable, "-m", "outpace", "pack", *wanted, str(folder)]
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
    ram: int | None = None,
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
    loader = outpace.Loader(source, work.batch, workers=workers, executor=executor, ram=ram, **how)
    made.append(loader)
    return kit.again(loader, epochs)


def told() -> dict[str, Any]:
    """What the loader that was made last chose, how long that took, and what its cost model says of EVERY
    other choice, in seconds of a sample.
    """
    from outpace.serve.looking import look
    from outpace.serve.rates import depth_of, rate

    loader = made[-1]
    count = min(LOOKED_AT, len(loader))
    requests = [loader._terms.request(0, first * loader.batch_size) for first in range(count)]
    facts = look(loader.maker, requests, loader._cores, LOOKED_AT, loader._arrival)
    predicted = []
    for how in EVERY:
        kind, workers = how["executor"], how["workers"]
        depth = depth_of(kind, workers, facts.batch_bytes, loader.prefetch_bytes, loader.ram)
        predicted.append(1 / (loader.batch_size * rate(facts, kind, workers, depth)))
    choice = f"{loader.choice.workers} {loader.choice.kind}"
    return {
        "choice": choice,
        "choosing_s": loader._choosing_s,
        "ram": loader.ram,
        "predicted": predicted,
    }
