"""Which kinds of workers samples bear: those that give the very same samples.

Threads share the generators of random numbers that samples draw from, and with forked processes the
place in an open file. Workers of a `multiprocessing.Pool` and other daemonic processes may have none.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any, Literal

from outpace.errors import UsageError
from outpace.serve.executors import Kind
from outpace.serve.held import in_words
from outpace.serve.making import BatchMaker
from outpace.serve.open_files import holds_open_file
from outpace.serve.rates import Choice

AS_ASKED = Choice("none", 0, 1, "as was asked for", 0.0)
OPEN_FILE = Choice(
    "none",
    0,
    1,
    "the data set keeps a file open, whose place threads and forked processes would share: batches are "
    "made where they are drawn",
    0.0,
)
CHILDLESS = Choice(
    "none",
    0,
    1,
    "samples draw from generators that threads would share, and a daemonic process may have no worker "
    "processes: batches are made where they are drawn",
    0.0,
)


def kinds(
    maker: BatchMaker,
    kind: Kind | Literal["auto"],
    workers: int | Literal["auto"],
    after: Callable[[Any], Any] | None = None,
) -> Choice | list[Kind]:
    """Those to choose among, or the choice where none is left to make; by trying a few samples. ``after``:
    what threads would do with a batch.

    Raises UsageError for threads that samples do not bear. Processes are never refused: a file may be
    opened by each.
    """
    streams = maker.look(after)
    if kind == "none" or workers == 0:
        return AS_ASKED
    if kind == "threads" and streams:
        raise UsageError(
            f"samples draw from {in_words(streams)}, which threads would share",
            "draw from the rng that transform(sample, rng) is given, or use processes",
        )
    if kind != "processes" and holds_open_file(maker.source):
        if kind == "threads":
            raise UsageError(
                "the data set keeps a file open, whose place threads would share",
                "open the file anew where it is read, or leave out executor=",
            )
        return OPEN_FILE
    if kind != "auto":
        return [kind]
    found: list[Kind] = [] if streams else ["threads"]
    if not multiprocessing.current_process().daemon:
        found.append("processes")
    if not found:
        return CHILDLESS
    if workers == "auto":
        found.append("none")
    return found
