"""What the files of a folder are together: shards of tars, the parts of one table, or samples.

Beside shards and parts there may be others that are no data: a README, a list of sizes, the mark of a job
that is done.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

from outpace.errors import DataError

TABLES = (".csv", ".jsonl", ".parquet", ".arrow")
SIDE = (".json", ".txt", ".md", ".idx")
SAMPLES = (".json", ".txt")
"""of them, what may be samples in folders of their own"""
NUMBER = re.compile(r"[0-9a-f-]*[0-9][0-9a-f-]*")
"""also such as 3f2a-99c0"""
NAMED = 3
"""of what is in the way, so many are named"""


def told_apart(names: Sequence[str]) -> tuple[Literal["tars", "table", "files"], list[str]]:
    """What the files are, by their paths from the folder, and those of them that are data.

    CSV files in sub-folders are samples, each of its folder's class.
    """
    data = [name for name in names if not _beside(name)]
    kinds = {os.path.splitext(name)[1].lower() for name in data}
    tars = kinds == {".tar"}
    samples = kinds == {".csv"} and any("/" in name for name in data)
    if not kinds or samples or not (tars or kinds.issubset(TABLES)):
        return "files", list(names)
    _check_others(names, data)
    return "tars" if tars else "table", data


def _check_others(names: Sequence[str], data: Sequence[str]) -> None:
    """Raises DataError where folders without data hold more files than there are data: maybe samples."""
    hold = {str(folder) for name in data for folder in PurePosixPath(name).parents}
    others = []
    for name in names:
        folder, _, base = name.rpartition("/")
        hidden = folder.startswith(("_", ".")) or base.startswith(("_", "."))
        if folder and folder not in hold and not hidden and name.lower().endswith(SAMPLES):
            others.append(name)
    if len(others) > len(data):
        raise DataError(
            f"there are {data[0]} and, in folders of their own, {len(others):,} files that may be samples: "
            f"{listed(others)}",
            f"name {data[0]} itself, or move it out of the folder",
        )


def _beside(name: str) -> bool:
    base = name.rpartition("/")[2]
    suffix = os.path.splitext(base)[1].lower()
    return suffix in SIDE or (base.startswith("_") and suffix not in (".tar", *TABLES))


def check_parts(where: str, names: Sequence[str]) -> None:
    """Raises DataError where tables are not the parts of one: those have names that differ in numbers."""
    if any("/" in name for name in names):
        raise DataError(
            f"{where} holds tables in sub-folders: {listed(names)}",
            "name one of the sub-folders, or write them as one table",
        )
    if len({NUMBER.sub("#", name.lower()) for name in names}) > 1:
        raise DataError(
            f"{where} holds {len(names):,} tables: {listed(names)}",
            f"name one of them: {os.path.join(where, names[0])}; parts of one table have names that "
            "differ in numbers alone",
        )


def listed(names: Sequence[str]) -> str:
    """The first of them."""
    return ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
