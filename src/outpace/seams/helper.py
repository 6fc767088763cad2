"""Models that are asked in each step and do not learn from it: a teacher, an average of the weights, a
target network, a frozen encoder, a loss that is a network.

Such a call looks like one of a validation. It is told from it by where it stands, after a batch of the
training was drawn and before the step is over, and by coming in each step. Without a loader only
models that never learn are taken for helpers.
"""

from __future__ import annotations

from outpace.seams.host import Host, RootFacts

EACH = 3
"""steps in a row after which a model is known to help"""


def of_the_step(host: Host, facts: RootFacts) -> bool:
    """Whether a model's call without learning belongs to the running step."""
    if facts.asked_at != host.steps:
        facts.asked = facts.asked + 1 if facts.asked_at == host.steps - 1 else 1
        facts.asked_at = host.steps
    record = host.drawn.last
    if host.fed:
        placed = record is not None and record.trains and record.drawn > 0
    else:
        placed = not facts.training_calls
    judged = facts.evaluations
    if not placed or not (judged.helps or facts.asked > EACH):
        return False
    if not judged.helps:
        judged.helps = host.mistaken = True
    return True
