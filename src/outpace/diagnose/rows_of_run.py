"""Rows of the table of bottlenecks: what a run does beside its steps."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose.costs import of_run
from outpace.diagnose.told import Row, Told
from outpace.records.evidence import Evidence

SAID = {"elsewhere": "what is done here", "epoch_end": "what follows an epoch"}


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


def outside(*names: str) -> Row:
    """The row for what the ledger has under these names."""

    def row(evidence: Evidence) -> Iterator[Told]:
        for entry in evidence.ledger:
            if entry.name not in names or (entry.name == "elsewhere" and entry.where is None):
                continue
            cost = of_run(evidence, entry.seconds, 0.1 if entry.name == "elsewhere" else 0.05)
            yield Told(
                cost,
                entry.where,
                f"{SAID.get(entry.name, entry.name)} takes "
                f"{entry.seconds:.1f} s, {100 * entry.share:.0f} % of the run",
            )

    return row
