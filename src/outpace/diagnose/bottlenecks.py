"""THE table of bottlenecks: one row a cause, from evidence to a finding.

A row gives a finding only where the interval of its gain excludes "no gain". Findings are ordered
by bound, the bound that costs most of the run first; within a bound by cause, where "arithmetic" is
what remains when nothing else explains the compute, and so comes after causes that do. A training that
computes most of the time is bound by that, whatever could be gained elsewhere; arithmetic is told then
even where nothing in it would gain. In any other what would gain most comes first.
"""

from __future__ import annotations

from outpace.diagnose.costs import (
    compute_cost,
    input_cost,
    moving_seconds,
    once_share,
    step_share,
)
from outpace.diagnose.ranks import exchange_seconds
from outpace.diagnose.rows_of_compute import arithmetic, dispatch, recompiling, sync, threads
from outpace.diagnose.rows_of_input import augment, collate, ipc, parse, storage, transfer
from outpace.diagnose.rows_of_memory import bandwidth, capacity, leak
from outpace.diagnose.rows_of_ranks import allreduce, straggler
from outpace.diagnose.rows_of_run import elsewhere, outside, startup
from outpace.diagnose.rows_of_waste import (
    called_again,
    called_alike,
    computing_again,
    constant_calls,
    doubled,
    ignored_targets,
    sliced_in_loops,
    untouched_rows,
    unused_gradients,
    zeroed_gradients,
)
from outpace.diagnose.told import Row
from outpace.records.evidence import Evidence
from outpace.records.finding import Bound, Finding

URGENT = ("capacity", "leak")
"""told whatever they cost by now: they end a run"""
MOST = 0.5
"""of the run without its start and end: what computing takes of it, from which on the training is bound by
it, gain or no gain"""
SMALLEST = 0.02
"""share of the run below which nothing is said"""


TABLE: tuple[tuple[Bound, str, Row], ...] = (
    ("io", "storage", storage),
    ("io", "parse", parse),
    ("io", "augment", augment),
    ("io", "collate", collate),
    ("io", "ipc", ipc),
    ("io", "transfer", transfer),
    ("compute", "dispatch", dispatch),
    ("compute", "dispatch", recompiling),
    ("compute", "sync", sync),
    ("compute", "threads", threads),
    ("compute", "arithmetic", computing_again),
    ("compute", "arithmetic", called_again),
    ("compute", "arithmetic", called_alike),
    ("compute", "arithmetic", constant_calls),
    ("compute", "arithmetic", zeroed_gradients),
    ("compute", "arithmetic", doubled),
    ("compute", "arithmetic", sliced_in_loops),
    ("compute", "arithmetic", ignored_targets),
    ("compute", "arithmetic", unused_gradients),
    ("compute", "arithmetic", untouched_rows),
    ("compute", "arithmetic", arithmetic),
    ("memory", "capacity", capacity),
    ("memory", "leak", leak),
    ("memory", "bandwidth", bandwidth),
    ("communication", "straggler", straggler),
    ("communication", "allreduce", allreduce),
    ("outside", "startup", startup),
    ("outside", "validation", outside("validation")),
    ("outside", "checkpoint", outside("checkpoint")),
    ("outside", "logging", outside("logging")),
    ("outside", "other", outside("epoch_end", "what follows an epoch")),
    ("outside", "other", elsewhere),
)


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, the first being what the training is bound by."""
    if not evidence.steps.count:
        return []
    rows: list[tuple[Finding, bool, float]] = []
    at_ceiling: list[Finding] = []
    for bound, cause, row in TABLE:
        for told in row(evidence):
            cost, gain = told.cost, told.cost.gain
            finding = Finding(
                bound, cause, told.where, cost.run_share, gain, told.reason, gain_of=cost.gain_of
            )
            if cause in URGENT or (cost.run_share >= SMALLEST and gain.is_gain):
                rows.append((finding, told.sure, cost.run_share))
            elif row is arithmetic:
                at_ceiling.append(finding)
    computing = computing_share(evidence)
    mostly = computing > MOST * (1 - once_share(evidence))
    weight = weights(evidence, [finding for finding, _, _ in rows])
    if "compute" in weight:
        # Causes in it may overlap, and need not cover it.
        weight["compute"] = computing if mostly else min(weight["compute"], computing)
    first = at_ceiling if mostly and computing > max(weight.values(), default=0.0) else []
    rows.sort(key=lambda r: (-weight[r[0].bound], not r[1], -r[2]))
    return first + [finding for finding, _, _ in rows]


def weights(evidence: Evidence, told: list[Finding]) -> dict[str, float]:
    """Share of the run that each bound costs, by what is told of it; of input all that is waited for."""
    weight: dict[str, float] = {}
    for finding in told:
        part = 0.01 if finding.cause in URGENT else finding.share
        weight[finding.bound] = weight.get(finding.bound, 0.0) + part
    reading = input_cost(evidence)
    if "io" in weight and reading is not None:
        weight["io"] = max(weight["io"], reading.run_share)
    return weight


def computing_share(evidence: Evidence) -> float:
    """Share of the run in forward, backward and optimizer, less waiting for ranks and moving memory.

    What it takes longer beside workers that make the input is the input's: without that it were gone.
    """
    total = compute_cost(evidence)
    moved = moving_seconds(evidence) / total if total else 0.0
    share = evidence.share("forward", "backward", "optimizer", "compiling")
    whole = evidence.steps.mean_s
    waited = exchange_seconds(evidence) / whole * step_share(evidence) if whole else 0.0
    reading = input_cost(evidence)
    without_input = 1.0
    if reading is not None:
        without_input = max(0.0, step_share(evidence) - reading.run_share)
    return min(without_input, max(0.0, share - waited)) * (1 - moved)
