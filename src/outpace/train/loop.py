"""The training loop, all of it. Strategies and callbacks are told of events, in their order.

A step: a batch or some together, their loss, gradients, the optimizer. An epoch: the batches of the
data once, then a validation, unless ``validate_every`` had one on the way. Between two steps a checkpoint
is taken where it is time for one. Training
ends by the number of epochs or of steps, by the budget, or where a strategy calls ``run.stop(reason)``.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from outpace.errors import UsageError
from outpace.plan.budget import duration
from outpace.records.training import Row
from outpace.seams.batch import batch_size
from outpace.seams.generators import generators_kept
from outpace.seams.modes import evaluating
from outpace.train import ranks
from outpace.train.checkpoint import copied
from outpace.train.data import Together
from outpace.train.layers import set_learning
from outpace.train.result import Best
from outpace.train.run import Run
from outpace.train.scaled import move
from outpace.train.whole_metric import AVERAGED


def train(run: Run) -> None:
    """From the first step, or from where ``run`` goes on, to the last."""
    for tell in run.events.begin:
        tell(run)
    run.optimizer.zero_grad()  # what was tried on copies may have reached the model by the loss
    run.clock.start()
    run.running = True
    if run.train.under_way and run.train.at_end:
        epoch(run)  # the checkpoint is of its last step, and only its end is to come
    while (why := run.over()) is None and (run.epochs is None or run.epoch < run.epochs):
        epoch(run)
    if not run.judged_since(run.step - 1):
        validate(run)
    run.end(why or "epochs")
    if run.stopped == "budget" and not run.step:
        took, of = duration(run.clock.first_s or 0.0), duration(run.clock.seconds)
        run.note(
            f"no step was made: what comes before the first one took {took}, of a budget of {of}"
        )
    if run.best is not None and run.cost(run.best.row) == math.inf:
        run.note("no validation gave a number to judge by: the last weights are kept")
    for tell in run.events.end:
        tell(run)


def epoch(run: Run) -> None:
    """An epoch, or what is left of it."""
    if not run.train.under_way:
        run.begun = run.step
        for tell in run.events.epoch_begin:
            tell(run)
        run.take_up()
    set_learning(run.module)
    for batch in run.in_step(run.train.epoch()):
        step(run, batch)
        if run.due:
            validate(run)
            set_learning(run.module)
        if run.over() and not run.train.at_end:
            return
        attend(run)
    if not run.train.drawn:
        if not run.step:
            raise UsageError("there is nothing to learn from", "train= gives no batch")
        run.note("train= gave no batch in another epoch: it can be gone through once only")
        run.end("data")
        return
    run.epoch += 1
    if not run.train.exact:
        run.set_end()  # by as many batches as this one had
    if not run.judged_at_end:
        validate(run)
    for tell in run.events.epoch_end:
        tell(run)


def step(run: Run, batch: Any) -> None:
    """One step."""
    loss = accumulated(run, batch) if type(batch) is Together else gradients(run, batch)
    if run.world > 1:
        run.exchange()
    run.scaler.unscale_(run.optimizer)
    for tell in run.events.gradients:
        tell(run)
    move(run.scaler, run.optimizer)
    run.step += 1
    run.losses.add(loss)
    run.ahead.step_ended()
    run.clock.step_ended(run.step)
    for tell in run.events.step_end:
        tell(run)


def gradients(run: Run, batch: Any, share: float = 1.0) -> torch.Tensor:
    """Add those of a batch, as a share of a step's; its loss, times that share."""
    events = run.events
    for change in events.batch:
        changed = change(run, batch)
        batch = batch if changed is None else changed
    try:
        loss = run.objective(run.model, batch)
    except AttributeError as error:
        if type(run.model).__name__ not in str(error) or run.model is run.module:
            raise
        raise UsageError(
            f"on several ranks the model is called through {type(run.model).__name__}: {error}",
            "what loss= reads of it besides is at getattr(model, 'module', model)",
        ) from error
    for change in events.loss:
        changed = change(run, loss)
        loss = loss if changed is None else changed
    if not loss.requires_grad:
        raise UsageError(
            "the loss has no gradient",
            "all weights are frozen, or loss= leaves torch on its way (detach, item, numpy)",
        )
    loss = loss if share == 1.0 else share * loss
    run.scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
    return loss


def accumulated(run: Run, batches: Together) -> torch.Tensor:
    """The gradients of several batches as of one: each counts by its samples, ranks exchange once."""
    samples = [batch_size(batch) for batch in batches]
    shares = [count / sum(samples) for count in samples]
    *first, last = zip(batches, shares, strict=True)
    with ranks.apart(run.model):
        losses = [gradients(run, *each).detach() for each in first]
    return torch.stack([*losses, gradients(run, *last).detach()]).sum()


def validate(run: Run) -> None:
    """A row of the history, and, where there is something to validate on, a judgement."""
    began, run.asked = run.clock.read(), False
    run.history.append(judged(run))
    row = run.history[-1]
    if run.valid is not None:
        run.earlier = run.best
        least = math.inf if run.best is None else run.cost(run.best.row)
        # Where none of them is a number the newest weights are kept: they have learnt the most.
        if least == math.inf or run.cost(row) < least:
            weights = copied(run.judged_model().state_dict())
            run.best = Best(row, weights, copied(run.of_loss()))
        for tell in run.events.validated:
            tell(run)
        run.earlier = None  # as large as a model
        run.clock.validation_s = run.clock.read() - began
    run.telling.row(run)


def judged(run: Run) -> Row:
    """The row."""
    mean = run.losses.mean()
    loss = metric = None
    if run.valid is not None:
        if run.world > 1:  # what is judged is what the first rank is to keep
            ranks.alike(run.module.buffers())
        model = run.judged_model()
        with torch.no_grad(), generators_kept(), evaluating(model):
            batches = run.together(model, run.valid.epoch())
            own = run.objective.judge(model, batches)
        found = ranks.judged(own, run.world, run.device)
        loss, metric = found.loss, found.metric
        if 0 < found.untold < found.samples:
            run.note(
                "the loss of some batches of valid= is no number and the weights are, as where all targets "
                "of a batch are ignored: the validation loss is the mean of the others"
            )
        if found.metric is not None and 0 < found.measured < found.samples:
            run.note(
                "metric= gives no number for some batches of valid=: it is the mean of what the others give"
            )
        if run.objective.averaged:
            run.note(AVERAGED)
    seconds = run.clock.read()
    finished = run.epoch + (run.train.under_way and run.train.at_end)
    return Row(finished, run.step, seconds, mean, loss, metric, run.rates.now)


def attend(run: Run) -> None:
    """What is to be done between two steps, some of the time: a checkpoint, a line of progress."""
    elapsed, saves = run.clock.elapsed, run.checkpoints
    # Near the end the last one follows, and would have to wait until this one is written.
    if saves is not None and saves.due(elapsed, together=run.world > 1) and not run.ending:
        run.save()
    if elapsed >= run.telling.next_s:
        run.telling.draw(run)
