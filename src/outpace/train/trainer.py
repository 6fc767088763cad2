"""`outpace.Trainer`: a model, a loss and data in; the best weights within the budget out.

It puts a training together from what the user gave and runs `loop.train`; what happens in a step is
written there. Limits: one optimizer; several processes by DistributedDataParallel or in shards, where a
metric is the mean of theirs, unless it gathers over processes itself, as those of torchmetrics do.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, final

import torch

from outpace.errors import UsageError
from outpace.plan.budget import seconds_of
from outpace.plan.countdown import since_boot
from outpace.plan.safety import write
from outpace.records.training import Tried
from outpace.seams.generators import generators_kept
from outpace.seams.held import held_by
from outpace.seams.modes import modes_kept
from outpace.serve.loader import Loader
from outpace.train import given, ranks
from outpace.train.auto import Asked, Known, chosen, is_auto, own_of
from outpace.train.checkpoint import BEST, Checkpoints, copied, newest, seed_all
from outpace.train.choose import compared, settled
from outpace.train.clock import Clock
from outpace.train.data import Batches, batches
from outpace.train.facts import has_batch_norm
from outpace.train.judged_first import judge_first
from outpace.train.layers import copyable, fit_buffers, with_later_buffers
from outpace.train.loop import train as train_loop
from outpace.train.objective import Objective
from outpace.train.optimizers import (
    Given,
    check_unscheduled,
    copies,
    optimizer_for,
    settings_kept,
    unused_decay,
)
from outpace.train.progress import Telling, ended, interrupted, some
from outpace.train.recipe import recipe_applied
from outpace.train.result import Choice, Result, Spent
from outpace.train.run import Run
from outpace.train.start import (
    check_course,
    choice_of,
    first_batches,
    put_back,
    start,
)
from outpace.train.strategies.accumulation import Accumulation
from outpace.train.strategies.base import Events, Strategy, check
from outpace.train.strategies.lr_finder import LrFinder
from outpace.train.strategies.target import Target
from outpace.train.suggestions import Suggestion, suggestions
from outpace.train.trials import SEEDS, Parts
from outpace.train.unreached import unreached

TIMED = 8
"""batches that suggestions are timed on"""
FORWARD = 0.5
"""of a step that a batch of a validation may take, as long as none was made"""
SHARDED = "auto: nothing is tried where weights are in shards"
ENDING = {"target", "early_stopping"}
"""strategies that end a training which has no other end"""
OF_SIZES = {"the size of batches", "the order of samples"}
"""what strategies set that gives an epoch another last batch"""


@final
class Trainer:
    """Trains ``model`` until the budget, the steps or epochs are used or the target is reached.

    ``loss(outputs, targets)``, or ``loss(model, batch)`` for batches that are no pairs; of several
    tasks a dict of losses by name, whose sum it is. ``metric`` the same as a loss, or an object with
    update, compute and reset; ``larger_is_better``: of the metric; None: as it says itself (torchmetrics), or
    as its name tells (smaller for a loss or an error), else larger, with a note.
    ``train``, ``valid``: whatever `outpace.Loader` takes, a tuple of tensors, or ready batches (a
    Loader, a DataLoader; with ``batch_size=None`` any iterable of batches). ``prepare``,
    ``transform``, ``collate`` and ``after`` are the Loader's; ``transform`` is for training alone.
    ``optimizer``: one of torch, whose rate is the largest and is set back afterwards, or a function from
    parameters to one. A function's rate may be torch's default: "auto" takes what lr_finder finds instead,
    where it finds one; ["auto", OneCycle(rate=0.1)] sets one. None: as the strategies have it.
    ``budget``: time such as "2h", or seconds, validation and saving included; ``epochs``, ``steps``:
    other limits; the first that is met ends it. ``target``: of the metric, else of the validation loss.
    ``validate_every``: steps; without it, and in epochs that have no such step, at each epoch's end, and
    with a target as often as a twentieth of the time allows; under a budget it takes a fifth of the time at
    most, at fewer epochs' ends or by fewer batches.
    ``strategies``: "auto", which also tries some in short trainings, for at most 15 % of the budget, or
    names and objects of `outpace.train.strategies` in the order in which they are called.
    ``callbacks``: objects with methods named as events are, or functions of the run, called at each
    epoch's end. ``recipe``: an ``outpace.toml``, put on model and optimizer meanwhile.
    ``shard``: of several processes each has a part of the weights, their gradients and the optimizer's
    state, not all of them (`outpace.train.sharding`); the model is best given on the CPU then, and "auto"
    makes no trials. With one process nothing is sharded.
    ``checkpoint``: a folder; one is saved in it ``every`` so often, and training goes on from the
    newest that is there. ``seed``: of torch, numpy and Python, set at the start; None leaves them.

    Raises UsageError for what does not go together.

    Example::

        trainer = outpace.Trainer(model, loss=F.cross_entropy, train=(x, y), epochs=10)
        result = trainer.fit()
    """

    def __init__(
        self,
        model: torch.nn.Module,
        *,
        loss: Any,
        metric: Any = None,
        train: Any,
        valid: Any = None,
        batch_size: int | None = 64,
        optimizer: Given = None,
        budget: str | float | None = None,
        target: float | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        strategies: Asked = "auto",
        seed: int | None = 0,
        device: str | torch.device | None = None,
        shard: bool = False,
        prepare: Callable[[Any], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        after: Callable[[Any], Any] | None = None,
        validate_every: int | None = None,
        checkpoint: str | Path | None = None,
        every: str | float = "5m",
        larger_is_better: bool | None = None,
        recipe: str | Path | None = None,
        callbacks: Sequence[Any] = (),
        now: Callable[[], float] = since_boot,
    ) -> None:
        given.check_model(model)
        for name, number in (
            *(("epochs", epochs), ("steps", steps), ("batch_size", batch_size)),
            ("validate_every", validate_every),
        ):
            given.check_whole(name, number, least=1)
        given.check_whole("seed", seed)
        given.check_target(target, valid)
        if batch_size is not None:
            given.check_rows("train", train)
            given.check_rows("valid", valid)
        self.both = {"prepare": prepare, "collate": collate, "after": after}
        given.check_made("train", train, batch_size, transform=transform, **self.both)
        given.check_made("valid", valid, batch_size, **self.both)
        given.check_callbacks(callbacks)
        if loss is None:
            raise UsageError("loss is None", "loss=torch.nn.functional.cross_entropy")
        self.model = model
        self.objective = Objective(loss, metric, larger_is_better=larger_is_better)
        given.check_optimizer(optimizer, model, self.objective)
        self.train, self.valid, self.batch_size = train, valid, batch_size
        self.optimizer = optimizer
        self.budget_s = None if budget is None else seconds_of(budget)
        self.target = None if target is None else float(target)
        self.epochs, self.steps = epochs, steps
        self.strategies, self.callbacks = strategies, callbacks
        self.seed = None if seed is None else operator.index(seed)
        self.device, self.shard = ranks.device_of(device, model), shard
        self.transform, self.validate_every = transform, validate_every
        self.checkpoint = Path(checkpoint) if checkpoint is not None else None
        self.every_s = float(every) if every == 0 else seconds_of(every)
        self.recipe, self.now = recipe, now
        self.choice: Choice | None = None
        """what "auto" has chosen for another seed of this training"""
        self.lasting = True
        """whether its checkpoints are there once it was interrupted"""

    def fit(self, *, quiet: bool = False) -> Result:
        """Train. The model holds the best weights afterwards."""
        started = datetime.now().astimezone()
        world = ranks.met(self.device)  # by now it is known which of them speaks
        telling = Telling(quiet=quiet or not ranks.leads())
        checkpoints = None
        if self.checkpoint is not None:
            checkpoints = Checkpoints(self.checkpoint, self.every_s, telling.warn)
        found = newest(checkpoints, world) if checkpoints is not None else None
        run = self.put_together(telling, checkpoints, choice_of(found) or self.choice)
        try:
            with settings_kept(self.optimizer), modes_kept(self.model):
                with put_back(run):
                    start(run, found)
                    del found  # as large as a model and its optimizer, some times over
                    judge_first(run)
                    run.train.lasts(self.epochs, self.left_s(run))
                    with recipe_applied(self.recipe, run):
                        first_batches(run)
                        run.set_end()
                        check_course(run)
                        train_loop(run)
                    if run.checkpoints is not None:
                        run.save()
                result = self.finished(run, started)  # its weights are of a model in training mode
            telling.say(ended(result))
            return result
        except BaseException as error:
            if run.shards is None:  # these would have to be gathered from ranks that may be gone
                self.keep_best(run)
            if isinstance(error, KeyboardInterrupt):
                telling.say(interrupted(run, lasting=self.lasting))
            raise
        finally:
            telling.close()
            if run.checkpoints is not None:
                run.checkpoints.wait()
            closed(run.train, run.valid)

    def put_together(
        self,
        telling: Telling,
        checkpoints: Checkpoints | None = None,
        choice: Choice | None = None,
    ) -> Run:
        """A training that `start` is to begin, or to go on with. ``choice``: what "auto" chose then."""
        world = ranks.met(self.device)
        agreed = ranks.Agreed(self.now, self.device) if world > 1 else None
        clock = Clock(self.budget_s, self.steps, agreed or self.now)
        if self.seed is not None:
            seed_all(self.seed + ranks.number())  # else all would drop out the same
        sharded = self.shard and world > 1
        if sharded:
            self.check_sharded()
        else:
            self.model.to(self.device)
        self.objective.to(self.device)
        train, valid = self.data()
        train.world = world
        if train.length == 0:
            raise UsageError("there is nothing to learn from", "train= gives no batch")
        if valid is not None and valid.length == 0:
            raise UsageError("there is nothing to validate on", "valid= gives no batch")
        if world > 1 and len(lengths := set(ranks.gathered(train.length, world))) > 1:
            told = " and ".join(sorted(map(str, lengths)))
            raise UsageError(
                f"ranks make their steps together, and have {told} of them an epoch",
                "give train= the data set itself, or its DataLoader a DistributedSampler",
            )
        known = self.known(train)
        strategies, reasons = chosen(self.strategies, known, choice)
        check(strategies, validation=known.validation, end=known.end, sharded=sharded)
        if isinstance(self.optimizer, torch.optim.Optimizer):
            check_unscheduled(self.optimizer, strategies)
        left_out = self.single_left_out(train, strategies)
        if (
            not known.end
            and self.epochs is None
            and not ENDING & {each.name for each in strategies}
        ):
            raise UsageError("how long?", "say budget='30m', epochs=10 or steps=5000")
        unused = list[str]()
        if world > 1 and not sharded:
            unused = unreached(self.model, self.objective, train, world)
        spent = Spent()
        if choice is None and is_auto(self.strategies):
            choice, notes = Choice(), [SHARDED]
            try:
                if not sharded:
                    parts = self.parts(train, valid, clock, world, unused=bool(unused))
                    own = own_of(self.strategies)
                    choice, notes, spent = settled(parts, own, known, telling.say)
                strategies, reasons = chosen(self.strategies, known, choice)
                check(strategies, validation=known.validation, end=known.end, sharded=sharded)
            except BaseException:
                closed(train, valid)
                raise
            left_out = self.single_left_out(train, strategies) or left_out
            reasons = [*notes, *reasons]
        judged = valid.worth(train) if valid is not None else 0.0
        # Ranks go by one clock: by what it takes the one that validates the most.
        clock.validation_steps = FORWARD * ranks.most(judged, world)
        model = module = self.model
        shards = None
        if sharded:
            from outpace.train.sharding import Shards

            shards = Shards(self.model, self.device, world)
            model = module = shards.module
        elif world > 1:
            model = ranks.wrapped(module, self.device, unused=bool(unused))
        optimizer = optimizer_for(self.optimizer, module, strategies)
        check_unscheduled(optimizer, strategies)
        run = Run(
            model=model,
            module=module,
            optimizer=optimizer,
            objective=copy.copy(self.objective),  # a strategy may have another loss be learnt from
            train=train,
            valid=valid,
            clock=clock,
            events=Events(strategies, self.callbacks),
            device=self.device,
            world=world,
            agreed=agreed,
            unused=bool(unused),
            shards=shards,
            epochs=self.epochs,
            steps=self.steps,
            validate_every=self.validate_every,
            telling=telling,
            checkpoints=checkpoints,
            choice=choice or Choice(),
            spent=spent,
            given=self.optimizer is not None,
        )
        run.notes += [*reasons, left_out] if left_out else reasons
        if valid is not None and self.objective.unsure:
            run.note(self.objective.unsure)
        if unused_settings := unused_decay(strategies):
            run.note(unused_settings)
        if valid is None and self.objective.metric is not None:
            run.note("metric= judges nothing: there is no valid=")
        if unused:
            run.note(
                f"{some(unused)}: the loss of the first batch gives them no gradient, so ranks look at each "
                "step which weights have one (find_unused_parameters)"
            )
        if still := evaluated(self.model):
            run.note(f"{some(still)} stay in evaluation mode, as they were given")
        if idle := [name for name, _ in run.unlearnt()]:
            run.note(
                f"{len(idle)} of the model's weights are not learnt, as optimizer= does not have them: "
                f"{some(idle)}"
            )
        if idle := unlearnt(run):
            run.note(
                f"weights of {' and '.join(idle)} are not learnt, as no optimizer has them: give "
                "optimizer= all that is to be learnt"
            )
        if world > 1 and not train.shared:
            run.note(
                "each rank goes through all of train=: give its DataLoader a DistributedSampler, or "
                "give the data set itself"
            )
        return run

    def left_s(self, run: Run) -> float | None:
        """Seconds of the budget that are left."""
        return None if self.budget_s is None else max(0.0, self.budget_s - run.clock.elapsed)

    def check_sharded(self) -> None:
        """Raise UsageError for what does not go with shards."""
        if isinstance(self.optimizer, torch.optim.Optimizer):
            raise UsageError(
                "shard=True, and optimizer= holds whole weights",
                "give a function: optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1)",
            )
        if self.recipe is not None:
            raise UsageError(
                "shard=True, and the remedies of a recipe are for whole weights",
                "leave one of them out",
            )

    def known(self, train: Batches) -> Known:
        """What strategies are chosen by."""
        end = any(limit is not None for limit in (self.budget_s, self.steps)) or (
            self.epochs is not None and train.length is not None
        )
        rate_given = isinstance(self.optimizer, torch.optim.Optimizer)
        named = {strategy.name for strategy in own_of(self.strategies)}
        aims = self.target is not None or "target" in named
        return Known(
            end,
            self.valid is not None,
            rate_given,
            self.target,
            has_batch_norm(self.model),
            by_function=self.optimizer is not None and not rate_given,
            copies=not aims or self.shard or copyable(self.model),
        )

    def single_left_out(self, train: Batches, strategies: Sequence[Strategy]) -> str:
        """See that BatchNorm gets no batch of a single sample; what is left out for that."""
        if not has_batch_norm(self.model):
            return ""
        sizes = any(OF_SIZES.intersection(each.sets) for each in strategies)
        return train.single_left_out(sizes=sizes)

    def parts(
        self,
        train: Batches,
        valid: Batches | None,
        clock: Clock,
        world: int = 1,
        *,
        unused: bool = False,
    ) -> Parts:
        """What trials need of it."""
        for each in own_of(self.strategies):
            if isinstance(each, Accumulation):  # a step of a trial takes as many batches
                train.together = each.given or 1
        by_epochs = self.epochs * train.length if self.epochs and train.length else None
        total = min((n for n in (self.steps, by_epochs) if n is not None), default=None)
        return Parts(
            self.model, self.objective, self.optimizer, train, valid, clock, total, world, unused
        )

    def place(self) -> None:
        """Model and loss on their device."""
        ranks.use(self.device)
        self.model.to(self.device)
        self.objective.to(self.device)

    def choose(self, telling: Telling) -> tuple[Choice, list[str]]:
        """What "auto" comes to by trials, and its notes; nothing is trained."""
        if self.seed is not None:
            seed_all(self.seed)
        self.place()
        train, valid = self.data()
        try:
            self.single_left_out(train, own_of(self.strategies))
            parts = self.parts(train, valid, Clock(self.budget_s, self.steps, self.now))
            own = own_of(self.strategies)
            return settled(parts, own, self.known(train), telling.say)[:2]
        finally:
            closed(train, valid)

    def compare(
        self, variants: Mapping[str, Asked], *, steps: int = 100, seeds: int = SEEDS
    ) -> list[Tried]:
        """Whether other strategies are better than the first ones, told by short trainings of copies.

        ``variants``: name -> strategies, as ``strategies=`` takes them. Each is trained for ``steps``
        from up to ``seeds`` seeds, fewer where it is clear before, at rates that are raised for so few steps;
        the model and all else stay as they are. Example: fine-tune or from scratch?

            trainer.compare({"from scratch": "auto", "fine-tune": ["auto", Transfer("old.pt")]})
        """
        self.place()
        train, valid = self.data()
        try:
            self.single_left_out(train, [s for each in variants.values() for s in own_of(each)])
            parts = self.parts(train, valid, Clock(None, None, self.now))
            return compared(parts, self.known(train), variants, steps, seeds)
        finally:
            closed(train, valid)

    def suggestions(self, *, seconds: float = 20.0) -> list[Suggestion]:
        """How much faster steps would be without dropout, with ReLU, or without a block of the model.

        Timed on a copy for about ``seconds``; nothing is changed. Only what is faster beyond doubt.
        """
        self.place()
        train, valid = self.data()
        try:
            strategies, _ = chosen(self.strategies, self.known(train))
            self.single_left_out(train, strategies)
            with generators_kept():
                model, optimizer = copies(self.optimizer, self.model, strategies)
            batches = train.peek(TIMED)
            return suggestions(model, optimizer, self.objective, batches, self.now, seconds)
        finally:
            closed(train, valid)

    def data(self) -> tuple[Batches, Batches | None]:
        """Batches to learn from, and to validate on."""
        goes_on = hasattr(self.train, "state_dict") and hasattr(self.train, "load_state_dict")
        lasts = goes_on or getattr(self.train, "persistent_workers", False)
        if lasts and self.train is self.valid:
            kind = type(self.train).__name__
            raise UsageError(
                f"train= and valid= are one {kind}, whose place in the data is that of training",
                f"give valid= a {kind} of its own, or the data set",
            )
        for each in (self.train, self.valid):
            if isinstance(each, Loader):
                each.meet()  # it may have been made before ranks had met
        ways = {**self.both, "seed": self.seed or 0}
        train = batches(
            self.train, self.batch_size, self.device, transform=self.transform, shuffle=True, **ways
        )
        if self.valid is None:
            return train, None
        return train, batches(self.valid, self.batch_size, self.device, shuffle=False, **ways)

    def keep_best(self, run: Run) -> None:
        """Of a training that did not come to its end; what goes wrong with that hides no other error."""
        if run.best is not None and run.running:
            with suppress(Exception):
                self.load_best(run, run.best.weights)

    def load_best(self, run: Run, weights: dict[str, Any]) -> None:
        """Have the model hold these, and the folder of checkpoints."""
        fit_buffers(self.model, weights)
        self.model.load_state_dict(with_later_buffers(weights, self.model))
        if run.best is not None:
            run.load_loss(run.best.loss)
        if self.checkpoint is not None and ranks.leads():
            try:
                write(self.checkpoint / BEST, weights)
            except Exception as error:  # of what a model puts into its state, too
                run.note(f"the best weights are in the result only: {error}")

    def finished(self, run: Run, started: datetime) -> Result:
        """What it gave; the best weights are in the model, and in the folder of checkpoints."""
        best = run.best
        weights = best.weights if best is not None else copied(run.judged_model().state_dict())
        if run.shards is not None:
            weights = run.shards.gathered(weights)
        self.load_best(run, weights)
        if run.checkpoints is not None and (why := run.checkpoints.lost()):
            run.note(why)
        assert run.stopped is not None
        return Result(
            what=type(self.model).__name__,
            started=started.isoformat(timespec="seconds"),
            stopped=run.stopped,
            steps=run.step,
            epochs=run.epoch,
            seconds=run.clock.elapsed,
            metric_name=self.objective.metric_name,
            larger_is_better=self.objective.sign > 0,
            metric=run.value(best.row) if best is not None else None,
            best=best.row if best is not None else None,
            target=next(
                (s.target for s in run.events.strategies if isinstance(s, Target)), self.target
            ),
            time_to_target_s=run.reached_s,
            history=tuple(run.history),
            notes=tuple(run.notes),
            weights=weights,
            tried=run.choice.tried,
            rates=next((s.rates for s in run.events.strategies if isinstance(s, LrFinder)), None),
        )


def evaluated(model: torch.nn.Module) -> list[str]:
    """Names of layers that are in evaluation mode in a model that is not, without those inside of them."""
    found = list[str]()
    for name, layer in model.named_modules():
        if not layer.training and not any(name.startswith(f"{outer}.") for outer in found):
            found.append(name)
    return found if model.training else []


def unlearnt(run: Run) -> list[str]:
    """Names of losses that have weights which are to learn, and that the optimizer does not have."""
    has = held_by(run.optimizer)
    return [
        name
        for name, loss in run.objective.losses.items()
        if any(weight.requires_grad and id(weight) not in has for weight in loss.parameters())
    ]


def closed(*data: Batches | None) -> None:
    """End the workers of loaders that were made here."""
    for each in data:
        if each is not None:
            each.close()
