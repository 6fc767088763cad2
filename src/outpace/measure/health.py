"""Looking closely at a few steps: gradients, updates, dead units, labels.

Looks run under a dispatch mode, which makes a step about twice as long, so only a few are taken:
some of the first steps, and some after the training was watched.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import IterableDataset, SequentialSampler

from outpace.measure.dispatch import Operator, OperatorWatch, capturing, name_of, phase, tensors_in
from outpace.measure.gradient_noise import GradientNoise
from outpace.measure.not_finite import who_made_it
from outpace.measure.strays import Strays
from outpace.measure.subjects import training_loader
from outpace.records.health import Health
from outpace.seams.host import Host
from outpace.seams.module import ModuleSeam
from outpace.seams.optimizer import held_by
from outpace.seams.root import Evaluations
from outpace.seams.version_of import version_of

MOST_NUMBERS = 1 << 16
"""of one parameter whose change is looked at"""
MOST_ACTIVATIONS = 1 << 18
"""of one layer that are looked at, or one row"""
FIRST = 4
"""updates whose ratios are the first ones"""
RESTRAINED = 3.0
"""a rate this far below its schedule's peak is a warm-up's"""
FEWEST_STEPS = 20
"""in which a parameter stays as it is, to say that it gets no gradient: not each step asks all of a model"""
FEWEST_ROWS = 32
"""rows of a batch to call a unit dead by"""
PRODUCTS = ("addmm", "mm", "bmm", "convolution", "linear", "baddbmm", "embedding_bag")
CHOICES = ("argmax", "max", "topk", "sort", "multinomial")
"""operators that a script has a model choose its own labels by"""
GONE = 1e-4
"""of its largest value: a rate below it changes nothing any more"""
MADE_UP = ("zeros", "ones", "full", "arange", "zeros_like", "ones_like", "full_like")
"""and of which it makes labels that tell nothing of the data, as where samples are told from each other"""
LIMITS = {"sigmoid": (0.001, 0.999), "tanh": (-0.999, 0.999)}


class HealthWatch(OperatorWatch):  # type: ignore[no-untyped-call]
    """What looks have shown so far."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.ratios: list[float] = []
        self.stepped: set[int] = set()
        """optimizers (id) that made a step"""
        self.from_zero: set[int] = set()
        """parameters (id) that were zero before it, as one of an adapter's two"""
        self.gradients: dict[str, list[float]] = {}
        self.dead: dict[str, list[float]] = {}
        self.saturated: dict[str, list[float]] = {}
        self.labels: Counter[int] = Counter()
        self.purities: list[float] = []
        self.guesses: list[torch.UntypedStorage] = []
        """memory of what a model chose in this step: as a label it is no data's"""
        self.classes = 0
        self.carried = 0
        self.warming_up = False
        self.learners = 0
        self.bad_gradient: str | None = None
        self.not_optimized: tuple[str, ...] = ()
        self.lost: dict[str, torch.Tensor] = {}
        """of parameters that no optimizer has, what they were when that was seen first"""
        self.first_rates: dict[int, float] = {}
        """of optimizers (id), when they were looked at first"""
        self.idle: dict[str, tuple[nn.Parameter, int, int]] = {}
        """parameters that had no gradient, with torch's count of their changes and the step that it was at"""
        self.reached: set[str] = set()
        """parameters that had one"""
        self.before: dict[str, torch.Tensor] = {}
        self.zeroed: set[int] = set()
        """optimizers (id) whose gradients were gone when a backward pass began"""
        self.updates = 0
        self.seen: Counter[str] = Counter()
        self.pending: list[tuple[str, str, torch.Tensor, int]] = []
        """activations of this step that no layer has followed yet, with the dimension of their units"""
        self.convolved = False
        """the last layer was a convolution"""
        self.began: set[int] = set()
        """optimizers (id) whose gradients were looked at before a backward pass"""
        self.looking = False
        self.bad_made: str | None = None
        self.noise = GradientNoise()
        self.strays = Strays(host)
        self.rates: list[tuple[int, int, float]] = []
        """the main optimizer (id), steps and its rate, whenever there was a look"""
        host.on_backward = self._see_loss
        # For good: a look begins and ends in a hook, while torch walks through its hooks.
        register_optimizer_step_pre_hook(self._before_first)
        register_optimizer_step_pre_hook(self._guarded(self._before_update))
        register_optimizer_step_post_hook(self._guarded(self._after_update))

    def _guarded(self, action: Callable[..., None]) -> Callable[..., None]:
        """``action`` while there is a look, unwatched; if it fails there are no more looks."""

        def guarded(*args: Any, **kwargs: Any) -> None:
            if not self.looking or self._captured():
                return
            self.watching = False
            try:
                action(*args, **kwargs)
                self.watching = True
            except Exception as error:
                self.looking = False
                self.failure = f"{type(error).__name__}: {error}"

        return guarded

    def _captured(self) -> bool:
        """Whether a CUDA graph is being captured: no more looks."""
        if capturing():
            self.looking = self.watching = False
            self.failure = "a CUDA graph is captured"
            return True
        return False

    def look(self, steps: int, seconds: float) -> Iterator[None]:
        """Look at the next steps, one at least, for about so long; yields once for each."""
        begun, begins = perf_counter(), self._guarded(self._before_backward)
        for index in range(steps):
            if self.failure is not None or (index and perf_counter() - begun > seconds):
                return
            backward = torch.autograd.backward

            def watched(*args: Any, _own: Any = backward, **kwargs: Any) -> None:
                begins()
                _own(*args, **kwargs)

            torch.autograd.backward = watched
            self.seen.clear()
            if index == 0:
                self.noise = GradientNoise()
            self.host.group = 1
            self.host.dirty = self.looking = True
            self.strays.begin()
            self.__enter__()
            try:
                yield
            finally:
                self.looking = False
                self.guesses.clear()
                self.pending.clear()  # the output's activation is not kept from here on
                self.__exit__(None, None, None)
                self.strays.end()
                if torch.autograd.backward is watched:
                    torch.autograd.backward = backward

    # --- operators -------------------------------------------------------------------------------

    def see(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Look at activations and at what the loss is told to be right."""
        name = name_of(operator).rstrip("_")
        if self._captured():
            return
        if name in MADE_UP and isinstance(out, torch.Tensor) and not out.is_floating_point():
            self.guesses.append(out.untyped_storage())
        if name in CHOICES and not _is_binary(args[0]):
            chosen = (made for made in tensors_in(out) if not made.is_floating_point())
            self.guesses += [made.untyped_storage() for made in chosen]
        if phase() == "backward":  # no layer follows any more: what waits is the output
            self.pending.clear()
            self.seen.clear()
        if phase() != "forward":
            return
        if name in ("relu", *LIMITS) and isinstance(out, torch.Tensor) and out.dim() > 1:
            self.seen[name] += 1
            layer = f"{name} {self.seen[name]}"
            self.pending.append((name, layer, out.detach(), _unit_dim(out, self.convolved)))
        elif name in PRODUCTS:
            self.convolved = name == "convolution"
            self._judge_pending(out)
        elif name == "nll_loss_forward" and args[1].shape == (self.host.batch_size,):
            # One label a sample: words of a text are as rare as they are.
            self._see_labels(args[1], int(args[0].shape[1]), int(args[4]))
        elif name.startswith("binary_cross_entropy") and args[1].numel() == self.host.batch_size:
            self.classes = max(self.classes, 2)

    def _judge_pending(self, made: Any) -> None:
        """A layer follows: activations so far are hidden ones, and not the model's output.

        Units that are off harm where they narrow the net: where fewer are on than the layer makes of them.
        """
        tensor = isinstance(made, torch.Tensor) and made.dim()
        into = made.shape[_unit_dim(made, self.convolved)] if tensor else 0
        for name, layer, out, units in self.pending:
            if name != "relu":
                low, high = LIMITS[name]
                some = _some(out)
                share = int(((some < low) | (some > high)).sum()) / max(1, some.numel())
                self.saturated.setdefault(layer, []).append(share)
            elif out.numel() >= FEWEST_ROWS * out.shape[units]:
                dead = _never_on(out, units)
                narrows = (1 - dead) * out.shape[units] < into
                self.dead.setdefault(layer, []).append(dead if narrows else 0.0)
        self.pending.clear()

    def _see_labels(self, labels: torch.Tensor, classes: int, ignored: int) -> None:
        """Of several heads those of the one with the most classes; labels that are ``ignored`` are none."""
        if labels.untyped_storage().data_ptr() in {guess.data_ptr() for guess in self.guesses}:
            return
        if classes > self.classes:
            self.labels.clear()
            self.purities.clear()
        self.classes = max(self.classes, classes)
        counts = Counter(labels.tolist())
        counts.pop(ignored, None)
        if classes < self.classes or not counts:
            return
        self.labels.update(counts)
        if counts.total() >= 8:
            self.purities.append(max(counts.values()) / counts.total())

    def _see_loss(self, loss: torch.Tensor) -> None:
        """The first loss that is not finite: find out at once where it came from."""
        if loss.device.type != "cpu":
            return  # reading each would hold up the training
        if not math.isfinite(float(loss)):
            self.host.on_backward = None
            watching, self.watching = self.watching, False
            try:
                self.bad_made = who_made_it(self.host)
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
            self.watching = watching

    # --- gradients and updates -------------------------------------------------------------------

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        rooted = self.host.main_root()
        return [] if rooted is None else list(rooted[0].named_parameters())

    def _taught(self) -> set[frozenset[int]]:
        """The models (id) that each optimizer trains; one that several train parts of counts once."""
        roots = [m for m, facts in list(self.host.roots.items()) if facts.training_calls]
        held = {id(m): {id(p) for p in m.parameters()} for m in roots}
        taught = set()
        for optimizer in list(self.host.optimizers):
            own = held_by(optimizer)
            taught.add(frozenset(m for m, parameters in held.items() if parameters & own))
        return taught - {frozenset()}

    def _before_backward(self) -> None:
        for optimizer in list(self.host.optimizers):
            self.began.add(id(optimizer))
            held = [p.grad for g in optimizer.param_groups for p in g["params"]]
            if not any(bool(grad.any()) for grad in held if grad is not None):
                self.zeroed.add(id(optimizer))

    def _before_first(self, optimizer: Any, *_: Any) -> None:
        """Which parameters begin at zero: what one changes by is all that it is, for many steps."""
        if id(optimizer) in self.stepped or self._captured():
            return
        self.stepped.add(id(optimizer))
        watching, self.watching = self.watching, False
        try:
            held = [p for g in optimizer.param_groups for p in g["params"]]
            # Those of other kinds may be shards, which all ranks would have to be asked for.
            whole = [p for p in held if type(p) is nn.Parameter]
            self.from_zero |= {id(p) for p in whole if not bool(p.any())}
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        self.watching = watching

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        one = id(optimizer)
        own = held_by(optimizer)
        models = {id(p) for model in list(self.host.roots) for p in model.parameters()}
        # Of copies of a model's weights gradients are assigned: nobody has to set them to zero.
        added = one in self.began and not (models and own.isdisjoint(models))
        self.updates += added
        self.carried += added and one not in self.zeroed
        self.began.discard(one)
        self.zeroed.discard(one)
        held = own | held_by(*self.host.optimizers, *self.host.made)
        self.learners = max(self.learners, len(self._taught()))
        named = self._parameters()
        lost = {
            n: p
            for n, p in (*named, *self.strays.parameters())
            if p.requires_grad and p.grad is not None and id(p) not in held
        }
        # What changes all the same the script sets itself, as of copies that an optimizer has. By value:
        # torch does not count what is done to `.data`.
        self.not_optimized = tuple(
            n for n, p in lost.items() if n in self.lost and torch.equal(self.lost[n], _part(p))
        )
        for name, parameter in lost.items():
            self.lost.setdefault(name, _part(parameter).clone())
        for name, parameter in named:
            if parameter.grad is not None:
                self.reached.add(name)
            elif parameter.requires_grad and id(parameter) in own:
                self.idle.setdefault(name, (parameter, version_of(parameter), self.host.steps))
        # As it is now: the first looks of a training with a warm-up are always in it.
        now = _rate_of(optimizer)
        by_hand = not any("initial_lr" in group for group in optimizer.param_groups)
        rose = by_hand and now > self.first_rates.setdefault(one, now)
        self.warming_up = rose or any(map(_restrained, self.host.optimizers))
        if optimizer is self.host.main_optimizer():
            self.rates.append((one, self.host.steps, now))
            grads = [p.grad for _, p in named if id(p) in own and p.grad is not None]
            self.noise.add([_part(grad).float() for grad in grads if not grad.is_sparse])
        for name, parameter in named:
            grad = parameter.grad
            if id(parameter) not in own or grad is None or grad.dim() < 2 or grad.is_sparse:
                continue
            if not grad.numel():
                continue
            largest = float(torch.linalg.vector_norm(grad, torch.inf))
            if not math.isfinite(largest):
                self.bad_gradient = self.bad_gradient or name
                continue
            if largest == 0.0:
                continue  # it was not asked, as a head of another task or an expert without tokens
            self.gradients.setdefault(name, []).append(largest)
            if id(parameter) not in self.from_zero:
                self.before[name] = _part(parameter).clone()

    def _after_update(self, *_: Any) -> None:
        ratios = []
        for name, parameter in self._parameters():
            before = self.before.pop(name, None)
            if before is not None and float(before.norm()) > 0:
                ratios.append(float((_part(parameter) - before).norm() / before.norm()))
        if ratios:
            self.ratios.append(median(ratios))

    # --- what it comes to ------------------------------------------------------------------------

    def health(self) -> Health:
        """All looks together."""
        batch = self.host.batch_size * self.host.micro_steps
        gradients = {name: median(values) for name, values in self.gradients.items()}
        weakest = min(gradients, key=lambda n: gradients[n], default=None)
        dead, dead_layer = _worst(self.dead)
        saturated, saturated_layer = _worst(self.saturated)
        module = self.host.seams.get("module")
        judged = module.evaluations() if isinstance(module, ModuleSeam) else Evaluations()
        return Health(
            update_ratio=median(self.ratios) if self.ratios else None,
            first_update_ratio=median(self.ratios[:FIRST]) if self.ratios else None,
            warming_up=self.warming_up,
            rate_gone=self._rate_gone(),
            learners=self.learners,
            shuffles=_shuffles(self.host),
            weakest_gradient=gradients[weakest] if weakest is not None else None,
            weakest_where=weakest,
            strongest_gradient=max(gradients.values(), default=None),
            bad_gradient=self.bad_gradient,
            bad_made=self.bad_made,
            noise_scale=self.noise.scale(batch),
            batch=batch,
            not_optimized=self.not_optimized,
            without_gradient=self._without_gradient(),
            carried=self.updates >= 3 and self.carried >= self.updates - 1,
            dead=dead,
            dead_layer=dead_layer,
            saturated=saturated,
            saturated_layer=saturated_layer,
            labels=tuple(sorted(self.labels.values(), reverse=True)),
            classes=self.classes,
            purity=sum(self.purities) / len(self.purities) if self.purities else None,
            validated_training=judged.in_training,
            validated_where=judged.in_training_where,
        )

    def _rate_gone(self) -> tuple[float, float, int] | None:
        """The largest rate, the rate now, and steps since it was last seen to be no small part of that."""
        optimizer = self.host.main_optimizer()
        own = [(step, rate) for of, step, rate in self.rates if of == id(optimizer)]
        if optimizer is None or not own:
            return None
        now = _rate_of(optimizer)
        largest = max(rate for _, rate in own)
        if not largest > 0 or now > GONE * largest:
            return None
        since = self.host.steps
        for step, rate in reversed(own):
            if rate > GONE * largest:
                break
            since = step
        return largest, now, self.host.steps - since

    def _without_gradient(self) -> tuple[str, ...]:
        """What had no gradient at any look, and was not changed by any step between them either."""
        steps = self.host.steps
        return tuple(
            name
            for name, (parameter, before, at) in self.idle.items()
            if name not in self.reached
            and version_of(parameter) == before
            and steps - at >= FEWEST_STEPS
        )


def _rate_of(optimizer: Any) -> float:
    """The largest of its groups'."""
    return max((float(g.get("lr") or 0.0) for g in optimizer.param_groups), default=0.0)


def _restrained(optimizer: Any) -> bool:
    """Whether a schedule holds a rate far below what it will be."""
    return any(
        float(group.get("lr") or 0.0) * RESTRAINED
        < max(float(group.get("max_lr") or 0.0), float(group.get("initial_lr") or 0.0))
        for group in optimizer.param_groups
    )


def _shuffles(host: Host) -> bool | None:
    """Whether the DataLoader that feeds the steps draws at random; None where there is none."""
    loaded = training_loader(host)
    if loaded is None:
        return None
    sampler = loaded[0].sampler
    if isinstance(loaded[0].dataset, IterableDataset):
        return False  # the order is its own, of which nothing is known
    return bool(getattr(sampler, "shuffle", not isinstance(sampler, SequentialSampler)))


def _is_binary(given: torch.Tensor) -> bool:
    """Whether there is nothing in it but 0 and 1: a data set's one-hot label, not a model's output."""
    some = given.detach()[:MOST_NUMBERS] if given.dim() else given.detach()
    return bool(((some == 0) | (some == 1)).all())


def _unit_dim(out: torch.Tensor, convolved: bool) -> int:
    """The dimension of a layer's units: channels where it was a convolution, else the last."""
    return 1 if convolved and out.dim() > 2 else out.dim() - 1


def _never_on(out: torch.Tensor, units: int) -> float:
    """Share of units, along that dimension, that are 0 all over a batch."""
    others = [d for d in range(out.dim()) if d != units]
    return float((out.amax(dim=others) == 0).float().mean())


def _some(out: torch.Tensor) -> torch.Tensor:
    """Rows of an activation, evenly apart: what a look takes must not be of a batch's size."""
    return out[:: math.ceil(out.numel() / MOST_ACTIVATIONS) or 1]


def _part(parameter: torch.Tensor) -> torch.Tensor:
    numbers = parameter.detach().flatten()
    return numbers[:: max(1, len(numbers) // MOST_NUMBERS)]


def _worst(shares: dict[str, list[float]]) -> tuple[float, str | None]:
    middle = {name: median(values) for name, values in shares.items()}
    name = max(middle, key=lambda n: middle[n], default=None)
    return (middle[name], name) if name is not None else (0.0, None)
