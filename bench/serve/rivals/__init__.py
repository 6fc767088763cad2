"""One file a loader. Each has

- TITLE, and PACKAGES that it needs, by the names they are imported by;
- batches(work, folder, epochs, **setting): a stream of batches; epochs None: without an end;
- perhaps GRID: settings that are tried, of which the best is kept; else WORKERS;
- perhaps convert(work, source, folder): into a format of its own; else it reads the source;
- perhaps WITHOUT: data sets that it is not made for, with the reason.
"""

import importlib
import importlib.util
from types import ModuleType

WORKERS = [{"workers": workers} for workers in (0, 1, 2)]
BASE, OURS = "plain", "ours"
BESIDE = ("ours_decoded", "decode_only")
"""told and not compared: they do other work than the others"""
NAMES = (
    *(BASE, "dataloader", "stateful", "webdataset", "litdata", "grain", "spdl", "hugging_face"),
    *("dali", OURS, *BESIDE),
)


def load(name: str) -> ModuleType:
    """The file of a loader."""
    return importlib.import_module(f"rivals.{name}")


def missing(rival: ModuleType) -> list[str]:
    """Packages that it needs and that are not installed."""
    absent = []
    for name in rival.PACKAGES:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # not even what it is a part of
            found = None
        absent += [] if found else [name]
    return absent
