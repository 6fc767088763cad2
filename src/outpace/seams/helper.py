"""Models that are asked in each step and do not learn from it: a teacher, an average of the weights, a
target network, a frozen encoder, a loss that is a network.

Such a call looks like one of a validation. It is told from it by where it stands, after a batch of the
training was drawn and before the step is over, and by coming in each step. Without a loader only models
that never learn are taken for helpers, those in training mode where several learn, as a generator whose
samples another one learns to know, or where one helps already, as a network that says which action is best
beside the one that it learns from; and those that act: in training mode, on a part of a batch, as a
policy is asked what to do next before it learns from what came of it; also where it learns from that by a
loader, made anew each time.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from outpace.seams.batch import batch_size
from outpace.seams.host import Host
from outpace.seams.root import RootFacts

EACH = 3
"""steps in a row after which a model is known to help"""
ACTS_ON = 0.25
"""of a training's batch at the most: what is judged is no less than what is learnt from"""


def of_the_step(host: Host, facts: RootFacts, module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Whether a model's call without learning belongs to the running step."""
    if facts.asked_at != host.steps:
        facts.asked = facts.asked + 1 if facts.asked_at == host.steps - 1 else 1
        facts.asked_at = host.steps
    record = host.drawn.last
    if host.fed:
        placed = record is not None and record.trains and record.drawn > 0
    else:
        roots = list(host.roots.values())
        several = sum(each.learns for each in roots) > 1
        asked = several or any(each.evaluations.helps for each in roots)
        placed = not facts.learns or (module.training and asked)
    judged = facts.evaluations
    if not _acts(host, module, args) and not (placed and (judged.helps or facts.asked > EACH)):
        return False
    if not judged.helps:
        judged.helps = host.mistaken = True
    return True


def _acts(host: Host, module: nn.Module, args: tuple[Any, ...]) -> bool:
    """Whether it is asked for what is learnt from later.

    Where a loader gives the batches, one is made for what each round of acting gave: the one before is gone
    by then, or was made anew too. Beside a loader that stays it may be tried out, as on a text to go on with.
    """
    record = host.drawn.last
    if host.fed and record is not None and (record.drawn or not record.remade):
        return False
    if not host.steps or not module.training:
        return False
    return 0 < batch_size(args) <= ACTS_ON * host.batch_size
