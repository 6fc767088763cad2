"""No loader: two threads that decode and do nothing else, the most that any loader could give."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import kit
import numpy as np
from workloads import WORKLOADS, Workload

TITLE = "(decoding alone)"
PACKAGES = ["simplejpeg"]
GRID = [{"threads": 2}]
WITHOUT = {name: "nothing to decode" for name in WORKLOADS if not name.startswith("jpeg")}


def batches(work: Workload, folder: Path, epochs: int | None, threads: int) -> Iterator[kit.Batch]:
    import simplejpeg

    raw = work.raw(folder)
    stored = [raw[index] for index in range(len(raw))]
    nothing = np.empty((work.batch, *work.out[1:]), np.uint8)

    def decoded(first: int) -> kit.Batch:
        data, labels, ids = zip(*stored[first : first + work.batch], strict=True)
        for one in data:
            simplejpeg.decode_jpeg(one)
        return kit.put_together(nothing[: len(ids)], labels, ids)

    with ThreadPoolExecutor(threads) as pool:
        for _ in kit.again([None], epochs):
            yield from pool.map(decoded, range(0, len(raw), work.batch))
