"""THE table of learning-health rules: from the losses that were seen to a finding.

So far it has the one rule that no run should go without; each rule gives evidence and advice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from outpace.records.evidence import Evidence
from outpace.records.finding import Learning


def not_a_number(evidence: Evidence) -> Iterator[Learning]:
    """The loss became NaN or infinite: from there on nothing is learned."""
    step = evidence.loss.first_bad_step
    if step is not None:
        yield Learning(
            "nan",
            "critical",
            f"the loss is not a finite number from step {step} on",
            "lower the learning rate or clip gradients; torch.autograd.set_detect_anomaly(True) "
            "names the operation that made it",
        )


TABLE: tuple[Callable[[Evidence], Iterator[Learning]], ...] = (not_a_number,)


def learning(evidence: Evidence) -> list[Learning]:
    """What the losses tell of the learning's health."""
    return [told for rule in TABLE for told in rule(evidence)]
