"""The seams of a process, put together with the feeds and decoders that serve them."""

from __future__ import annotations

import dis
import os
import sys
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from outpace.errors import RecipeError
from outpace.measure.last_lines import chain_of
from outpace.measure.machine import free_memory, local_ranks
from outpace.records.recipe_file import read_recipe
from outpace.remedies.catalog import setup_of_recipe
from outpace.seams.backend import BackendSeam
from outpace.seams.collective import CollectiveSeam
from outpace.seams.decode import DecodeSeam
from outpace.seams.fetch import FetchSeam
from outpace.seams.host import Host, Step, on_stderr
from outpace.seams.loader import LoaderSeam
from outpace.seams.loss import LossSeam
from outpace.seams.module import ModuleSeam
from outpace.seams.optimizer import OptimizerSeam
from outpace.seams.recompute import RecomputeSeam
from outpace.seams.root import RootFacts
from outpace.seams.save import SaveSeam
from outpace.seams.seeding import SeedingSeam
from outpace.seams.setup import Setup
from outpace.seams.transfer import TransferSeam
from outpace.seams.unused import UnusedGradients
from outpace.serve.decode import Decoder
from outpace.serve.feeds import make_feed

SHARE_OF_MEMORY = 0.8
"""of what is free that caches may take"""


def assemble(
    *, started_ns: int | None = None, switching: bool = False, seed_shift: int = 0
) -> Host:
    """A host with every seam, not yet put in. ``switching``: arms alternate inside of an epoch."""
    started = started_ns if started_ns is not None else perf_counter_ns()
    host = Host(started=started, experiments=switching, rests=not switching)
    decode = DecodeSeam(host)
    decoder = Decoder()
    decode.decoder = decoder
    for seam in (
        LoaderSeam(host, make_feed, switching=switching),
        FetchSeam(host, decode),
        ModuleSeam(host),
        RecomputeSeam(host),
        LossSeam(host),
        OptimizerSeam(host),
        UnusedGradients(host),
        TransferSeam(host),
        SaveSeam(host),
        decode,
        SeedingSeam(host, seed_shift),
        CollectiveSeam(host),
        BackendSeam(host),
    ):
        host.add(seam)
    hide_our_frames()
    return host


def apply_recipe(recipe: str | Path, *, model: Any = None, optimizer: Any = None) -> Host:
    """A recipe at work in this process, the objects given being brought to it at once.

    Raises RecipeError for a recipe that cannot be read, or one that only a new process can take.
    """
    record = read_recipe(Path(recipe))
    setup = within_memory(setup_of_recipe(record, Path(recipe)))
    # A person may have written the variables, or the remedies that need them, or both.
    needed = {**record.environment, **dict(setup.environment)}
    if missing := [name for name, value in needed.items() if os.environ.get(name) != value]:
        names = ", ".join(missing)
        raise RecipeError(
            f"{recipe} sets environment variables ({names}), which only a new process can take",
            f"outpace run --recipe {recipe} your-script.py",
        )
    host = assemble()
    host.install()
    if model is not None:
        host.roots[model] = RootFacts(has_parameters=True)
    if optimizer is not None:
        host.optimizers.add(optimizer)
    host.switch(setup)
    if setup.tf32:
        once_more(host, setup)
    return host


def within_memory(setup: Setup) -> Setup:
    """The same with caches that the free memory here holds, which is said; a recipe may be of elsewhere."""
    most = int(SHARE_OF_MEMORY * free_memory() / local_ranks())
    wanted = max(setup.feed.cache_bytes, setup.decoded_bytes)
    if wanted <= most:
        return setup
    on_stderr(
        f"outpace: the recipe keeps up to {wanted / 2**30:.1f} GiB in memory, of which "
        f"{most / SHARE_OF_MEMORY / 2**30:.1f} are free here: {most / 2**30:.1f} are kept at most"
    )
    feed = replace(setup.feed, cache_bytes=min(most, setup.feed.cache_bytes))
    return replace(setup, feed=feed, decoded_bytes=min(most, setup.decoded_bytes))


def once_more(host: Host, setup: Setup) -> None:
    """Bring the process's switches to ``setup`` after the first step: the script may have set its own."""

    def again(_: Step) -> None:
        host.listeners.remove(again)
        host.guard("backend", host.seams["backend"].reconcile, setup)

    host.listeners.append(again)


def hide_our_frames() -> None:
    """Show the target's uncaught exceptions as python alone would: without our frames."""
    shown = sys.excepthook

    def excepthook(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        if not _is_ours(error):
            trace = without_us(trace)
            for one in chain_of(error):
                one.__traceback__ = without_us(one.__traceback__)
        shown(kind, error, trace)

    sys.excepthook = excepthook


def _is_ours(error: BaseException) -> bool:
    """Whether the innermost frame is ours: then our frames are what matters."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and _our_frame(trace) and not _passed_on(trace, error)


def _passed_on(trace: TracebackType, error: BaseException) -> bool:
    """Whether what the innermost frame called has raised it: what has no frame of its own, in whose place a
    seam stands. An error of the system that a seam raises itself is what the call there would have raised.
    """
    frame = trace.tb_frame
    if not frame.f_globals["__name__"].startswith("outpace.seams."):
        return False
    operation = dis.opname[frame.f_code.co_code[trace.tb_lasti]]
    return operation.startswith("CALL") or isinstance(error, OSError)


def _our_frame(trace: TracebackType) -> bool:
    return str(trace.tb_frame.f_globals.get("__name__", "")).startswith("outpace.")


def without_us(trace: TracebackType | None) -> TracebackType | None:
    """A traceback with our frames left out."""
    theirs = []
    while trace is not None:
        if not _our_frame(trace):
            theirs.append(trace)
        trace = trace.tb_next
    for one, following in zip(theirs, [*theirs[1:], None], strict=False):
        one.tb_next = following
    return theirs[0] if theirs else None
