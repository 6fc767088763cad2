"""Looking closely at a few steps: gradients, updates, dead units, labels.

Looks run under a dispatch mode, which makes a step about twice as long, so only a few are taken:
some of the first steps, and some after the training was watched.
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import BatchSampler, IterableDataset, SequentialSampler

from outpace.measure.activations import Activations, worst
from outpace.measure.dispatch import (
    Operator,
    OperatorWatch,
    capturing,
    name_of,
    phase,
)
from outpace.measure.gradient_noise import GradientNoise
from outpace.measure.labels import Labels, purity
from outpace.measure.loss_inputs import LossInputs
from outpace.measure.not_finite import who_made_it
from outpace.measure.rates import Rates
from outpace.measure.some_numbers import some_numbers
from outpace.measure.statistics import median
from outpace.measure.strays import Strays
from outpace.measure.subjects import training_loader
from outpace.measure.waste import Paddings
from outpace.records.health import HUGE, WEAK, Health
from outpace.seams.held import held_by, learned_by
from outpace.seams.host import Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.module import ModuleSeam
from outpace.seams.root import Evaluations

FIRST = 4
"""updates whose ratios are the first ones"""
FEWEST_STEPS = 20
"""in which a parameter stays as it is, to say that it gets no gradient: not each step asks all of a model"""
GREW = 10.0
"""times as large as at its first look that a gradient is at its last, which does not vanish then, as behind
a gate that begins at zero"""


class HealthWatch(OperatorWatch):  # type: ignore[no-untyped-call]
    """What looks have shown so far."""

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.ratios: list[float] = []
        self.stepped: set[int] = set()
        """optimizers (id) that made a step"""
        self.first_gradients: dict[int, tuple[float, weakref.ref[nn.Parameter]]] = {}
        """of optimizers (id): |gradient| / |weights| before the first update, and what has the largest;
        not held, as a script may make models without end"""
        self.from_zero: set[int] = set()
        """parameters (id) that were zero before it, as one of an adapter's two"""
        self.gradients: dict[str, list[float]] = {}
        self.activations = Activations()
        self.loss_inputs = LossInputs()
        self.paddings = Paddings()
        self.labels = Labels(host)
        self.carried = 0
        self.warming_up = False
        self.learners = 0
        self.newest = 0, 0, 0
        """backward passes before the newest step of an optimizer and before the last one, and which (id)"""
        self.together: dict[int, int] = {}
        """optimizers (id) that learn from one loss with another"""
        self.acts = False
        self.bad_gradient: str | None = None
        self.not_optimized: tuple[str, ...] = ()
        self.lost: dict[str, torch.Tensor] = {}
        """of parameters that no optimizer has, what they were when that was seen first"""
        self.idle: dict[str, tuple[weakref.ref[nn.Parameter], torch.Tensor, int]] = {}
        """parameters that had no gradient, weakly, with what they were then and the step that it was at"""
        self.reached: set[str] = set()
        """parameters that had one"""
        self.before: dict[str, torch.Tensor] = {}
        self.zeroed: set[int] = set()
        """optimizers (id) whose gradients were gone when a backward pass began"""
        self.updates = 0
        self.began: set[int] = set()
        """optimizers (id) whose gradients were looked at before a backward pass"""
        self.given: set[int] = set()
        """optimizers (id) whose weights had gradients after it"""
        self.lost_again = 0
        """updates before which these were gone"""
        self.looking = False
        self.bad_seen = False
        """a loss that was not finite"""
        self.bad_made: str | None = None
        self.noise = GradientNoise()
        self.strays = Strays(host)
        self.rates = Rates(host)
        host.on_backward = self._see_loss
        # For good: a look begins and ends in a hook, while torch walks through its hooks.
        register_optimizer_step_pre_hook(self._note_together)
        register_optimizer_step_pre_hook(self.rates.note)
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
        begun = perf_counter()
        for index in range(steps):
            if self.failure is not None or (index and perf_counter() - begun > seconds):
                return
            replaced = Replaced()
            replaced.put(torch.autograd, "backward", self._watched)
            self.activations.begin()
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
                self.labels.guesses.clear()
                self.activations.begin()
                self.__exit__(None, None, None)
                self.strays.end()
                replaced.put_all_back()

    def _watched(self, backward: Any) -> Any:
        begins, ended = self._guarded(self._before_backward), self._guarded(self._after_backward)

        def watched(*args: Any, **kwargs: Any) -> None:
            begins()
            backward(*args, **kwargs)
            ended()

        return watched

    # --- operators -------------------------------------------------------------------------------

    def see(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Look at activations and at what the loss is told to be right."""
        name = name_of(operator).rstrip("_")
        if self._captured():
            return
        when = phase()
        if when == "backward":  # no layer follows any more: what waits is the output
            self.activations.begin()
            return
        self.labels.see_made(name, args, out)
        self.acts = self.acts or _draws_from(name, args)
        if when != "forward":
            return
        self.activations.see(name, args, kwargs, out)
        if name == "embedding":
            self.paddings.see(args[0], args[1])
        self.loss_inputs.see(name, args, out, batch=self.host.batch_size, step=self.host.steps)
        self.labels.see(name, args)

    def _see_loss(self, loss: torch.Tensor) -> None:
        """The first loss that is not finite: find out at once where it came from."""
        if self.bad_seen or loss.device.type != "cpu":
            return  # reading each would hold up the training
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            return  # to call the model again would be a collective of one rank alone
        if not math.isfinite(float(loss)):
            self.bad_seen = True
            watching, self.watching = self.watching, False
            with contextlib.suppress(Exception):  # then it is not told
                self.bad_made = who_made_it(self.host)
            self.watching = watching

    # --- gradients and updates -------------------------------------------------------------------

    def _parameters(self) -> list[tuple[str, nn.Parameter]]:
        rooted = self.host.main_root()
        return [] if rooted is None else list(rooted[0].named_parameters())

    def _taught(self) -> set[frozenset[int]]:
        """The models (id) that each optimizer trains; one that several train parts of counts once."""
        roots = [m for m, facts in list(self.host.roots.items()) if facts.training_calls]
        held = {id(m): {id(p) for p in m.parameters()} for m in roots}
        taught: dict[int, set[int]] = {}
        for optimizer in list(self.host.optimizers):
            own, one = held_by(optimizer), id(optimizer)
            models = taught.setdefault(self.together.get(one, one), set())
            models |= {m for m, parameters in held.items() if parameters & own}
        return {frozenset(models) for models in taught.values()} - {frozenset()}

    def _note_together(self, optimizer: Any, *_: Any) -> None:
        """Optimizers that step after the same backward pass, the only one since others stepped, learn from
        one loss, as those of an encoder and its decoder.
        """
        if self.host.phases.resting:
            return  # nobody counts backward passes
        passes, one = self.host.backwards, id(optimizer)
        before, since, first = self.newest
        if passes != before:
            self.newest = passes, before, one
        elif passes == since + 1:
            self.together[one] = self.together.get(first, first)

    def _bootstraps(self) -> bool:
        """Whether a model of the same shapes helps in each step, as the one that tells what later states are
        worth: targets move with what is learnt.
        """
        rooted = self.host.main_root()
        if rooted is None:
            return False
        shapes = [p.shape for p in rooted[0].parameters()]
        return any(
            facts.evaluations.helps and [p.shape for p in model.parameters()] == shapes
            for model, facts in list(self.host.roots.items())
            if model is not rooted[0]
        )

    def _before_backward(self) -> None:
        for optimizer in list(self.host.optimizers):
            self.began.add(id(optimizer))
            if not _has_gradients(optimizer):
                self.zeroed.add(id(optimizer))

    def _after_backward(self) -> None:
        self.given |= {id(o) for o in list(self.host.optimizers) if _has_gradients(o)}

    def _before_first(self, optimizer: Any, *_: Any) -> None:
        """Which parameters begin at zero: what one changes by is all that it is, for many steps. And how
        large gradients are before there was a step to blame.
        """
        if id(optimizer) in self.stepped or self._captured():
            return
        self.stepped.add(id(optimizer))
        watching, self.watching = self.watching, False
        try:
            # Those of other kinds may be shards, which all ranks would have to be asked for.
            whole = [p for p in learned_by([optimizer]) if type(p) is nn.Parameter]
            self.from_zero |= {id(p) for p in whole if not bool(p.any())}
            # Else gradients are a GradScaler's yet.
            if getattr(optimizer, "grad_scale", None) is None:
                self._see_first(optimizer, whole)
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
        self.watching = watching

    def _see_first(self, optimizer: Any, parameters: list[nn.Parameter]) -> None:
        matrices, gradients = list[nn.Parameter](), list[float]()
        for parameter in parameters:
            grad = parameter.grad
            if parameter.dim() > 1 and grad is not None and not grad.is_sparse:
                matrices.append(parameter)
                gradients.append(float(grad.norm()))
        weights = math.hypot(*(float(p.detach().norm()) for p in matrices))
        if weights > 0:
            largest = max(range(len(matrices)), key=gradients.__getitem__)
            ratio = math.hypot(*gradients) / weights
            finite = ratio if math.isfinite(ratio) else HUGE
            self.first_gradients[id(optimizer)] = finite, weakref.ref(matrices[largest])

    def _before_update(self, optimizer: Any, *_: Any) -> None:
        one = id(optimizer)
        own = held_by(optimizer)
        models = {id(p) for model in list(self.host.roots) for p in model.parameters()}
        # Of copies of a model's weights gradients are assigned: nobody has to set them to zero.
        added = one in self.began and not (models and own.isdisjoint(models))
        self.updates += added
        self.carried += added and one not in self.zeroed
        self.lost_again += one in self.given and not _has_gradients(optimizer)
        for seen in (self.began, self.zeroed, self.given):
            seen.discard(one)
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
            n
            for n, p in lost.items()
            if n in self.lost and torch.equal(self.lost[n], some_numbers(p))
        )
        for name, parameter in lost.items():
            self.lost.setdefault(name, some_numbers(parameter).clone())
        for name, parameter in named:
            if parameter.grad is not None:
                self.reached.add(name)
            elif parameter.requires_grad and id(parameter) in own:
                before = some_numbers(parameter).clone()
                self.idle.setdefault(name, (weakref.ref(parameter), before, self.host.steps))
        # As it is now: the first looks of a training with a warm-up are always in it.
        self.warming_up = self.rates.warm_up(optimizer)
        if optimizer is self.host.main_optimizer():
            self.rates.add(optimizer)
            grads = [p.grad for _, p in named if id(p) in own and p.grad is not None]
            self.noise.add([some_numbers(grad).float() for grad in grads if not grad.is_sparse])
        for name, parameter in named:
            grad = parameter.grad
            if id(parameter) not in own or grad is None or grad.is_sparse or not grad.numel():
                continue
            if grad.dim() < 2 or (grad.dim() > 2 and sum(size > 1 for size in grad.shape) < 2):
                continue  # a bias, or a scale, also where it lies along the channels of an image
            largest = float(torch.linalg.vector_norm(grad, torch.inf))
            if not math.isfinite(largest):
                self.bad_gradient = self.bad_gradient or name
                continue
            if largest == 0.0:
                continue  # it was not asked, as a head of another task or an expert without tokens
            self.gradients.setdefault(name, []).append(largest)
            if id(parameter) not in self.from_zero:
                self.before[name] = some_numbers(parameter).clone()

    def _after_update(self, *_: Any) -> None:
        ratios = []
        for name, parameter in self._parameters():
            before = self.before.pop(name, None)
            if before is not None and float(before.norm()) > 0:
                ratios.append(float((some_numbers(parameter) - before).norm() / before.norm()))
        if ratios:
            self.ratios.append(median(ratios))

    # --- what it comes to ------------------------------------------------------------------------

    def health(self) -> Health:
        """All looks together."""
        batch = self.host.batch_size * self.host.micro_steps
        gradients = self._gradients()
        weakest = min(gradients, key=lambda n: gradients[n], default=None)
        dead, dead_layer = worst(self.activations.dead)
        saturated, saturated_layer = worst(self.activations.saturated)
        counts = self.labels.counts()
        module = self.host.seam(ModuleSeam)
        judged = module.evaluations() if module is not None else Evaluations()
        left = module.left_in_evaluation() if module is not None else (0, None)
        shuffles = _shuffles(self.host)
        first, named = self.first_gradients.get(id(self.host.main_optimizer())), self._parameters()
        return Health(
            update_ratio=median(self.ratios) if self.ratios else None,
            first_update_ratio=median(self.ratios[:FIRST]) if self.ratios else None,
            first_gradient=first[0] if first is not None else None,
            first_where=next((n for n, p in named if first is not None and p is first[1]()), None),
            warming_up=self.warming_up,
            rate_gone=self.rates.gone(),
            learners=self.learners,
            acts=(self.acts and not _is_of_data(self.host)) or self._bootstraps(),
            shuffles=shuffles,
            streams=_streams(self.host),
            weakest_gradient=gradients[weakest] if weakest is not None else None,
            weakest_where=weakest,
            strongest_gradient=max(gradients.values(), default=None),
            weak_share=sum(g < WEAK for g in gradients.values()) / max(1, len(gradients)),
            bad_gradient=self.bad_gradient,
            bad_made=self.bad_made,
            noise_scale=self.noise.scale(batch),
            batch=batch,
            not_optimized=self.not_optimized,
            without_gradient=self._without_gradient(),
            carried=self.updates >= 3 and self.carried >= self.updates - 1,
            lost_again=self.updates >= 3 and self.lost_again >= self.updates - 1,
            dead=dead,
            dead_layer=dead_layer,
            saturated=saturated,
            saturated_layer=saturated_layer,
            labels=tuple(sorted(sum(counts, Counter[int]()).values(), reverse=True)),
            softmax_twice=self.loss_inputs.where("softmax_twice"),
            sigmoid_twice=self.loss_inputs.where("sigmoid_twice"),
            crossed=self.loss_inputs.where("crossed"),
            classes=self.labels.classes,
            weighted=self.labels.weighted,
            purity=purity(counts),
            validated_training=judged.in_training,
            validated_where=judged.in_training_where,
            drops_in_evaluation=judged.drops,
            drops_where=judged.drops_where,
            left_in_evaluation=left[0],
            left_where=left[1],
        )

    def _gradients(self) -> dict[str, float]:
        """Of the matrices, without those whose gradients grew, unless all did."""
        every = {name: median(values) for name, values in self.gradients.items()}
        grew = {n for n, values in self.gradients.items() if values[-1] >= GREW * values[0]}
        return {name: each for name, each in every.items() if name not in grew} or every

    def _without_gradient(self) -> tuple[str, ...]:
        """What had no gradient at any look, and was not changed by any step between them either."""
        steps = self.host.steps
        return tuple(
            name
            for name, (ref, before, at) in self.idle.items()
            if name not in self.reached
            and (parameter := ref()) is not None
            and torch.equal(some_numbers(parameter), before)
            and steps - at >= FEWEST_STEPS
        )


def _has_gradients(optimizer: Any) -> bool:
    """Whether any of its weights has one that is not zero."""
    held = (weight.grad for weight in learned_by([optimizer]))
    return any(bool(grad.any()) for grad in held if grad is not None)


def _shuffles(host: Host) -> bool | None:
    """Whether the DataLoader that feeds the steps draws at random, as far as is known of a sampler of the
    script's; None where there is none.
    """
    loaded = training_loader(host)
    if loaded is None:
        return None
    if _streams(host):
        return False  # the order is its own, of which nothing is known
    sampler, batches = loaded[0].sampler, loaded[0].batch_sampler
    if batches is not None:  # beside one of the script's the DataLoader's sampler draws nothing
        sampler = batches.sampler if type(batches) is BatchSampler else batches
    return bool(getattr(sampler, "shuffle", not isinstance(sampler, SequentialSampler)))


def _is_of_data(host: Host) -> bool:
    """Whether a DataLoader feeds the steps that is there for good: not one of what was just played."""
    loaded = training_loader(host)
    return loaded is not None and loaded[1].taken_for is None


def _streams(host: Host) -> bool:
    """Whether the steps are fed by an IterableDataset."""
    loaded = training_loader(host)
    return loaded is not None and isinstance(loaded[0].dataset, IterableDataset)


def _draws_from(name: str, args: tuple[Any, ...]) -> bool:
    """Whether an operator draws by what tensors tell: a category, or about a mean of each."""
    both = len(args) > 1 and isinstance(args[0], torch.Tensor) and isinstance(args[1], torch.Tensor)
    return name == "multinomial" or (name == "normal" and both)
