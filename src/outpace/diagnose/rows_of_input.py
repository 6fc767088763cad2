"""Rows of the table of bottlenecks: how batches reach the model."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose.costs import clocked_in_step, input_cost, input_parts, of_step, without
from outpace.diagnose.told import Told, in_ms
from outpace.records.counted import counted
from outpace.records.evidence import Evidence

ITS_OWN = "which has an iterator of its own: next() of one that is kept draws all of an epoch"
MOSTLY = 0.5
"""of the waiting for input, from which on it is said to be for that"""
REWORKED_ERROR = 0.15
"""relative error of what samples tell of lines in the script's own loop"""


def storage(evidence: Evidence) -> Iterator[Told]:
    """Reading, or waiting for files, sockets or a slow disk."""
    data = evidence.input
    waits = data.storage_s >= data.read_s
    what = "waits off the CPU for data to be read" if waits else "reads from files or a database"
    if data.kind == "lines":
        what = "reads data, or waits for them"  # which of both no clock tells
    yield from _input(evidence, "storage", what)
    if evidence.input.reworked_by_reading:
        what = "reading data for each batch, or waiting for them"
        yield from _reworked(evidence, what, "a data set does that in workers, some batches ahead")


def parse(evidence: Evidence) -> Iterator[Told]:
    """Decoding images or other files, parsing text and records."""
    data = evidence.input
    decodes = "decodes images" if data.images is not None else "decodes files"
    what = decodes if data.decode_s > data.parse_s else "parses records"
    yield from _input(evidence, "parse", what)


def augment(evidence: Evidence) -> Iterator[Told]:
    """Work of the data set's own code on each sample."""
    lines = evidence.input.kind == "lines"
    whose = "the script's" if lines else "the data set's"
    what = f"works on each {'batch' if lines else 'sample'} in {whose} own code"
    if evidence.input.workers and not evidence.input.fetch_s:
        what = "is made in workers that could not be looked into, as they are not forked"
    yield from _input(evidence, "augment", what)
    if not evidence.input.reworked_by_reading:
        what = "making the model's input of each batch"
        yield from _reworked(
            evidence, what, "a data set or a collate function does that in workers"
        )


def _reworked(evidence: Evidence, what: str, instead: str) -> Iterator[Told]:
    seconds = evidence.input.reworked_s
    if seconds:
        cost = clocked_in_step(evidence, seconds, REWORKED_ERROR)
        yield Told(
            cost,
            evidence.input.reworked_where,
            f"{in_ms(seconds, cost.whole_s, 'of the')} of a step go to {what}, in the training's own "
            f"thread: {instead}",
        )


def collate(evidence: Evidence) -> Iterator[Told]:
    """Putting samples together one by one."""
    what = "puts batches together sample by sample"
    if evidence.begun_s > MOSTLY * evidence.input.wait_s:
        samples = evidence.input.samples
        what = f"puts all {samples:,} samples" if samples else "puts all samples"
        what += f" in order for each batch, {ITS_OWN}"
    yield from _input(evidence, "collate", what)


def ipc(evidence: Evidence) -> Iterator[Told]:
    """Moving batches between processes, and starting those anew for each epoch."""
    data = evidence.input
    starts = evidence.starting_s
    passing = next(_input(evidence, "ipc", _passing(evidence)), None)
    cost = passing.cost if passing is not None else of_step(evidence, 0.0, 0.0, 0.0)
    if starts < 0.1 * (cost.whole_s + starts):
        if passing is not None:
            yield passing
        return
    begins = f"{1e3 * starts:.1f} ms for workers to start with each epoch"
    begins += ", whose DataLoader is made anew" if data.anew else ""
    if data.forked_s > MOSTLY * data.epoch_start_s:
        begins += ": most of it to copy memory that a forked worker shares, once it is written to"
    seconds, low, high = (s + starts for s in (cost.seconds, cost.low, cost.high))
    yield Told(
        of_step(evidence, seconds, low, high, cost.how, starts),
        data.where,
        f"{passing.reason}, and {begins}"
        if passing is not None and cost.seconds > 0
        else f"a step waits {begins}",
    )


def _passing(evidence: Evidence) -> str:
    """What batches wait for in workers, beside their being made."""
    data = evidence.input
    if not data.restarts:
        cores, threads = evidence.machine.cores, evidence.compute.threads
        cost, passed = input_cost(evidence), data.ipc_s * max(1, evidence.steps.micro_steps)
        crowds = evidence.compute.device == "cpu" and data.workers + threads > cores
        if crowds and cost is not None and passed < MOSTLY * cost.seconds:
            beside = f"{counted(data.workers, 'worker')} beside {counted(threads, 'thread')} of the steps"
            return f"has {beside}, on {counted(cores, 'core')}, and moves batches between processes"
        return "moves batches between processes"
    begun = "begins anew" if data.persistent else "starts and ends"
    what = f"{begun} {counted(data.workers, 'worker')} for each batch"
    if data.batches == 1:
        return what
    return f"{what}, {ITS_OWN}"


def _input(evidence: Evidence, cause: str, what: str) -> Iterator[Told]:
    cost = input_cost(evidence)
    part = input_parts(evidence).get(cause, 0.0)
    if cost is None or not part:
        return
    data = evidence.input
    place = data.places[0][0] if data.places else data.where
    if what.endswith(ITS_OWN):
        drawn = (row.where for row in evidence.ledger if row.name == "input" and row.where)
        place = next(drawn, data.where)
    elif cause == "collate" and "own_collate" in data.kind_places:
        place = data.kind_places["own_collate"]
    elif cause == "ipc" or (cause == "collate" and data.sliceable):
        place = data.where  # a library's work, which the loader's arguments decide on
    elif cause == "parse" and data.decode_s > data.parse_s:
        place = data.kind_places.get("decode", place)
    else:
        place = data.kind_places.get(cause, place)
    lost = of_step(evidence, cost.seconds * part, cost.low * part, cost.high * part, cost.how)
    yield Told(
        lost,
        place,
        f"a step waits {in_ms(lost.seconds, lost.whole_s, 'of its')} because the input {what}",
    )


def transfer(evidence: Evidence) -> Iterator[Told]:
    """Copies from host to device."""
    arm = evidence.arm("transfer_free")
    whole = evidence.steps.mean_s
    if arm is not None and whole:
        cost = without(evidence, whole, arm.gain)
        where = evidence.transfers[0].where if evidence.transfers else None
        yield Told(
            cost, where, f"copies to and from the device take {1e3 * cost.seconds:.1f} ms of a step"
        )
