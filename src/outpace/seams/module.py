"""The root module's call: the outermost module with parameters that the script itself calls.

Which module that is is found, not told. A call with gradients in training mode is the forward pass
of a step, and so is one in evaluation mode of a model that an optimizer steps and that never was in
the other; any other is validation, or one of a model that helps in each step. Calls under torch.compile
are traced as if the seam were absent.
"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import replace
from threading import get_ident
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from outpace.seams.alter import alter
from outpace.seams.batch import changed_within, map_tensors, tensors_in, to_float32
from outpace.seams.checkpoints import bring_checkpoints, recomputing
from outpace.seams.drops import looked_at
from outpace.seams.held import held_by
from outpace.seams.helper import of_the_step
from outpace.seams.host import Host, on_stderr
from outpace.seams.in_place_of import Replaced
from outpace.seams.layout import as_rows, lay_out, to_channels_last
from outpace.seams.root import Caller, Evaluations, RootFacts
from outpace.seams.setup import AS_IS, Setup
from outpace.seams.unused import sparing
from outpace.seams.where import caller, locals_of, user_frame, user_frames

_is_compiling = torch.compiler.is_compiling
_current_graph_task_id = torch._C._current_graph_task_id

FEWEST_IN_MODE = 10
"""steps of a model in training mode, and then in evaluation mode, to say that it was left there"""

NO_VIEW = "view size is not compatible"
"""what torch says of a view() of what does not lie in rows"""
LOOKS = 3
"""at where a model is called to learn"""

OnCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Callable[[Any], None] | None]
"""told of a root's call, with its arguments; what it gives, if anything, is told of what came of the call"""


def _nothing() -> None:
    """There is nothing to undo."""


class ModuleSeam:
    """Stands at ``nn.Module.__call__``."""

    name = "module"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.inside = False
        self.plain = True
        self.replaced = Replaced()
        self.original: Any = None
        self.call: Any = None
        """the original, or one in which parameters are spared their gradients"""
        self.to_look_at: Evaluations | None = None
        """whether the call at hand drops in evaluation mode is to be noted here"""
        self.judged: list[Evaluations] = []
        """of models that were called without learning"""
        self.given: dict[int, Given | None] = {}
        """what each root (id) was last called on to learn since the last backward pass, in that order"""
        self.given_at = -1
        """backward passes before it"""
        self.judged_on: Given | None = None
        """what a model in evaluation mode was called on last with gradients on"""
        self.judging: weakref.ref[nn.Module] | None = None
        """that model"""
        self.learnt: MutableMapping[nn.Module, int] = WeakIdKeyDictionary()
        """calls in evaluation mode that a backward pass went through: an optimizer's step tells who learns"""
        self.handles: list[Any] = []
        self.calls_at_first = 0
        """to learn, before the first step ended; a model may have acted for long before it learnt"""
        self.unlearnt: list[RootFacts] = []
        """of models that were called to learn since the last backward pass"""
        self.last: Any = lambda: None
        self.last_facts: RootFacts | None = None
        """the root called last, weakly, and what is known of it"""
        self.altered: tuple[str, str] | None = None
        self.undo: Callable[[], None] = _nothing
        self.on_call: OnCall | None = None

    def install(self) -> None:
        """Put the seam in."""
        self.replaced.put(nn.Module, "__call__", self._wrap)
        # Of post-hooks none may come or go where a step ends: torch is walking through them.
        self.handles = self.handles or [register_optimizer_step_pre_hook(self.saw_step)]
        self.host.on_learning, self.host.on_taught = self.saw_learning, self.saw_backward

    def _wrap(self, original: Any) -> Any:
        self.original = self.call = original
        seam, phases, host = self, self.host.phases, self.host
        stack = phases.stack

        # torch's profiler looks into its frame for the module, by this name.
        def __call__(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if _is_compiling() or seam.inside or get_ident() != phases.owner:
                return original(self, *args, **kwargs)
            if phases.resting and seam.plain and (self.training or seam.of_steps(self)):
                seam.inside = True
                try:
                    return seam.call(self, *args, **kwargs)
                finally:
                    seam.inside = False
            if (stack and stack[-1] == "input") or _current_graph_task_id() != -1:
                # A data set's own model, or a part of ours that is computed again for backward.
                return original(self, *args, **kwargs)
            host.wake()
            seam.inside = True
            depth = len(stack)
            try:
                try:
                    facts = seam.enter(self, args, kwargs)
                except Exception as error:
                    facts = None
                    host.fail("module", error)
                if facts is None:
                    return seam.call(self, *args, **kwargs)
                if not facts.has_parameters:
                    out = seam.call(self, *args, **kwargs)
                    if torch.is_grad_enabled() and (tensors := list(tensors_in(out))):
                        facts.gradients_pass = any(each.requires_grad for each in tensors)
                    return out
                ended = None
                if seam.on_call is not None:
                    ended = host.guard("module", seam.on_call, self, args, kwargs)
                found, seam.to_look_at = seam.to_look_at, None
                if not seam.plain:
                    out = seam.run(self, facts, args, kwargs)
                elif found is not None:
                    out = looked_at(seam.call, found, self, args, kwargs)
                else:
                    out = seam.call(self, *args, **kwargs)
                if ended is not None:
                    host.guard("module", ended, out)
                return out
            finally:
                seam.inside = False
                phases.unwind(depth)

        return __call__

    def remove(self) -> None:
        """Take it out."""
        self.reconcile(AS_IS)
        self.replaced.put_all_back()
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.host.on_learning = self.host.on_taught = None

    def reconcile(self, setup: Setup) -> None:
        """Bring the known roots to ``setup``."""
        if "channels_last" in self.host.unfit:
            setup = replace(setup, channels_last=False)
        self.setup = setup
        self.call = self.call_sparing if setup.no_unused_gradients else self.original
        self.plain = not (
            setup.autocast or setup.channels_last or setup.compiled or setup.checkpointed
        )
        for module, facts in list(self.host.roots.items()):
            if facts.has_parameters:
                bring_format(self.host, module, facts, setup.channels_last)
                bring_checkpoints(module, wanted=False)
        self.bring_altered(setup.altered)

    def call_sparing(self, module: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
        """Call a model while those parameters ask for no gradient that no optimizer has."""
        with sparing(self.host):
            return self.original(module, *args, **kwargs)

    def bring_altered(self, change: tuple[str, str] | None) -> None:
        """Have the largest model do less, or all of its work again."""
        if change == self.altered:
            return
        self.undo()
        self.altered, self.undo = None, _nothing
        rooted = self.host.main_root()
        if change is not None and rooted is not None:
            self.undo, self.altered = alter(rooted[0], change), change

    @contextlib.contextmanager
    def looking_away(self) -> Iterator[None]:
        """While a model is called that is not the script's call."""
        before, self.inside = self.inside, True
        try:
            yield
        finally:
            self.inside = before

    def enter(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RootFacts:
        """Note the call and start its phase."""
        host = self.host
        facts = self.last_facts if self.last() is module else host.roots.get(module)
        if facts is not None:
            if self.last() is not module:
                self.last, self.last_facts = weakref.ref(module), facts
        else:
            facts = host.roots[module] = RootFacts()
            facts.has_parameters = next(module.parameters(), None) is not None
            if facts.has_parameters:
                bring_format(host, module, facts, self.setup.channels_last)
        if module.training and torch.is_grad_enabled():
            facts.trained += not facts.in_training or facts.trained_at != host.steps
            facts.in_training, facts.trained_at = True, host.steps
            self.learnt.pop(module, None)
        learns = self.learns(module, facts)
        if not facts.has_parameters:
            if host.mode != "train":
                host.phases.push("validation")
            elif facts.gradients_pass:
                host.phases.push("forward")
        elif learns:
            if host.mode != "train":
                host.saw_training()
            if not facts.training_calls:
                facts.since = host.steps
            facts.training_calls += 1
            facts.learns = facts.learns or host.steps > 0
            if facts.looks < LOOKS:
                self.note_call(facts, args, kwargs)
            if host.on_backward is not None:
                self.note_given(module, args, kwargs)
            host.phases.push("forward")
        elif of_the_step(host, facts, module, (*args, *kwargs.values())):
            facts.where = facts.where or caller()
            host.phases.push("forward")
        else:
            host.saw_validation()
            self.note_evaluation(module, facts)
            if not module.training and torch.is_grad_enabled():
                self.judged_on = given(module, args, kwargs)
                self.judging = weakref.ref(module)
            host.phases.push("validation")
        return facts

    def note_given(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What a root is called on to learn."""
        if self.given_at != self.host.backwards:
            self.given_at = self.host.backwards
            self.given.clear()
        before = self.given.pop(id(module), None)
        self.given[id(module)] = given(
            module, args, kwargs, 1 if before is None else before.times + 1
        )

    def learns(self, module: nn.Module, facts: RootFacts) -> bool:
        """Whether a model is called to learn.

        In evaluation mode only one that never learnt in the other: else gradients were forgotten there.
        """
        if module.training or facts.in_training or not torch.is_grad_enabled():
            return module.training and torch.is_grad_enabled()
        steppers = self.host.optimizers
        if not facts.taught and facts.steppers != len(steppers):
            facts.steppers = len(steppers)
            held = held_by(*steppers)
            facts.taught = any(p.requires_grad and id(p) in held for p in module.parameters())
            if facts.taught:  # its first calls, before an optimizer stepped, judged nothing
                self.judged = [one for one in self.judged if one is not facts.evaluations]
                facts.evaluations = Evaluations()
        return facts.taught

    def of_steps(self, module: nn.Module) -> bool:
        """Whether a model's calls in evaluation mode belong to the steps."""
        facts = self.host.roots.get(module)
        return facts is not None and (facts.evaluations.helps or self.learns(module, facts))

    def note_evaluation(self, module: nn.Module, facts: RootFacts) -> None:
        """A model was called without learning."""
        found = facts.evaluations
        if not found.calls:
            self.judged.append(found)
        found.calls += 1
        if self.host.mode != "validation":
            return
        if module.training:
            if self.host.training_batch_waits():
                return  # the training's batches judge nothing: batch norms gather statistics of them
            if facts.behaves_otherwise is None:
                facts.behaves_otherwise = behaves_otherwise(module)
            if facts.behaves_otherwise:
                found.in_training += 1
                found.in_training_where = found.in_training_where or caller()
            return
        if found.draws is not False:
            self.to_look_at = found
        if torch.is_grad_enabled():
            found.with_grad += 1
            found.with_grad_where = found.with_grad_where or caller()

    def saw_learning(self) -> None:
        """What was taken for a validation is learnt from: by its model, or by another through it."""
        module = self.judging() if self.judging is not None else None
        facts = self.host.roots.get(module) if module is not None else None
        self.judging = None
        if module is None or facts is None or not facts.in_training:
            return
        if any(parameter.requires_grad for parameter in module.parameters()):
            self.learnt[module] = self.learnt.get(module, 0) + 1

    def saw_step(self, optimizer: Optimizer, *_: Any) -> None:
        """An optimizer makes a step."""
        if self.learnt:
            self.host.guard("module", self.teach, held_by(optimizer))

    def teach(self, held: set[int]) -> None:
        """Models that learn by weights that are ``held`` were left in evaluation mode."""
        for module, calls in list(self.learnt.items()):
            facts = self.host.roots[module]
            if not any(p.requires_grad and id(p) in held for p in module.parameters()):
                continue  # others learn through it
            del self.learnt[module]
            if module.training or not facts.in_training:
                continue
            found = facts.evaluations
            found.calls = max(0, found.calls - calls)
            found.with_grad = max(0, found.with_grad - calls)
            facts.taught_in_evaluation = facts.taught = True
            facts.in_training = False

    def left_in_evaluation(self) -> tuple[int, str | None]:
        """Steps since a model that learns was in training mode, and where it is called; 0 where it is so."""
        for module, facts in list(self.host.roots.items()):
            since = self.host.steps - facts.trained_at
            left = facts.taught_in_evaluation and not facts.in_training
            long = min(since, facts.trained) >= FEWEST_IN_MODE
            if left and long and any(of_two_minds(module)):
                return since, facts.where
        return 0, None

    def evaluations(self) -> Evaluations:
        """Calls without learning of all models that do not help in the steps."""
        judged = [one for one in self.judged if not one.helps]
        return Evaluations(
            calls=sum(one.calls for one in judged),
            with_grad=sum(one.with_grad for one in judged),
            with_grad_where=next((one.with_grad_where for one in judged if one.with_grad), None),
            in_training=sum(one.in_training for one in judged),
            in_training_where=next(
                (one.in_training_where for one in judged if one.in_training), None
            ),
            drops=next((one.drops for one in judged if one.drops), None),
            drops_where=next((one.drops_where for one in judged if one.drops), None),
        )

    def callers(self) -> list[Caller]:
        """Those of all roots that learn: one's input may be made in the call, as by ``torch.cat``."""
        return [each for facts in self.host.roots.values() for each in facts.callers]

    def note_call(self, facts: RootFacts, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Look at the first calls, and at those where a backward pass came after one: others may act, or
        try the model out.
        """
        frame = user_frame(sys._getframe(1))
        place = None if frame is None else (frame.f_code, frame.f_lineno)
        known = place in facts.learnt_at
        if known or facts.training_calls <= LOOKS:
            self.look_at_caller(facts, args, kwargs)
            facts.looks += known
        facts.called_at = place
        if all(facts is not one for one in self.unlearnt):
            self.unlearnt.append(facts)

    def calls_to_learn(self) -> int:
        """Those of all roots."""
        return sum(facts.training_calls for facts in list(self.host.roots.values()))

    def calls_a_step(self) -> float | None:
        """Calls to learn in a step, in the mean; None where there was but one step."""
        later = self.host.steps - 1
        return (self.calls_to_learn() - self.calls_at_first) / later if later > 0 else None

    def saw_backward(self) -> None:
        """The newest calls were to learn."""
        if not self.host.steps:
            self.calls_at_first = self.calls_to_learn()
        for facts in self.unlearnt:
            facts.learnt_at.add(facts.called_at)
        self.unlearnt.clear()

    def look_at_caller(
        self, facts: RootFacts, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Where the model is called, with which of the caller's variables, on how many samples."""
        facts.where = caller()
        tensors = {id(tensor) for tensor in tensors_in((args, kwargs))}
        facts.callers = []
        for frame in user_frames(sys._getframe(1)):
            variables = locals_of(frame) or {}
            names = tuple(k for k, v in variables.items() if holds(v, tensors))
            code = frame.f_code
            if names:
                facts.callers.append((code.co_filename, code.co_name, frame.f_lineno, names))
        passed = (*args, *kwargs.values())
        tensor = next((a for a in passed if isinstance(a, torch.Tensor) and a.dim()), None)
        if tensor is not None and (self.host.drawn.last is None or not self.host.batch_size):
            self.host.batch_size = tensor.size(0)  # its first call may be one to try it out

    def run(
        self,
        module: nn.Module,
        facts: RootFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call the root as the Setup says, as far as the script bears it."""
        try:
            return self._run(module, facts, args, kwargs)
        except RuntimeError as error:
            if not self.setup.channels_last or NO_VIEW not in str(error):
                raise
        self.refuse_channels_last()
        return self._run(module, facts, args, kwargs)

    def _run(
        self,
        module: nn.Module,
        facts: RootFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        setup = self.setup
        # What judges the model stays as it is: casting weights for a sample at a time takes longer than
        # it does, and another mode and other batches would be compiled for.
        judges = self.host.phases.current() == "validation"
        call = self.call
        if setup.compiled and not judges and not has_hooks(module):
            forward: Any = module.forward
            bound = getattr(forward, "__self__", None) is module
            if facts.compiled is None:  # a bound one would keep its model for good
                facts.compiled = torch.compile(forward.__func__ if bound else forward)
            compiled = facts.compiled

            def call(model: nn.Module, /, *a: Any, **k: Any) -> Any:
                with sparing(self.host):
                    return compiled(model, *a, **k) if bound else compiled(*a, **k)

        kind = device_of(module)
        own = torch.is_autocast_enabled(kind)
        wanted = None if judges or (own and not in_float32(module)) else setup.autocast
        if own == (wanted != "float32"):
            wanted = None  # as the script has it
        with contextlib.ExitStack() as within:
            if setup.checkpointed:
                within.enter_context(recomputing(module, setup))
            if setup.channels_last:
                args, kwargs = within.enter_context(
                    changed_within((args, kwargs), to_channels_last)
                )
            if wanted == "float32":
                args, kwargs = within.enter_context(changed_within((args, kwargs), to_float32))
                within.enter_context(torch.autocast(kind, enabled=False))
            elif wanted is not None:
                within.enter_context(torch.autocast(kind, getattr(torch, wanted)))
            out = call(module, *args, **kwargs)
        if wanted not in (None, "float32"):
            out = map_tensors(out, to_float32)
        return map_tensors(out, as_rows) if setup.channels_last else out

    def refuse_channels_last(self) -> None:
        """Leave it out from here on: a ``view()`` in the model goes by how images lie in memory."""
        why = "the model calls view() on what lies channels last, which torch refuses"
        self.host.unfit["channels_last"] = why
        if not self.host.experiments:  # which tell of it themselves
            on_stderr(f"outpace: channels_last is left out: {why}")
        self.reconcile(self.setup)


def has_hooks(module: nn.Module) -> bool:
    """Whether something is called with the model, that its compiled forward would leave out."""
    forward = module._forward_hooks or module._forward_pre_hooks
    return bool(forward or module._backward_hooks or module._backward_pre_hooks)


def behaves_otherwise(module: nn.Module) -> bool:
    """Whether a module in training mode computes something else than in evaluation."""
    return any(each.training for each in of_two_minds(module))


def of_two_minds(module: nn.Module) -> Iterator[nn.Module]:
    """Its layers that compute something else in training mode than in evaluation."""
    dropout, norm = nn.modules.dropout._DropoutNd, nn.modules.batchnorm._NormBase
    for m in module.modules():
        by_layer = (isinstance(m, dropout) and m.p > 0) or (
            isinstance(m, norm) and m.track_running_stats
        )
        between = isinstance(m, nn.RNNBase) and m.num_layers > 1 and m.dropout > 0
        if by_layer or between or (isinstance(m, nn.MultiheadAttention) and m.dropout > 0):
            yield m


def holds(value: Any, tensors: set[int]) -> bool:
    """Whether a variable is one of the tensors, or a batch (tuple, list, dict) that has one.

    The script's own kinds of these are not asked: what they do then is theirs.
    """
    if id(value) in tensors:
        return True
    if isinstance(value, dict) and dict.__len__(value) < 32:
        return any(id(v) in tensors for v in dict.values(value))
    if isinstance(value, list) and list.__len__(value) < 32:
        return any(id(v) in tensors for v in list.__iter__(value))
    if isinstance(value, tuple) and tuple.__len__(value) < 32:
        return any(id(v) in tensors for v in tuple.__iter__(value))
    return False


def in_float32(module: nn.Module) -> bool:
    """Whether its weights are: those of a teacher may be in half precision."""
    weights = (weight for weight in module.parameters() if weight.is_floating_point())
    first = next(weights, None)
    return first is not None and first.dtype == torch.float32


class Given(NamedTuple):
    """What a model was called on, kept weakly, and what products were cast to; None: to nothing."""

    module: weakref.ref[nn.Module]
    args: list[weakref.ref[torch.Tensor]]
    kwargs: dict[str, weakref.ref[torch.Tensor]]
    autocast: torch.dtype | None
    times: int


def given(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], times: int = 1
) -> Given | None:
    """None where it is called on anything but tensors. ``times``: that it was called so by now."""
    if not all(isinstance(value, torch.Tensor) for value in (*args, *kwargs.values())):
        return None
    kind = device_of(module)
    half = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    named = {name: weakref.ref(value) for name, value in kwargs.items()}
    return Given(weakref.ref(module), [weakref.ref(value) for value in args], named, half, times)


def device_of(module: nn.Module) -> str:
    """Device type of a module's parameters."""
    parameter = next(module.parameters(), None)
    return "cpu" if parameter is None else parameter.device.type


def is_compiled(module: nn.Module) -> bool:
    """Whether it, or a part of it, is one of torch.compile's, or has a ``forward`` that is."""
    return any(
        getattr(part, "_compiled_call_impl", None) is not None
        or "OptimizedModule" in type(part).__name__
        or hasattr(getattr(part, "forward", None), "_torchdynamo_orig_callable")
        for part in module.modules()
    )


def bring_format(host: Host, module: nn.Module, facts: RootFacts, channels_last: bool) -> None:
    """Lay a root's weights, and their optimizer states, out as asked."""
    if facts.channels_last == channels_last:
        return
    lay_out(module, host.optimizers, channels_last=channels_last)
    facts.channels_last = channels_last
