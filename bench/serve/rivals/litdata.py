"""LitData: its chunks, StreamingDataset and StreamingDataLoader."""

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import kit
from workloads import Workload

TITLE = "LitData"
PACKAGES = ["litdata", "simplejpeg"]
CHUNKS = 16


def record(raw: Any, index: int) -> dict[str, Any]:
    return dict(zip(("data", "label", "id"), raw[index], strict=True))


def convert(work: Workload, source: Path, folder: Path) -> None:
    import litdata

    litdata.optimize(
        fn=partial(record, work.raw(source)),
        inputs=list(range(work.count)),
        output_dir=str(folder),
        chunk_size=-(-work.count // CHUNKS),
        num_workers=1,
    )


def batches(work: Workload, folder: Path, epochs: int | None, workers: int) -> Iterator[kit.Batch]:
    import litdata

    class Changed(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> kit.Sample:
            sample = super().__getitem__(index)
            return work.change(sample["data"], random), sample["label"], sample["id"]

    stored = Changed(str(folder), shuffle=True, drop_last=False)
    loader = litdata.StreamingDataLoader(stored, batch_size=work.batch, **kit.kept(workers))
    return kit.again(loader, epochs)
