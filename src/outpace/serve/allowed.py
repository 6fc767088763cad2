"""Which kinds of workers samples bear: those that give the very same samples.

Threads share the generators of random numbers that samples draw from, what is kept from one sample to the
next, and with forked processes the place in an open file; one that a data set opens with its first sample
each process opens for itself.
Workers of a `multiprocessing.Pool` and other daemonic processes may have none.
"""

from __future__ import annotations

import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any, Literal, final

from outpace.errors import UsageError
from outpace.seams.start_method import forks
from outpace.serve.crossing import UNPICKLABLE
from outpace.serve.executors import Kind
from outpace.serve.held import all_kept, in_words
from outpace.serve.left_behind import left_behind
from outpace.serve.making import BatchMaker
from outpace.serve.open_files import holds_open_file
from outpace.serve.place_in_file import moves_place, open_files
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
OUTSIDE = OPEN_FILE._replace(
    reason="drawing a sample moves the place in a file that is open outside of the data set, which forked "
    "processes would share: batches are made where they are drawn"
)
LEFT_BEHIND = OPEN_FILE._replace(
    reason="samples leave something behind that threads would share, and there may be no worker processes: "
    "batches are made where they are drawn"
)
CHILDLESS = Choice(
    "none",
    0,
    1,
    "samples draw from generators that threads would share, and a daemonic process may have no worker "
    "processes: batches are made where they are drawn",
    0.0,
)
UNPICKLED = CHILDLESS._replace(
    reason="samples draw from generators that threads would share, and cannot be handed to processes: "
    "batches are made where they are drawn"
)


def kinds(
    maker: BatchMaker,
    kind: Kind | Literal["auto"],
    workers: int | Literal["auto"],
    after: Callable[[Any], Any] | None = None,
    say: Callable[[str], None] = lambda told: None,
) -> Choice | list[Kind]:
    """Those to choose among, or the choice where none is left to make; by trying a few samples. ``after``:
    what threads would do with a batch; ``say`` is told why processes are left out.

    Raises UsageError for threads that samples do not bear, and for processes that they cannot be handed to.
    A file that is open is no reason to refuse those, as each may open it; but for one that drawing has opened
    outside of the data set, with which batches are made where they are drawn. What samples leave behind is
    none to refuse threads: a lock may keep them apart.
    """
    before = open_files()
    streams = maker.look(after)
    opened = holds_open_file(maker.source)
    if maker.unopened is not None:
        maker.unopened.put_back()
    if kind == "none" or workers == 0:
        return AS_ASKED
    if kind == "processes":  # what drawing opened outside of the data set is open for all of them
        stays_open = bool(open_files() - before) and _moves_place(maker)
    else:
        stays_open = holds_open_file(maker.source) or _moves_place(maker)
    opened |= stays_open
    if kind == "threads" and streams:
        raise UsageError(
            f"samples draw from {in_words(streams)}, which threads would share",
            "draw from the rng that transform(sample, rng) is given, or use processes",
        )
    if kind == "threads" and opened:
        raise UsageError(
            "the data set keeps a file open, whose place threads would share",
            "open the file anew where it is read, or leave out executor=",
        )
    if stays_open:
        return OUTSIDE if kind == "processes" else OPEN_FILE
    told = unpicklable(maker) if kind != "threads" and not forks() else None
    if kind == "processes" and told:
        raise UsageError(
            f"worker processes that are not forked are handed everything pickled, and {told}",
            "name functions and classes at the top of a module, or use threads",
        )
    daemon = multiprocessing.current_process().daemon
    if kind == "processes" and daemon:
        raise UsageError(
            "a daemonic process, as one of a multiprocessing.Pool, may have no worker processes",
            "use threads, or leave out executor=",
        )
    if kind != "auto":
        return [kind]
    behind = _left_behind(maker, after) if not (streams or opened) else None
    found: list[Kind] = [] if streams or opened or behind else ["threads"]
    if opened:
        say("threads are left out: the data set opens a file, whose place they would share")
    elif behind:
        say(f"threads are left out: {behind}, which they would share")
    if not daemon and told is None:
        found.append("processes")
    elif told is not None:
        say(f"processes are left out: {told}")
    if not found and opened:
        return OPEN_FILE
    if not found and behind:
        return LEFT_BEHIND
    if not found:
        return CHILDLESS if daemon else UNPICKLED
    if workers == "auto":
        found.append("none")
    return found


def _moves_place(maker: BatchMaker) -> bool:
    """Whether what is always the same of making a sample does; a store of ours does not."""
    if maker.whole:
        return False
    with all_kept(maker.held):
        return moves_place(maker.source, maker.prepared)


def _left_behind(maker: BatchMaker, after: Callable[[Any], Any] | None) -> str | None:
    parts = maker.source, maker.prepare, maker.transform, maker.collate, after
    return left_behind(*(part for part in parts if part is not None))


def unpicklable(maker: BatchMaker) -> str | None:
    """What of a maker's cannot be pickled, and why."""
    for name in ("source", "prepare", "transform", "collate"):
        try:
            pickle.Pickler(_Nowhere(), pickle.HIGHEST_PROTOCOL).dump(getattr(maker, name))
        except UNPICKLABLE as error:
            return f"{name} cannot be pickled: {error}"
        except RuntimeError:  # a lock of multiprocessing's, which goes along as a process begins
            continue
    return None


@final
class _Nowhere:
    """A file that keeps nothing: a data set may be as large as the memory."""

    def write(self, data: Any) -> int:
        """As if it had been."""
        return memoryview(data).nbytes
