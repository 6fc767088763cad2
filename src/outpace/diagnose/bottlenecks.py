"""THE table of bottlenecks: one row a cause, from evidence to a finding.

A row gives a finding only where the interval of its gain excludes "no gain". Findings are ordered
by bound, the bound that takes most of the run first; within a bound by cause, where "arithmetic" is
what remains when nothing else explains the compute, and so comes after causes that do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from outpace.diagnose.costs import (
    Cost,
    ceiling_seconds,
    compute_cost,
    dispatch_seconds,
    exchange_seconds,
    input_cost,
    input_parts,
    moving_seconds,
    of_run,
    of_step,
    own_seconds,
    step_share,
    without,
)
from outpace.records.evidence import Evidence
from outpace.records.finding import Bound, Finding

URGENT = ("capacity", "leak")
"""told whatever they cost by now: they end a run"""
SURELY_MOVED = 0.6
"""part of the memory traffic that no cache saves: what stays in one between two operators does not move"""
LEAST_USELESS = 0.1
"""share of the arithmetic done on nothing, from which on it is told"""
MOST_COPIED = 0.1
"""share of the memory that workers may come to copy before it is told, though none has by now"""
WORTH_NAMING = 1 << 23
"""bytes of Python objects in a data set below which they do not explain a growth"""
SMALLEST = 0.02
"""share of the run below which nothing is said"""


class Told(NamedTuple):
    """What a row has to say."""

    cost: Cost
    where: str | None
    reason: str
    sure: bool = True


Row = Callable[[Evidence], Iterator[Told]]


def storage(evidence: Evidence) -> Iterator[Told]:
    """Waiting for files, sockets or a slow disk."""
    yield from _input(evidence, "storage", "waits off the CPU for data to be read")


def parse(evidence: Evidence) -> Iterator[Told]:
    """Decoding images, parsing text and records."""
    what = (
        "decodes images" if evidence.input.decode_s > evidence.input.parse_s else "parses records"
    )
    yield from _input(evidence, "parse", what)


def augment(evidence: Evidence) -> Iterator[Told]:
    """Work of the data set's own code on each sample."""
    yield from _input(evidence, "augment", "works on each sample in the data set's own code")


def collate(evidence: Evidence) -> Iterator[Told]:
    """Putting samples together one by one."""
    yield from _input(evidence, "collate", "puts batches together sample by sample")


def ipc(evidence: Evidence) -> Iterator[Told]:
    """Moving batches between processes, and starting those anew for each epoch."""
    data = evidence.input
    starts = data.epoch_start_s / data.batches if data.workers and data.batches else 0.0
    for told in _input(evidence, "ipc", "moves batches between processes"):
        cost = told.cost
        if starts < 0.1 * (cost.whole_s + starts):
            yield told
            return
        begins = f", and {1e3 * starts:.1f} ms for workers to start with each epoch"
        seconds, low, high = (s + starts for s in (cost.seconds, cost.low, cost.high))
        lost = of_step(evidence, seconds, low, high, cost.how, starts)
        yield told._replace(cost=lost, reason=told.reason + begins)


def _input(evidence: Evidence, cause: str, what: str) -> Iterator[Told]:
    cost = input_cost(evidence)
    part = input_parts(evidence).get(cause, 0.0)
    if cost is None or not part:
        return
    data = evidence.input
    place = data.places[0][0] if data.places else data.where
    if cause == "ipc" or (cause == "collate" and data.sliceable):
        place = data.where  # a library's work, which the loader's arguments decide on
    elif cause == "parse" and data.decode_s > data.parse_s:
        place = data.kind_places.get("decode", place)
    else:
        place = data.kind_places.get(cause, place)
    lost = of_step(evidence, cost.seconds * part, cost.low * part, cost.high * part, cost.how)
    yield Told(
        lost,
        place,
        f"a step waits {1e3 * lost.seconds:.1f} of its {1e3 * lost.whole_s:.1f} ms because the input "
        f"{what}",
    )


def transfer(evidence: Evidence) -> Iterator[Told]:
    """Copies from host to device."""
    arm = evidence.arm("transfer_free")
    whole = evidence.steps.mean_s
    if arm is not None and whole:
        cost = without(evidence, whole, arm.gain)
        yield Told(cost, None, f"copies to the device take {1e3 * cost.seconds:.1f} ms of a step")


def dispatch(evidence: Evidence) -> Iterator[Told]:
    """Framework overhead: many small operators."""
    seconds, low, high = dispatch_seconds(evidence)
    if seconds < 0.3 * compute_cost(evidence):
        return
    how = "measured" if evidence.compute.fixed_s is not None else "predicted"
    cost = of_step(evidence, seconds, low, high, how)  # type: ignore[arg-type]
    yield Told(
        cost,
        evidence.compute.where,
        f"{1e3 * seconds:.2f} of {1e3 * cost.whole_s:.2f} ms of a step do not depend on the batch: "
        f"{evidence.compute.operations} operators a forward pass, each too small for what it costs to call",
    )


def sync(evidence: Evidence) -> Iterator[Told]:
    """Waiting for the device."""
    arm = evidence.arm("sync_free")
    whole = evidence.steps.mean_s
    if arm is None or not whole or not evidence.syncs:
        return
    cost = without(evidence, whole, arm.gain)
    worst = evidence.syncs[0]
    yield Told(
        cost,
        worst.where,
        f".{worst.name}() makes the host wait for the device {worst.count:.1f} times a step",
    )


def threads(evidence: Evidence) -> Iterator[Told]:
    """Too few or too many threads."""
    best = max(
        (a for a in evidence.arms if a.name.startswith("threads_") and a.failed is None),
        key=lambda a: a.gain.speedup,
        default=None,
    )
    if best is None or best.gain.low < 1.03:
        return
    whole = evidence.free_s
    cost = without(evidence, whole, best.gain)
    yield Told(
        cost,
        evidence.compute.threads_where,
        f"with {best.name.removeprefix('threads_')} threads instead of {evidence.compute.threads} the "
        f"compute of a step takes {1e3 * best.seconds:.1f} instead of {1e3 * whole:.1f} ms",
    )


def arithmetic(evidence: Evidence) -> Iterator[Told]:
    """The model's own operations: what they take beyond their time at the machine's ceiling."""
    total = compute_cost(evidence)
    fixed, least_fixed, most_fixed = dispatch_seconds(evidence)
    if evidence.compute.fixed_s is None:
        fixed = least_fixed = most_fixed = 0.0
    at_best = ceiling_seconds(evidence)
    moving = sum(moving_seconds(evidence))
    taken = max(0.0, total - fixed - moving)
    useless, why = _useless(evidence)
    if useless >= LEAST_USELESS:
        seconds = useless * taken
        yield Told(
            of_step(evidence, seconds, 0.8 * seconds, min(taken, 1.1 * seconds), "predicted"),
            evidence.compute.where,
            f"the model's operations take {1e3 * taken:.1f} of {1e3 * evidence.steps.mean_s:.1f} ms "
            f"of a step, {why}",
            sure=False,
        )
        return
    low = 0.95 * (total - most_fixed - moving) - 1.1 * at_best
    high = 1.05 * (total - least_fixed - SURELY_MOVED * moving) - 0.9 * at_best
    cost = of_step(evidence, max(0.0, taken - at_best), max(0.0, low), max(0.0, high))
    ceiling = (
        f": {100 * min(1.0, at_best / taken):.0f} % of this machine's ceiling, at which the rest "
        "would be gained"
        if at_best and taken
        else ""
    )
    yield Told(
        cost,
        evidence.compute.where,
        f"the model's operations take {1e3 * taken:.1f} of {1e3 * cost.whole_s:.1f} ms of a step"
        + ceiling,
        sure=False,
    )


def _useless(evidence: Evidence) -> tuple[float, str]:
    """Share of the arithmetic that is done on nothing, and what it is."""
    compute = evidence.compute
    empty = compute.empty_flops / compute.flops if compute.flops else 0.0
    if compute.padding >= empty:
        what = (
            f"and {100 * compute.padding:.0f} % of its positions are padding: batches of sequences"
        )
        return compute.padding, what + " of one length would do without"
    what = (
        f"and {100 * empty:.0f} % of it multiplies by zeros: an index would do in place of one-hot"
    )
    return empty, what + " rows (nn.Embedding, gather)"


def capacity(evidence: Evidence) -> Iterator[Told]:
    """Memory nearly full."""
    memory = evidence.memory
    if memory.peak_bytes and memory.full > 0.9:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            evidence.compute.where,
            f"a step's tensors take {memory.peak_bytes / 2**30:.2f} GiB and the rest of the process "
            f"{memory.beside_bytes / 2**30:.2f}, of {memory.limit_bytes / 2**30:.2f} GiB",
        )


def bandwidth(evidence: Evidence) -> Iterator[Told]:
    """Element-wise operators that each read and write all of a large tensor."""
    moving, pages = moving_seconds(evidence)
    seconds = moving + pages
    if not moving or seconds < 0.3 * compute_cost(evidence):
        return
    cost = of_step(evidence, seconds, SURELY_MOVED * seconds, 1.1 * seconds, "predicted")
    fresh = f", and {1e3 * pages:.0f} ms to take fresh pages for it" if pages > 0.1 * moving else ""
    yield Told(
        cost,
        evidence.compute.where,
        f"element-wise operations move {evidence.compute.moved_bytes / 2**30:.2f} GiB a step: "
        f"{1e3 * moving:.0f} of {1e3 * cost.whole_s:.0f} ms at this machine's bandwidth{fresh}",
    )


def leak(evidence: Evidence) -> Iterator[Told]:
    """Memory that grows with every step."""
    memory, data = evidence.memory, evidence.input
    objects = (
        f"{data.copied_holder or 'the data set'} holds some {float(f'{data.copied_objects:.2g}'):,.0f}, "
        f"{data.copied_bytes / 2**20:.0f} MiB"
    )
    if data.workers and data.worker_growth_bytes:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            data.places[0][0] if data.places else data.where,
            f"{data.workers} workers come to own {data.worker_growth_bytes / 2**20:.2f} MiB more a step: "
            "they keep what they read, or read Python objects, whose reference counts have each worker "
            "copy their pages (arrays and tensors have none)"
            + (f"; {objects}" if data.copied_bytes > WORTH_NAMING else ""),
        )
    elif data.workers * data.copied_bytes > MOST_COPIED * memory.limit_bytes > 0:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            data.where,
            f"{data.workers} workers will each copy the Python objects that they read: {objects}, of "
            f"{memory.limit_bytes / 2**30:.1f} GiB for all (arrays of numbers or of text are not copied)",
        )
    if memory.growth_low <= 0:
        return
    left = max(1, (evidence.run.total_steps or 100 * evidence.steps.count) - evidence.steps.count)
    ends = memory.rss_bytes + memory.growth_bytes_step * left > memory.limit_bytes > 0
    what = f"; {memory.retained_name} keeps what it is given" if memory.retained_name else ""
    if ends or memory.growth_bytes_step > 2**20 or memory.retained_name:
        yield Told(
            of_step(evidence, 0.0, 0.0, 0.0),
            memory.retained_where,
            f"memory grows by {memory.growth_bytes_step / 2**20:.2f} MiB a step{what}"
            + ("; it will not last to the end of the run" if ends else ""),
        )


def startup(evidence: Evidence) -> Iterator[Told]:
    """All before the first step, but for what torch itself takes to be imported."""
    run = evidence.run
    loading = min(run.loading_s, run.startup_s)
    for told in _outside("startup")(evidence):
        cost = of_run(evidence, run.startup_s - loading)
        own = f"; {loading:.1f} s of it are the import of torch" if loading else ""
        yield told._replace(cost=cost, reason=told.reason + own)


def straggler(evidence: Evidence) -> Iterator[Told]:
    """One rank is slower than the others, which wait for it.

    Where it waits for its input it could be as fast as they are; where it computes for longer, its
    work could be shared.
    """
    if len(evidence.ranks) < 2:
        return
    slowest = max(evidence.ranks, key=lambda rank: own_seconds(rank).middle)
    own, others = own_seconds(slowest), [own_seconds(r) for r in evidence.ranks if r != slowest]
    next_slowest = max(pace.middle for pace in others)
    gap = own.middle - next_slowest
    if evidence.steps.mean_s - next_slowest < 0.5 * gap:
        return  # Nobody waits for it: these ranks do not train together.
    waits = slowest.input_s - min(rank.input_s for rank in evidence.ranks)
    by_input = waits > 0.5 * gap
    part = 1.0 if by_input else 1 - 1 / len(evidence.ranks)
    low = own.low - max(pace.high for pace in others)
    high = own.high - max(pace.low for pace in others)
    cost = of_step(evidence, part * max(0.0, gap), part * max(0.0, low), part * max(0.0, high))
    why = "waits for its batches" if by_input else "computes"
    yield Told(
        cost,
        slowest.input_where if by_input else slowest.compute_where,
        f"rank {slowest.rank} takes {1e3 * own.middle:.1f} ms for a step of its own, the next slowest "
        f"{1e3 * next_slowest:.1f}: it {why} for longer",
    )


def allreduce(evidence: Evidence) -> Iterator[Told]:
    """Exchanging gradients, beyond what hides behind the backward pass."""
    if len(evidence.ranks) < 2:
        return
    paces = [own_seconds(rank) for rank in evidence.ranks]
    whole = evidence.steps.mean_s
    seconds = whole - max(pace.middle for pace in paces)
    low, high = whole - max(p.high for p in paces), whole - max(p.low for p in paces)
    cost = of_step(evidence, max(0.0, seconds), max(0.0, low), max(0.0, high))
    mib = 4 * evidence.compute.parameters / 2**20
    yield Told(
        cost,
        evidence.compute.exchange_where or evidence.compute.where,
        f"without exchanging {mib:.0f} MiB of gradients a step would be "
        f"{1e3 * max(0.0, seconds):.1f} of its {1e3 * whole:.1f} ms shorter",
    )


def _outside(*names: str) -> Row:
    def row(evidence: Evidence) -> Iterator[Told]:
        for entry in evidence.ledger:
            if entry.name not in names or (entry.name == "elsewhere" and entry.where is None):
                continue
            cost = of_run(evidence, entry.seconds, 0.1 if entry.name == "elsewhere" else 0.05)
            yield Told(
                cost,
                entry.where,
                f"{entry.name if entry.name != 'elsewhere' else 'this line'} takes "
                f"{entry.seconds:.1f} s, {100 * entry.share:.0f} % of the run",
            )

    return row


TABLE: tuple[tuple[Bound, str, Row], ...] = (
    ("io", "storage", storage),
    ("io", "parse", parse),
    ("io", "augment", augment),
    ("io", "collate", collate),
    ("io", "ipc", ipc),
    ("io", "transfer", transfer),
    ("compute", "dispatch", dispatch),
    ("compute", "sync", sync),
    ("compute", "threads", threads),
    ("compute", "arithmetic", arithmetic),
    ("memory", "capacity", capacity),
    ("memory", "leak", leak),
    ("memory", "bandwidth", bandwidth),
    ("communication", "straggler", straggler),
    ("communication", "allreduce", allreduce),
    ("outside", "startup", startup),
    ("outside", "validation", _outside("validation")),
    ("outside", "checkpoint", _outside("checkpoint")),
    ("outside", "logging", _outside("logging")),
    ("outside", "other", _outside("elsewhere")),
)


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, the first being what the training is bound by."""
    if not evidence.steps.count:
        return []
    rows: list[tuple[Finding, bool, float]] = []
    for bound, cause, row in TABLE:
        for told in row(evidence):
            gain = told.cost.gain
            urgent = cause in URGENT
            if not urgent and (told.cost.run_share < SMALLEST or not gain.is_gain):
                continue
            finding = Finding(bound, cause, told.where, told.cost.run_share, gain, told.reason)
            rows.append((finding, told.sure, told.cost.run_share))
    weight: dict[str, float] = {}
    for finding, sure, share in rows:
        part = share
        if finding.bound == "compute":
            part = arithmetic_share(evidence) if not sure else 0.0
        elif finding.cause in URGENT:
            part = 0.01
        weight[finding.bound] = weight.get(finding.bound, 0.0) + part
    rows.sort(key=lambda r: (-weight[r[0].bound], not r[1], -r[2]))
    return [finding for finding, _, _ in rows]


def arithmetic_share(evidence: Evidence) -> float:
    """Share of the run in forward, backward and optimizer, less waiting for ranks and moving memory."""
    total = compute_cost(evidence)
    moved = sum(moving_seconds(evidence)) / total if total else 0.0
    share = evidence.share("forward", "backward", "optimizer")
    whole = evidence.steps.mean_s
    waited = exchange_seconds(evidence) / whole * step_share(evidence) if whole else 0.0
    return max(0.0, share - waited) * (1 - moved)
