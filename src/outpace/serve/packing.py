"""Samples into a store, in order, made by several threads, with a journal to go on from.

The journal tells how far the store is for sure: it is replaced atomically once the store's files are
on the disk. So nothing has to be done when the process is killed: what lies behind the journal's end
is cut off by the next one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import msgspec

from outpace.errors import DataError
from outpace.records.files import write_json
from outpace.serve.meta import Kind, Skipped
from outpace.serve.plans import Plan
from outpace.serve.sources import JOURNAL

EVERY_S = 2.0
"""between two entries in the journal"""
Progress = Callable[[str, int, int], None]


class Journal(msgspec.Struct):
    """How far a store is: samples taken from the source, and those of them that are kept."""

    kind: Kind
    digest: str
    options: dict[str, Any]
    done: int = 0
    kept: int = 0
    skipped: list[Skipped] = []

    def save(self, folder: Path) -> None:
        """Replace the one in the folder."""
        write_json(folder / JOURNAL, self)

    @staticmethod
    def load(folder: Path) -> Journal | None:
        """The one in the folder; None where there is none that can be read."""
        try:
            return msgspec.json.decode((folder / JOURNAL).read_bytes(), type=Journal)
        except (OSError, ValueError, msgspec.MsgspecError):
            return None


class Writer(Protocol):
    """A store that is being written: what a plan made of samples, one by one, and what goes with it.

    ``sync`` has all so far on the disk, ``finish`` gives what meta.json is to say more.
    """

    count: int

    def append(self, made: Any, /) -> None: ...
    def sync(self) -> None: ...
    def close(self) -> None: ...
    def finish(self) -> dict[str, Any]: ...


def write(
    plan: Plan,
    writer: Writer,
    journal: Journal,
    folder: Path,
    jobs: int,
    chunk: int,
    skip: Callable[[DataError], bool],
    progress: Progress,
) -> None:
    """Write the samples that are left, ``chunk`` of them made by a thread at once.

    ``skip``: whether an error only leaves its sample out. Raises DataError for the first sample, in
    order, that cannot be made, OSError where the store cannot be written.
    """
    count = len(plan.source)

    def make(first: int) -> list[Any]:
        made: list[Any] = []
        for index in range(first, min(first + chunk, count)):
            try:
                made.append(plan.make(index))
            except DataError as error:
                made.append(error)
                if not skip(error):
                    break
        return made

    saved = time.monotonic()
    for made in in_order(make, range(journal.done, count, chunk), jobs):
        for index, one in enumerate(made, journal.done):
            if not isinstance(one, DataError):
                writer.append(one)
            elif skip(one):
                where = plan.where(index)
                journal.skipped.append(Skipped(where, one.message.removeprefix(f"{where}: ")))
            else:
                raise one
        journal.done, journal.kept = journal.done + len(made), writer.count
        progress("packing", journal.done, count)
        if time.monotonic() - saved >= EVERY_S:
            writer.sync()
            journal.save(folder)
            saved = time.monotonic()


def in_order(function: Callable[[int], Any], items: range, jobs: int) -> Iterator[Any]:
    """``map``, by threads that are at most two items each ahead; in this one if ``jobs`` is 1."""
    if jobs == 1:
        for item in items:  # of `map` a StopIteration inside would be the end
            yield function(item)
        return
    waiting: deque[Future[Any]] = deque()
    with ThreadPoolExecutor(jobs, "outpace-pack") as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > 2 * jobs:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
