"""`outpace.Loader` over images decoded beforehand, as by a cache that is warm."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kit
from workloads import WORKLOADS, Workload

from rivals import ours

TITLE = "outpace.Loader, decoded"
PACKAGES, GRID = ours.PACKAGES, ours.GRID
WITHOUT = {name: "nothing to decode" for name in WORKLOADS if not name.startswith("jpeg")}


def samples() -> ours.Samples:
    """Pixels."""
    import simplejpeg

    return ours.Samples(ours.samples().raw, simplejpeg.decode_jpeg)


def convert(work: Workload, source: Path, folder: Path) -> None:
    ours.pack(work, source, folder, "rivals.ours_decoded:samples")


def batches(work: Workload, folder: Path, epochs: int | None, **how: Any) -> Iterator[kit.Batch]:
    return ours.batches(work, folder, epochs, **how, change=kit.cut)
