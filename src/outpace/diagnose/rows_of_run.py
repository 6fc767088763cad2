"""Rows of the table of bottlenecks: what a run does beside its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from outpace.diagnose.costs import ERROR, of_run
from outpace.diagnose.told import Row, Told
from outpace.records.evidence import Evidence

CALLS = ("transfer", "sync")
"""of tensors, which on a CPU wait for nothing: what they take is their own"""


def startup(evidence: Evidence) -> Iterator[Told]:
    """All before the first step, but for what torch itself takes to be imported.

    Of a training whose length is not known nobody can say what share of it that is.
    """
    run = evidence.run
    if run.estimated_s is None:
        return
    loading = min(run.loading_s, run.startup_s)
    for told in outside("startup")(evidence):
        cost = of_run(evidence, run.startup_s - loading)
        own = f"; {loading:.1f} s of it are the import of torch" if loading else ""
        yield told._replace(cost=cost, reason=told.reason + own)


def outside(name: str, said: str | None = None) -> Row:
    """The row for what the ledger has under a name, and how that is called."""

    def row(evidence: Evidence) -> Iterator[Told]:
        doubted = doubted_s(evidence, name)
        for entry in evidence.ledger:
            if entry.name == name:
                told = _taken(evidence, said or name, entry.where, entry.seconds)
                if doubted:
                    low = (1 - ERROR) * max(0.0, entry.seconds - doubted)
                    cost = replace(told.cost, low=low, how="predicted")
                    told = told._replace(
                        cost=cost, reason=f"{told.reason} at most: it came once so far"
                    )
                yield told

    return row


def doubted_s(evidence: Evidence, name: str) -> float:
    """Seconds of a run that are told of what came once, and may come less often than that."""
    total = evidence.run.total_steps
    if total is None:
        return 0.0
    unsure = (one for one in evidence.run.recurring if one.name == name and not one.sure)
    return sum(max(0.0, one.seconds(total) - one.so_far_s) for one in unsure)


def elsewhere(evidence: Evidence) -> Iterator[Told]:
    """What the script does between steps, where one place explains it."""
    alone = evidence.compute.device == "cpu" and not evidence.together
    names = ("elsewhere", *(CALLS if alone else ()))
    places: dict[str, float] = {}
    for entry in evidence.ledger:
        if entry.name in names and entry.where is not None:
            places[entry.where] = places.get(entry.where, 0.0) + entry.seconds
    what = f"what is done here{', longer with each step,' if evidence.run.grown_s else ''}"
    for where, seconds in places.items():
        yield _taken(evidence, what, where, seconds, error=0.1)


def _taken(
    evidence: Evidence, what: str, where: str | None, seconds: float, error: float = ERROR
) -> Told:
    cost = of_run(evidence, seconds, error)
    share = f"{100 * cost.run_share:.0f} % of the run"
    return Told(cost, where, f"{what} takes {seconds:.1f} s, {share}")
