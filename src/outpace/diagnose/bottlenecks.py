"""THE table of bottlenecks: one row a cause, from evidence to a finding.

A row gives a finding only where the interval of its gain excludes "no gain". Findings are ordered
by bound, the bound that takes most of the run first; within a bound by cause, where "arithmetic" is
what remains when nothing else explains the compute, and so comes after causes that do. Where computing
takes most of a run and nothing in it would gain, arithmetic is told all the same: the training is bound
by it, not by the little that else could be gained.
"""

from __future__ import annotations

from outpace.diagnose.costs import (
    compute_cost,
    exchange_seconds,
    moving_seconds,
    step_share,
)
from outpace.diagnose.rows_of_compute import arithmetic, dispatch, sync, threads
from outpace.diagnose.rows_of_input import augment, collate, ipc, parse, storage, transfer
from outpace.diagnose.rows_of_memory import bandwidth, capacity, leak
from outpace.diagnose.rows_of_ranks import allreduce, straggler
from outpace.diagnose.rows_of_run import outside, startup
from outpace.diagnose.told import Row
from outpace.records.evidence import Evidence
from outpace.records.finding import Bound, Finding

URGENT = ("capacity", "leak")
"""told whatever they cost by now: they end a run"""
SMALLEST = 0.02
"""share of the run below which nothing is said"""
MOST = 0.5
"""share of the run that computing takes, from which on the training is bound by it, gain or no gain"""


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
    ("outside", "validation", outside("validation")),
    ("outside", "checkpoint", outside("checkpoint")),
    ("outside", "logging", outside("logging")),
    ("outside", "other", outside("elsewhere")),
)


def findings(evidence: Evidence) -> list[Finding]:
    """All findings, the first being what the training is bound by."""
    if not evidence.steps.count:
        return []
    rows: list[tuple[Finding, bool, float]] = []
    at_ceiling: list[Finding] = []
    for bound, cause, row in TABLE:
        for told in row(evidence):
            gain = told.cost.gain
            finding = Finding(bound, cause, told.where, told.cost.run_share, gain, told.reason)
            if cause in URGENT or (told.cost.run_share >= SMALLEST and gain.is_gain):
                rows.append((finding, told.sure, told.cost.run_share))
            elif cause == "arithmetic":
                at_ceiling.append(finding)
    weight: dict[str, float] = {}
    for finding, _, share in rows:
        part = 0.01 if finding.cause in URGENT else share
        weight[finding.bound] = weight.get(finding.bound, 0.0) + part
    computing = computing_share(evidence)
    first: list[Finding] = []
    if "compute" in weight:
        weight["compute"] = computing  # causes in it may overlap, or not cover it
    elif computing > max([MOST, *weight.values()]):
        first = at_ceiling
    rows.sort(key=lambda r: (-weight[r[0].bound], not r[1], -r[2]))
    return first + [finding for finding, _, _ in rows]


def computing_share(evidence: Evidence) -> float:
    """Share of the run in forward, backward and optimizer, less waiting for ranks and moving memory."""
    total = compute_cost(evidence)
    moved = sum(moving_seconds(evidence)) / total if total else 0.0
    share = evidence.share("forward", "backward", "optimizer")
    whole = evidence.steps.mean_s
    waited = exchange_seconds(evidence) / whole * step_share(evidence) if whole else 0.0
    return max(0.0, share - waited) * (1 - moved)
