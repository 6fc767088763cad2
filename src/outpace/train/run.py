"""A training under way: what strategies and callbacks look at, and what they may change."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

import msgspec
import torch

from outpace.errors import DataError
from outpace.measure.generators import random_states, restore_random
from outpace.records.training import Row
from outpace.seams.held import held_by
from outpace.seams.layout import lay_states
from outpace.seams.optimizer import begin_momenta
from outpace.seams.rate import set_rate
from outpace.serve.loader import Loader
from outpace.train import ranks
from outpace.train.checkpoint import Checkpoints, copied
from outpace.train.clock import Ahead, Clock
from outpace.train.data import Batches
from outpace.train.layers import copies_of, copy_of, fit_buffers
from outpace.train.losses import Losses
from outpace.train.objective import Objective
from outpace.train.optimizers import Rates, settings_of, with_added_groups
from outpace.train.progress import Telling, some
from outpace.train.result import Best, Choice, Spent
from outpace.train.scaled import UNSCALED
from outpace.train.strategies.base import Events

if TYPE_CHECKING:
    from outpace.train.sharding import Shards

DEAR = 0.25
"""of the time since the last validation that the next one may take"""
LONE = "optimizer."
"""what the names of weights begin with that the optimizer alone has; their numbers follow"""


@final
@dataclass(eq=False)
class Run:
    """``model`` is what is called to learn, ``module`` the same without what wraps it for ranks;
    ``unused``: ranks look which weights the loss does not reach.
    """

    model: torch.nn.Module
    module: torch.nn.Module
    optimizer: torch.optim.Optimizer
    objective: Objective
    train: Batches
    valid: Batches | None
    clock: Clock
    events: Events
    telling: Telling
    device: torch.device
    world: int = 1
    agreed: ranks.Agreed | None = None
    """of several ranks"""
    unused: bool = False
    shards: Shards | None = None
    epochs: int | None = None
    steps: int | None = None
    validate_every: int | None = None
    checkpoints: Checkpoints | None = None
    choice: Choice = field(default_factory=Choice)
    """of "auto", by trials"""
    spent: Spent = field(default_factory=Spent)
    """by these"""
    judged_by: int | None = None
    """batches of ``valid``, where it is not all of them"""
    given: bool = False
    """the optimizer is the user's"""
    scaler: torch.amp.GradScaler = UNSCALED
    """of the loss, where gradients would be too small for the precision; else it changes nothing"""
    kept: frozenset[str] = frozenset()
    """names of the strategies whose state is in the checkpoint that is to be gone on with"""

    step: int = 0
    """steps done"""
    epoch: int = 0
    """epochs finished"""
    begun: int = 0
    """the step at which the one under way, or the last one, began"""
    losses: Losses = field(default_factory=Losses)
    history: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    best: Best | None = None
    earlier: Best | None = None
    """the best before the validation that is told of"""
    reached_s: float | None = None
    """seconds of training after which the target was reached"""
    asked: bool = False
    """whether a strategy wants a validation after this step"""
    running: bool = False
    """its steps have begun, or are gone on with"""
    resumed: bool = False
    before: tuple[int | None, int | None] = (None, None)
    """epochs and steps that were asked for before a resume"""
    stopped: str | None = None
    wish: str | None = None
    """why this rank is to end, as long as the others may not know"""

    def __post_init__(self) -> None:
        self.rates = Rates(self.optimizer)
        self.asked_for = settings_of(self.optimizer)
        """of its groups, as they were given"""
        self.left_out = {id(weight) for _, weight in self.unlearnt()}
        """weights that are to learn, and that no optimizer was given"""
        self.unfrozen: list[list[str]] = []
        """names of weights that the optimizer was given since, by the groups that they came in"""
        self.reduced = {id(each) for each in self.module.parameters() if each.requires_grad}
        """weights whose gradients ranks average by themselves"""
        self.ahead = Ahead(self.device)

    def unlearnt(self) -> list[tuple[str, torch.nn.Parameter]]:
        """The model's weights that are to learn and that the optimizer does not have, and their names."""
        has = held_by(self.optimizer)
        named = self.module.named_parameters()
        return [(n, each) for n, each in named if each.requires_grad and id(each) not in has]

    def take_up(self) -> None:
        """Have the optimizer learn what a callback has unfrozen, as it does the first of its groups."""
        names = [name for name, weight in self.unlearnt() if id(weight) not in self.left_out]
        if not names:
            return
        if type(self.optimizer).__module__.startswith("torch.optim."):
            self.add_group(names)
            self.note(f"{some(names)}: learnt from step {self.step:,} on, where they were unfrozen")
        else:
            self.left_out.update(id(weight) for _, weight in self.unlearnt())
            kind = type(self.optimizer).__name__
            self.note(
                f"{some(names)}: unfrozen at step {self.step:,}, and not learnt, as {kind} does not have "
                "them: give it these with run.optimizer.add_param_group"
            )

    def add_group(self, names: list[str]) -> None:
        """Of these weights, with the settings of the optimizer's first group."""
        named = dict(self.module.named_parameters())
        weights = [named[name].requires_grad_() for name in names]
        rates, groups = self.rates, self.optimizer.param_groups
        self.optimizer.add_param_group({**groups[0], "params": weights, "lr": rates.largest[0]})
        begin_momenta(self.optimizer)
        rates.join()
        set_rate(groups[-1], rates.largest[0] * rates.factor * rates.scale)
        self.unfrozen.append(names)

    def stop(self, reason: str) -> None:
        """Have training end after this step; of several ranks after the next one, once all know of it."""
        if self.agreed is None:
            self.end(reason)
            return
        self.wish, self.agreed.wants = self.wish or reason, True

    def end(self, reason: str) -> None:
        """The same at once, where all ranks come to it by themselves."""
        self.stopped = self.stopped or reason

    def note(self, text: str) -> None:
        """Something that the user should know; it is in the result, and told now."""
        if text not in self.notes:
            self.notes.append(text)
            self.telling.say(text)

    def over(self) -> str | None:
        """Why no step is to follow, or None."""
        if self.agreed is not None:
            self.clock.write_s = self.agreed.write_s or self.clock.write_s
            if self.agreed.ends:
                self.end(self.wish or "another rank")
        if why := self.stopped or self.clock.over(self.step):
            return why
        return "steps" if self.steps is not None and self.step >= self.steps else None

    @property
    def longer(self) -> bool:
        """Whether more is asked for than before a resume; of smaller batches there are more steps anyhow."""
        asked = zip((self.epochs, self.steps), self.before, strict=True)
        more = any((now or 0) > (then or 0) for now, then in asked)
        return self.resumed and (self.clock.longer or more)

    def set_end(self) -> None:
        """Tell the clock the last step, by epochs or by steps, and which of both it is by."""
        last, length, left = self.steps, self.train.length, self.train.left
        limit: str | None = "steps"
        if self.epochs is not None and length is not None and left is not None:
            by_epochs = self.step + max(0, (self.epochs - self.epoch - 1) * length + left)
            if last is None or by_epochs <= last:
                # Of a length that may be another, epochs end where their data do.
                last, limit = by_epochs, "epochs" if self.train.exact else None
        self.clock.set_end(last, limit, self.step)

    def resize(self, samples: int) -> None:
        """Have batches of so many samples from the next one on, and the clock know how many follow, and of
        how many of them a validation takes the time.
        """
        assert isinstance(self.train.source, Loader)
        self.clock.validation_steps *= self.train.source.batch_size / samples
        self.train.resize(samples)
        self.set_end()

    @property
    def steps_ahead(self) -> float:
        """Steps of a whole training by its epochs or steps; infinite where neither is given."""
        length, steps = self.train.length, self.clock.steps
        by_epochs = math.inf if self.epochs is None or length is None else self.epochs * length
        return min(by_epochs, math.inf if steps is None else steps)

    @property
    def due(self) -> bool:
        """Whether it is time for a validation."""
        every = self.validate_every
        return self.asked or bool(every and self.step % every == 0)

    @property
    def ending(self) -> bool:
        """Whether there is no time for a checkpoint before the last one. Ranks, whose clocks differ, save
        together: with several of them only whether it is over.
        """
        clock = self.clock
        saved_s = clock.elapsed + clock.save_s + clock.write_s + clock.ending_s
        return self.over() is not None or (self.world == 1 and saved_s > clock.seconds)

    @property
    def judged_at_end(self) -> bool:
        """Whether the epoch that ends needs no validation more: it had one when that was due, or just now, or
        another one would take too much of the budget.
        """
        every = self.validate_every
        had = every is not None and self.step // every > self.begun // every
        return had or self.judged_since(self.step - 1) or self.judging_is_dear

    @property
    def judging_is_dear(self) -> bool:
        """Whether validations would take more than a fifth of a budget."""
        if self.valid is None or self.validate_every or math.isinf(self.clock.seconds):
            return False
        since = self.history[-1].seconds if self.history else self.clock.first_s or 0.0
        return self.clock.judging_s > DEAR * (self.clock.elapsed - since)

    def judged_since(self, step: int) -> bool:
        """Whether the history's last row is of a later step than that."""
        return bool(self.history) and self.history[-1].step > step

    # --- judging -------------------------------------------------------------------------------

    def value(self, row: Row) -> float | None:
        """What a validation is judged by: the metric, else the validation loss."""
        return row.metric if self.objective.metric is not None else row.valid_loss

    def cost(self, row: Row) -> float:
        """The same, smaller being better; infinite where there is none or it is not a number."""
        value = self.value(row)
        return math.inf if value is None or math.isnan(value) else -self.objective.sign * value

    def judged_model(self) -> torch.nn.Module:
        """The model that is validated and kept."""
        for strategy in self.events.strategies:
            instead = strategy.validates(self)
            if instead is not None:
                return instead
        return self.module

    # --- shards --------------------------------------------------------------------------------

    def copies(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        """A copy of the model, in shards where that is, and the optimizer of it."""
        if self.shards is not None:
            return self.shards.copies(self.optimizer)
        return copies_of(self.module, self.optimizer)

    def copy_of_model(self) -> torch.nn.Module:
        """The same without the optimizer, and without gradients."""
        if self.shards is not None:
            found = self.shards.copy()
        else:
            found = copy_of(self.module)
        return found.requires_grad_(False)

    def load_weights(self, model: torch.nn.Module, weights: dict[str, Any]) -> None:
        """Whole ones, or shards, into the model or a copy of it."""
        fit_buffers(model, weights)
        model.load_state_dict(self.placed(weights, model.state_dict()))

    def placed(self, weights: dict[str, Any], like: Mapping[str, Any]) -> dict[str, Any]:
        """Whole ones, in shards where those of the same names are."""
        return weights if self.shards is None else self.shards.placed(weights, like)

    def by_whole(
        self, weight: torch.Tensor, make: Callable[[torch.Tensor], torch.Tensor]
    ) -> torch.Tensor:
        """What is made of a whole weight, in shards where that is; all ranks call it."""
        return make(weight) if self.shards is None else self.shards.by_whole(weight, make)

    def mean_of_ranks(self, values: list[float]) -> list[float]:
        """Of losses: ranks that go by them take equally many steps."""
        if self.world == 1:
            return values
        return [value / self.world for value in ranks.summed(values, self.device)]

    def together(self, model: torch.nn.Module, batches: Iterable[Any]) -> Iterable[Any]:
        """Batches to judge by; ranks that share a model's weights call it equally often."""
        if self.shards is None:
            return batches
        return self.shards.together(batches, lambda batch: self.objective.judged(model, batch))

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Inside, ``module`` is the whole one; what it is given there is sharded afterwards."""
        if self.shards is None:
            yield
            return
        sharded = self.module
        try:
            with self.shards.at_home() as self.module:
                yield
        finally:
            self.module = sharded

    # --- state ---------------------------------------------------------------------------------

    def learned(self, but: Sequence[str] = ()) -> dict[str, Any]:
        """Weights, optimizer, loss and strategies: what a roll-back brings back."""
        return {
            "model": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "loss": self.of_loss(),
            "strategies": {
                s.name: s.state_dict() for s in self.events.strategies if s.name not in but
            },
        }

    def of_loss(self) -> dict[str, torch.Tensor]:
        """What the loss has for itself and keeps from step to step, and weights that no module has which is
        known here: a temperature, say, that a loss function looks up. Nothing of the model's.
        """
        learned = [w for group in self.optimizer.param_groups for w in group["params"]]
        models = {id(each) for each in (*self.module.parameters(), *self.module.buffers())}
        own = self.objective.own(learned)
        losses = (each.parameters() for each in self.objective.losses.values())
        known = models.union(id(each) for each in itertools.chain(*losses))
        others = {f"{LONE}{i}": w for i, w in enumerate(learned) if id(w) not in known}
        return {name: each for name, each in own.items() if id(each) not in models} | others

    def exchange(self) -> None:
        """Between ranks: what the loss has for itself, as a model that they share does with its own."""
        own = self.of_loss().values()
        ranks.averaged((each for each in own if each.requires_grad), self.device)
        if self.shards is None:  # DistributedDataParallel has those alone that learnt when it began
            learning = (each for each in self.module.parameters() if each.requires_grad)
            ranks.averaged((each for each in learning if id(each) not in self.reduced), self.device)
        ranks.alike(each for each in own if not each.requires_grad)

    def load_learned(self, state: dict[str, Any]) -> None:
        """Bring them back; rates stay as they are."""
        rates = self.rates.each
        self.load_weights(self.module, state["model"])
        self.load_loss(state["loss"])
        # A copy: an optimizer takes the tensors that it is given for its own.
        own = with_added_groups(copied(state["optimizer"]), self.optimizer)
        if self.shards is not None:
            own = self.shards.placed_state(own, self.optimizer)
        self.optimizer.load_state_dict(own)
        lay_states(self.optimizer)  # it may be of a run whose weights lay otherwise
        self.rates.groups = self.optimizer.param_groups
        self.rates.put(rates)
        for strategy in self.events.strategies:
            if strategy.name in state["strategies"]:
                # Whole ones are those of a checkpoint, and of what it had kept to go back to.
                own = {} if self.shards is None else strategy.state_dict()
                theirs = state["strategies"][strategy.name]
                strategy.load_state_dict(self.placed(theirs, own))

    def load_loss(self, own: dict[str, torch.Tensor]) -> None:
        """Bring back what the loss has for itself."""
        for task, loss in self.objective.losses.items():
            prefix = f"{task}."
            kept = {n: each for n, each in own.items() if n.startswith(prefix)}
            fit_buffers(loss, {n.removeprefix(prefix): t.to(self.device) for n, t in kept.items()})
        with torch.no_grad():
            for name, tensor in self.of_loss().items():
                if name in own:  # else it came after that
                    tensor.copy_(own[name])

    def state_dict(self) -> dict[str, Any]:
        """All that it takes to go on."""
        states, losses = random_states(), self.losses.state_dict()
        best = self.best and {
            "row": _plain(self.best.row),
            "weights": self.best.weights,
            "loss": self.best.loss,
        }
        return {
            **self.learned(),
            "kind": type(self.optimizer).__name__,
            "random": ranks.gathered(states, self.world) if self.world > 1 else [states],
            "train": self.of_ranks(self.train),
            "clock": self.clock.state_dict(),
            "rates": self.rates.state_dict(),
            "losses": ranks.gathered(losses, self.world) if self.world > 1 else [losses],
            "progress": {"step": self.step, "epoch": self.epoch, "begun": self.begun},
            "asked": (self.epochs, self.steps),
            "valid": self.of_ranks(self.valid),
            "history": [_plain(row) for row in self.history],
            "notes": list(self.notes),
            "choice": msgspec.to_builtins(self.choice),
            "judged_by": self.judged_by,
            "unfrozen": self.unfrozen,
            "asked_for": self.asked_for,
            "judged": (self.objective.metric_name, self.objective.sign),
            "best": best,
        }

    def in_step(self, batches: Iterator[Any]) -> Iterator[Any]:
        """As long as all ranks have one, where it is not known how many each has."""
        return batches if self.world == 1 or self.train.told else self._in_step(batches)

    def _in_step(self, batches: Iterator[Any]) -> Iterator[Any]:
        yield from ranks.while_all(batches, self.device)
        self.train.under_way = False
        if not self.train.exact:  # who has more batches has drawn one that nobody learnt from
            self.train.counted = ranks.least(self.train.drawn, self.world)

    def of_ranks(self, data: Batches | None) -> dict[str, Any] | None:
        """Where training, or validation, is in its data, with the random numbers of each rank."""
        if data is None:
            return None
        found = data.state_dict()
        if self.world > 1 and "random" in found:
            found["random"] = ranks.gathered(found["random"], self.world)
        if self.world > 1 and "source" in found and not isinstance(data.source, Loader):
            found["sources"] = ranks.gathered(found.pop("source"), self.world)
        return found

    def load_state_dict(self, state: dict[str, Any], rank: int = 0) -> None:
        """Go on from there. Raises ValueError where it is of another optimizer or model."""
        kind = type(self.optimizer).__name__
        if state["kind"] != kind:  # torch would take the settings, and miss some at the first step
            raise ValueError(f"its optimizer is {state['kind']}, and this one's {kind}")
        for names in state.get("unfrozen", ()):
            if set(names) <= {name for name, _ in self.module.named_parameters()}:
                self.add_group(names)
        now = self.rates.each
        then = state["rates"].get("each", now)  # an older checkpoint has none
        if len(then) != len(now):
            raise ValueError(
                f"its optimizer has {len(then)} groups of weights, and this one's {len(now)}: those that a "
                "callback had added are to be there before fit()"
            )
        for name, buffer in self.module.named_buffers():
            before = state["model"].get(name)
            if before is not None and before.numel() < buffer.numel():  # they only grow
                raise ValueError(f"its {name} is smaller than this one's")
        self.resumed, self.judged_by = True, state.get("judged_by")
        progress = state["progress"]
        self.step, self.epoch = progress["step"], progress["epoch"]
        self.begun = progress["begun"]
        epochs, steps = state["asked"]
        self.before = (epochs, steps)
        self.history = [Row(**row) for row in state["history"]]
        self.notes = list(state["notes"])
        self.choice = msgspec.convert(state["choice"], Choice)
        judged = (self.objective.metric_name, self.objective.sign)
        if state["best"] is not None and tuple(state.get("judged", judged)) != judged:
            self.note(
                f"judged by {judged[0] or 'the loss'} now: the best weights of before do not count"
            )
        elif state["best"] is not None:
            weights = self.placed(state["best"]["weights"], self.module.state_dict())
            loss = state["best"].get("loss", {})  # an older checkpoint has none
            self.best = Best(Row(**state["best"]["row"]), weights, loss)
        self.load_learned(state)
        self.rates.load_state_dict(state["rates"])
        self.set_anew(state.get("asked_for", self.asked_for))
        self.train.load_state_dict(of_rank(state["train"], rank, self.world))
        if self.valid is not None and state["valid"] is not None:
            with suppress(Exception):  # others are validated on now
                self.valid.load_state_dict(of_rank(state["valid"], rank, self.world))
        losses = state["losses"]  # an older checkpoint has those of the first rank alone
        self.losses.load_state_dict(
            losses if isinstance(losses, dict) else losses[rank % len(losses)]
        )
        self.clock.load_state_dict(state["clock"])
        if rank < len(state["random"]):  # else it is of more ranks now, and has numbers of its own
            restore_random(state["random"][rank])

    def set_anew(self, before: list[dict[str, Any]]) -> None:
        """Take up settings of the optimizer that are given otherwise than ``before`` the resume. A rate that
        was found in the place of the one that was given stays.
        """
        changed, rates = dict[str, Any](), self.rates
        if len(self.asked_for) + len(self.unfrozen) != len(self.optimizer.param_groups):
            return  # a strategy has made others of them
        for number, (then, now) in enumerate(zip(before, self.asked_for, strict=False)):
            for name in now.keys() & then.keys():
                if now[name] == then[name] or (
                    name == "lr" and rates.largest[number] != then[name]
                ):
                    continue
                changed[name] = now[name]
                if name == "lr":
                    rates.largest[number] = now[name]
                    rates.set(rates.factor)
                else:
                    self.optimizer.param_groups[number][name] = now[name]
        if changed:
            told = ", ".join(f"{name}={value}" for name, value in changed.items())
            self.note(f"goes on with what optimizer= is given now: {told}")

    def save(self) -> None:
        """Have a checkpoint written, beside the training."""
        assert self.checkpoints is not None
        began = self.clock.read()
        state = self.state_dict()
        best = state.pop("best")  # copies already
        leads = ranks.leads()
        if self.shards is not None:
            content = self.shards.gathered({**state, "best": best}, keep=leads)
        else:
            content = {**copied(state), "best": best} if leads else {}
        if leads:
            self.checkpoints.begin(content, self.step, began, self.wrote)
        else:
            self.checkpoints.next_s = began + self.checkpoints.every_s
        self.clock.save_s = self.clock.read() - began

    def wrote(self, seconds: float) -> None:
        """A checkpoint was written; at the end that is waited for, and the best weights are written too."""
        if self.agreed is None:
            self.clock.write_s = 2 * seconds
        else:  # the other ranks have to hear of it first
            self.agreed.wrote_s = 2 * seconds


def of_rank(state: dict[str, Any], rank: int, world: int) -> dict[str, Any]:
    """Where a rank goes on in its data. Raises DataError where each has its own, and they are others now."""
    random, sources = state.get("random"), state.get("sources")
    if isinstance(random, list):
        state = {**state, "random": random[rank % len(random)]}
    if sources is None:
        return state
    if len(sources) != world:
        raise DataError(
            f"its data were gone through by {len(sources)} ranks, each in its own place, and now by {world}",
            "start as many ranks as before",
        )
    return {**state, "source": sources[rank]}


def _plain(row: Row) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(row)
    return found
