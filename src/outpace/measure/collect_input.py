"""Evidence about the input, from the loader's seam and the sampler."""

from __future__ import annotations

import math
from collections import Counter
from inspect import isroutine
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

from outpace.measure.by_hand import Place
from outpace.measure.found import Found
from outpace.measure.ledger import FEWEST, longer_firsts
from outpace.measure.lines import (
    at_work,
    fetch_kind,
    is_input,
    is_loss,
    kind_places,
    kinds,
    places,
)
from outpace.measure.sampler import WORKER, Line, of_phase, read_dump
from outpace.measure.statistics import median
from outpace.measure.subjects import main_device, training_loader
from outpace.measure.watch import Watcher
from outpace.measure.written import runs_anew
from outpace.records.input import Input
from outpace.seams.fetch import Fetches
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam

TOLD = ("parse", "decode", "storage", "collate")
"""kinds of input work that a script's own lines are told by"""
MOST_NESTED = 8
MOSTLY = 0.5
"""share of samples by which lines are told to read"""
OFF_CPU = 0.05
"""share of a fetch off the CPU below which it is noise"""


def collect_input(
    host: Host,
    watcher: Watcher,
    phases: dict[str, float],
    samples: Counter[Line],
    lines: set[Place],
    found: Found,
    session: Path,
) -> Input:
    """How batches reached the model: by a DataLoader, or by lines of the script."""
    loaded = training_loader(host)
    if loaded is None:
        return _input_by_lines(host, watcher, phases, samples, lines, found.loss_lines)
    loader, record = loaded
    workers = loader.num_workers
    fetched = watcher.fetches(record.number, workers=workers > 0)
    watched = of_phase(samples, "input")
    if workers:
        for path in session.glob(WORKER.format(loader=record.number, pid="*")):
            watched += read_dump(path)
    collate = loader.collate_fn.__name__ if isroutine(loader.collate_fn) else ""
    # A lambda has the name of every other one.
    collates = frozenset({collate} if "default" not in collate and collate != "<lambda>" else ())
    share = kinds(watched, collates)
    usual = phases.get("input", 0.0)
    own = record.own_starts
    start_s = median([start.ns / 1e9 for start in own[1:] or own])
    batch_s = usual / max(1, host.micro_steps)
    restarts = host.mingled and record.restarts
    forked = 0.0 if restarts else _forking_s(loader, host, watcher, phases)
    facts: dict[str, Any] = {
        "kind": "iterable" if isinstance(loader.dataset, IterableDataset) else "loader",
        "where": record.where,
        "drawn_by": _drawn_by(loader.dataset),
        "workers": workers,
        "prefetch_factor": loader.prefetch_factor or 0,
        "persistent": loader.persistent_workers,
        "anew": record.anew,
        "runs_anew": runs_anew(),
        "restarts": restarts,
        "pinned": loader.pin_memory,
        "batch_size": host.batch_size,
        "batches": record.length,
        "epochs": _epochs(watcher, record.steps_of_epoch(host.micro_steps), host.micro_steps),
        "wait_s": usual,
        "epoch_start_s": usual if restarts else max(0.0, start_s - batch_s) + forked,
        "forked_s": forked,
        "step_streams": (),
        "interrupted": record.interrupted,
        "shared": record.interrupted and _shared(host, loader),
        "places": tuple(places(at_work(watched) if workers else watched)),
        "kind_places": kind_places(watched, collates),
    }
    if fetched is not None and fetched.batches:
        facts.update(_fetch_facts(fetched, share))
    if record.restarts:  # each iterator ends at the line that draws from it: nothing is made there
        lines = lines - {k.lines[0] for k in of_phase(samples, "input") if k.lines}
    made, made_share = _made_by_lines(samples, lines, found.loss_lines)
    if made.total() >= FEWEST:
        facts["reworked_s"] = made_share * phases.get("elsewhere", 0.0)
        facts["reworked_where"] = places(made, most=1)[0][0]
        facts["reworked_by_reading"] = kinds(made).get("storage", 0.0) > MOSTLY
    return Input(**{**facts, **found.input}, images=found.images)


def _forking_s(
    loader: DataLoader[Any], host: Host, watcher: Watcher, phases: dict[str, float]
) -> float:
    """Seconds that an epoch's first step computes longer, as its workers were just started."""
    if not loader.num_workers or loader.persistent_workers:
        return 0.0
    if main_device(host) != "cpu":
        return 0.0  # what is launched there is no measure of it
    return longer_firsts(watcher.firsts, phases)


def _shared(host: Host, loader: DataLoader[Any]) -> bool:
    """Whether batches are drawn from the same data set by another loader."""
    seam = host.seam(LoaderSeam)
    others = list(seam.records.items()) if seam is not None else []
    drawn = (other for other, record in others if other is not loader and record.draws)
    return any(_base(other.dataset) is _base(loader.dataset) for other in drawn)


def _base(dataset: Any) -> Any:
    """That which a part of it, as `torch.utils.data.Subset`, is made of."""
    for _ in range(MOST_NESTED):
        if not isinstance(inner := getattr(dataset, "dataset", None), Dataset):
            break
        dataset = inner
    return dataset


def _drawn_by(dataset: Any) -> str:
    """Name of the class that ``dataset[index]`` is written in; torch's own `Subset` asks what it is of."""
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    kinds = type(dataset).__mro__
    return next((kind.__name__ for kind in kinds if "__getitem__" in vars(kind)), "")


def _epochs(watcher: Watcher, epoch: float | None, micro_steps: int) -> int | None:
    """Turns of the loop around the loop over the loader; fewer where a count ends it before."""
    loops = watcher.course.loops
    turns = [loop.turns for loop in loops]
    epochs: int | None = None
    if None in turns:  # else no loop is over the loader: a library's, or around next()
        inner = turns.index(None)
        around = turns[inner + 1 :]
        if around:
            epochs = around[0] if None not in around else None
        elif loops[inner].loader:  # else it may begin anew, as around next() or over cycle(loader)
            epochs = 1
    total = watcher.total_steps(micro_steps)
    if total is None or not epoch:
        return epochs
    return min(epochs or total, math.ceil(total / epoch))


def _fetch_facts(fetched: Fetches, share: dict[str, float]) -> dict[str, Any]:
    n = fetched.batches * 1e9
    wall, collate = fetched.wall / n, fetched.collate / n
    looked = max(1.0, fetched.looked_wall)
    cpu = min(1.0, (fetched.cpu + fetched.beside) / looked)
    busy = fetched.cpu + fetched.beside + fetched.queued
    off = max(0.0, 1.0 - busy / looked) if fetched.looked else 0.0
    return {
        "fetch_s": wall,
        "fetch_cpu_s": cpu * wall if fetched.looked else wall,
        "collate_s": max(collate, share.get("collate", 0.0) * wall),
        # The seam knows images; sound, volumes and films are told by the lines that run.
        "decode_s": max(fetched.decode / n, share.get("decode", 0.0) * wall),
        "storage_s": off * wall if off > OFF_CPU else 0.0,
        "parse_s": share.get("parse", 0.0) * wall,
        "read_s": share.get("storage", 0.0) * wall,
        "ipc_s": share.get("ipc", 0.0) * wall,
        "read_bytes": fetched.read_bytes / max(1.0, fetched.looked),
    }


def _made_by_lines(
    samples: Counter[Line], lines: set[Place], loss_lines: set[Place]
) -> tuple[Counter[Line], float]:
    """Samples at lines of the script that make the model's input, and their share of what no seam is in."""
    elsewhere = of_phase(samples, "elsewhere")
    mine = {k: v for k, v in elsewhere.items() if is_input(k, lines) and not is_loss(k, loss_lines)}
    return Counter(mine), sum(mine.values()) / max(1, elsewhere.total())


def _input_by_lines(
    host: Host,
    watcher: Watcher,
    phases: dict[str, float],
    samples: Counter[Line],
    lines: set[Place],
    loss_lines: set[Place],
) -> Input:
    if not lines:
        return Input(batch_size=host.batch_size)
    mine, share = _made_by_lines(samples, lines, loss_lines)
    wait = share * phases.get("elsewhere", 0.0)
    at = places(mine)
    by_kind = kinds(mine, None)
    # All that no clock tells apart is told as the script's own work, waiting for a pool of processes too.
    others = Counter({k: n for k, n in mine.items() if fetch_kind(k, None) not in TOLD})
    by_place = kind_places(mine, None)
    if most := places(others, most=1):
        by_place["augment"] = most[0][0]
    return Input(
        kind="lines",
        where=at[0][0] if at else None,
        batch_size=host.batch_size,
        wait_s=wait,
        fetch_s=wait,
        fetch_cpu_s=wait,
        parse_s=by_kind.get("parse", 0.0) * wait,
        decode_s=by_kind.get("decode", 0.0) * wait,
        storage_s=by_kind.get("storage", 0.0) * wait,
        collate_s=by_kind.get("collate", 0.0) * wait,
        places=tuple(at),
        kind_places=by_place,
        epochs=next((n.turns for n in reversed(watcher.course.loops) if n.turns is not None), None),
    )
