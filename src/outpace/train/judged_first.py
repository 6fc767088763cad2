"""What validations will be like, seen on some batches before the training.

A mistake in ``valid=`` or ``metric=`` is met now, not after an epoch. And where one pass over all of the
data would take much of the budget, samples at equal distances judge, or the first batches of what is given
ready.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.parameter import is_lazy

from outpace.plan.budget import duration
from outpace.seams.generators import generators_kept
from outpace.seams.modes import evaluating
from outpace.serve.loader import Loader
from outpace.train import ranks
from outpace.train.clock import done
from outpace.train.data import Batches
from outpace.train.run import Run

LOOKED_AT = 2
"""batches: the first one takes longer"""
MUCH, LESS = 0.2, 0.1
"""of a budget that one pass may take, else so much is left to it: several are to fit"""


def judge_first(run: Run) -> None:
    """Find out whether validations will work, and how many batches judge: of a training that is gone on with
    as many as before, without a look. Raises what loss and metric raise.
    """
    if run.valid is None or run.shards is not None:  # these are called by all ranks together
        return
    whole = run.valid.whole
    if not run.resumed:
        batch_s = ranks.most(seconds_of_batch(run, run.valid), run.world)
        run.judged_by = fewer(run, whole, batch_s)
    if run.judged_by is not None:
        judge_by(run.valid, run.judged_by)
        if not run.resumed:
            run.clock.validation_steps *= run.judged_by / (whole or run.judged_by)


def seconds_of_batch(run: Run, valid: Batches) -> float:
    """That a batch takes to be judged; 0 where the model is not there before its first call."""
    model = run.module
    if any(map(is_lazy, (*model.parameters(), *model.buffers()))):
        return 0.0
    seconds, batches = 0.0, valid.peek(LOOKED_AT)
    with torch.no_grad(), generators_kept(), evaluating(model), run.objective.kept():
        for batch in batches:
            began = done(run.clock.now)
            run.objective.meet(model, batch)
            seconds = done(run.clock.now) - began
    return seconds if len(batches) == LOOKED_AT else 0.0


def fewer(run: Run, whole: int | None, batch_s: float) -> int | None:
    """How many of ``whole`` batches are to judge under a budget, where each takes so long; None: all."""
    budget_s = run.clock.seconds
    if math.isinf(budget_s) or not batch_s:
        return None
    most = max(1, int(LESS * budget_s / batch_s))
    if whole is None:
        return most
    takes_s = ranks.most(whole * batch_s, run.world)
    if takes_s <= MUCH * budget_s or most >= whole:
        return None
    run.note(
        f"valid= is judged by {most:,} of its {whole:,} batches: all of them would take about "
        f"{duration(takes_s)} of a budget of {duration(budget_s)}"
    )
    return most


def judge_by(valid: Batches, batches: int) -> None:
    """Have so many batches of it judge from here on."""
    loader = valid.source
    if valid.own and isinstance(loader, Loader):
        samples = min(loader.order.size, batches * loader.batch_size * loader.world)
        factors = np.zeros(loader.order.size)
        factors[np.linspace(0, len(factors) - 1, samples).round().astype(np.int64)] = 1.0
        loader.repeat(factors)
    else:
        valid.most = batches
