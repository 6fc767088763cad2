"""How a training begins, anew with its first weights or where its newest checkpoint left it, and how all
is put back when it is over.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

from outpace.errors import DataError, OutpaceError
from outpace.plan.budget import duration
from outpace.train import ranks
from outpace.train.checkpoint import Checkpoints, copied
from outpace.train.layers import set_learning
from outpace.train.result import Choice
from outpace.train.run import Run
from outpace.train.strategies.base import LAST, Strategy
from outpace.train.strategies.restarts import Restarts

EARLY = 0.1
"""of the budget after which there is a first checkpoint, where ``every`` is longer"""
LEAST_FACTOR = 0.01
"""of the largest rate, below which nothing is learnt"""
Found = tuple[Path, dict[str, Any]] | None
"""the newest checkpoint"""


@contextmanager
def put_back(run: Run) -> Iterator[None]:
    """However it ends inside, strategies and callbacks are told that it is over, the last ones first."""
    with ExitStack() as told:
        for tell in run.events.over:
            told.callback(tell, run)
        yield


def start(run: Run, found: Found) -> None:
    """Strategies prepare; then weights are those of a checkpoint, or the first ones are made."""
    set_learning(run.module)  # checkpoints are of models in that mode
    run.optimizer.zero_grad()  # a training that was interrupted has left its gradients
    if found is not None:
        run.kept = frozenset(found[1].get("strategies", ()))
    for strategy in run.events.strategies:
        strategy.prepare(run)
    if found is not None:
        resume(run, *found)
    else:
        first_weights(run)
    if run.world > 1:
        ranks.alike(run.of_loss().values())
    if run.checkpoints is not None:
        first_checkpoint(run, run.checkpoints)


def first_checkpoint(run: Run, checkpoints: Checkpoints) -> None:
    """When it is due: early in a budget, as the last one takes as long, for which time is kept."""
    clock, after = run.clock, checkpoints.every_s
    if not clock.save_s:
        after = min(after, EARLY * clock.seconds)
    checkpoints.next_s = after + (clock.elapsed if run.resumed else 0.0)


def first_weights(run: Run) -> None:
    """Those that strategies make."""
    own = Strategy.first_weights
    first = [each for each in run.events.strategies if type(each).first_weights is not own]
    if first:
        with run.whole():
            for strategy in sorted(first, key=lambda each: each.name in LAST):
                strategy.first_weights(run)


def first_batches(run: Run) -> None:
    """A training that begins anew finds out how large its steps are to be."""
    if not run.resumed:
        for strategy in run.events.strategies:
            strategy.first_batches(run)


def check_course(run: Run) -> None:
    """Raise DataError where a training that had come to its end is to be longer, and would learn nothing."""
    ended = run.over() is not None or not run.clock.left(run.step)
    if any(isinstance(each, Restarts) and each.rises(run) for each in run.events.strategies):
        return
    if run.longer and run.rates.factor < LEAST_FACTOR and not ended:
        assert run.checkpoints is not None
        raise DataError(
            f"the training in {run.checkpoints.folder} had come to the end of its rate's course: what is "
            "added would be learnt at a rate of next to nothing",
            "train on in another folder, with the weights of best.pt in this one loaded into the model",
        )


def choice_of(found: Found) -> Choice | None:
    """What "auto" chose when the training that is gone on with began."""
    return None if found is None else msgspec.convert(found[1].get("choice", {}), Choice)


def resume(run: Run, path: Path, state: dict[str, Any]) -> None:
    """Go on from a checkpoint. Raises DataError where it is of another training."""
    assert run.checkpoints is not None
    before = copied(run.learned(but=[each.name for each in run.events.strategies]))
    try:
        run.load_state_dict(state, rank=ranks.number())
    except OutpaceError:
        run.load_learned(before)  # what was of the other one and fitted
        raise
    except (RuntimeError, KeyError, ValueError) as error:
        run.load_learned(before)
        raise DataError(
            f"{path} is of another training: {error}",
            "name another folder for this one, or delete the checkpoints to begin anew",
        ) from error
    run.telling.say(
        f"goes on from {path}: step {run.step:,}, {duration(run.clock.elapsed)} of training"
    )
