"""Why a DataLoader cannot be fed so: others than its own workers, or thread, would make other samples.

To find out a few samples are drawn, and the source is read that makes them. A script may make a DataLoader of
one data set for each epoch: what was found holds while all that it depends on is as it was.
"""

from __future__ import annotations

import time
from collections.abc import MutableMapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from torch.utils.data import DataLoader
from torch.utils.weak import WeakIdKeyDictionary

from outpace.seams.setup import Feed
from outpace.serve.changes import state_of
from outpace.serve.in_worker import alone, same_in_worker
from outpace.serve.left_behind import left_behind
from outpace.serve.open_files import holds_open_file
from outpace.serve.place_in_file import moves_place
from outpace.serve.same_function import Functions, parts_of

LITTLE_S = 0.02
"""in which one may look whether a data set has changed, however soon it would be tried"""


class Verdict(NamedTuple):
    """Why a data set cannot be fed so, or None, as it was tried with these ``functions``."""

    refusal: str | None
    functions: Functions
    state: int | None
    """of the data set and of them; None where to look for a change takes longer than to try"""


_verdicts: MutableMapping[Any, dict[Any, Verdict]] = WeakIdKeyDictionary()
"""data set -> how it is fed -> the newest"""


def refusal(
    loader: DataLoader[Any], feed: Feed, drawing: AbstractContextManager[Any]
) -> str | None:
    """Why not; None where nothing speaks against it. ``drawing``: what is held while samples are drawn."""
    elsewhere = (feed.executor == "processes") != (loader.num_workers > 0)
    # Forked processes share its place in the file as threads do; one with workers of its own bears that.
    shared = feed.executor == "threads" or (feed.executor == "processes" and elsewhere)
    if not shared and (not elsewhere or loader.worker_init_fn is None):
        return None
    with drawing:
        if shared and holds_open_file(loader.dataset):
            return _keeps_open(feed)
        return _verdict(loader, feed, shared, elsewhere)


def _verdict(loader: DataLoader[Any], feed: Feed, shared: bool, elsewhere: bool) -> str | None:
    """What trying shows, or has shown for another DataLoader."""
    own: Any = loader
    how = feed.executor, loader.num_workers > 0, own._auto_collation, own.multiprocessing_context
    functions = loader.collate_fn, loader.worker_init_fn
    try:
        known = _verdicts.setdefault(loader.dataset, {})
        weakly = Functions(*functions)
    except TypeError:  # a list cannot be referred to weakly
        return _tried(loader, feed, shared, elsewhere)
    before = known.get(how)
    if before is not None and not before.functions.are(*functions):
        before = None
    if before is not None and before.state is None:
        return _tried(loader, feed, shared, elsewhere)
    began = time.perf_counter()
    state = state_of(loader.dataset, *parts_of(*functions))
    looked = time.perf_counter()
    if before is not None and before.state == state:
        return before.refusal
    found = _tried(loader, feed, shared, elsewhere)
    tried_s = time.perf_counter() - looked
    quick = looked - began <= max(tried_s, LITTLE_S)
    known[how] = Verdict(found, weakly, state if quick else None)
    return found


def _tried(loader: DataLoader[Any], feed: Feed, shared: bool, elsewhere: bool) -> str | None:
    if shared and moves_place(loader.dataset, alone(loader)):
        return _keeps_open(feed)
    if feed.executor == "threads" and (told := left_behind(loader.dataset)):
        return f"{told}, which threads would share"
    if elsewhere and loader.worker_init_fn is not None and not same_in_worker(loader):
        return "its worker_init_fn has workers make other samples"
    return None


def _keeps_open(feed: Feed) -> str:
    return f"the data set keeps a file open, which {feed.executor} share"
