"""Optimizer steps: where a step of training ends.

Global hooks see every optimizer made through torch.optim; their options (fused, foreach) are
switched in its parameter groups, which leaves its state as it is. What a script saves has its own options
and its own layout: a run without us would take ours for the script's.
"""

from __future__ import annotations

import functools
import sys
import weakref
from threading import get_ident
from time import perf_counter
from types import FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from outpace.seams.host import ACCUMULATED, Host
from outpace.seams.in_place_of import Replaced
from outpace.seams.layout import grads_lie_as_weights, laid_in_rows, lay_states, of_weights
from outpace.seams.setup import AS_IS, FOREACH, FUSED, FUSED_ON_CPU, Setup
from outpace.seams.where import lines_of

CLOSURES = (FunctionType, MethodType, functools.partial)
"""what a closure is: whatever else can be called, as a model, an optimizer may want itself"""
MOST_CALLS, LONG_S = 64, 10.0
"""of a closure that are one step, and their seconds: a search takes some twenty calls"""
OPTIONS = ("fused", "foreach")
"""which of its implementations an optimizer takes; not each has both"""

_current_graph_task_id = torch._C._current_graph_task_id


class OptimizerSeam:
    """Stands at ``Optimizer.step``, ``zero_grad`` and construction."""

    name = "optimizer"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.setup = AS_IS
        self.handles: list[Any] = []
        self.last: Any = lambda: None
        """the optimizer that was stepped last, weakly: sets are slow to look in"""
        self.replaced = Replaced()
        self.own: weakref.WeakKeyDictionary[Optimizer, list[dict[str, Any]]] = (
            weakref.WeakKeyDictionary()
        )
        self.mislaid: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """those whose gradients the script lays otherwise than its weights"""
        self.mislays = False
        """there was one"""
        self.begun = False
        """a step began, and none has ended since"""
        self.calls, self.began = 0, 0.0
        """of a closure, in the step under way, and when that began"""
        self.by_calls: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        """of whose closures each call is a step"""
        self.zeroes = False
        """the script asks that gradients be set to zero instead of None"""

    def install(self) -> None:
        """Put the seam in."""
        self.handles = self.handles or [
            register_optimizer_step_pre_hook(self.before_step),
            register_optimizer_step_post_hook(self.after_step),
        ]
        self.replaced.put(Optimizer, "__init__", self._wrap_init)
        self.replaced.put(Optimizer, "zero_grad", self._wrap_zero_grad)
        self.replaced.put(Optimizer, "state_dict", self._wrap_state_dict)
        self.replaced.put(Optimizer, "load_state_dict", self._wrap_load_state_dict)

    def _wrap_init(self, original: Any) -> Any:
        host = self.host

        def note(optimizer: Optimizer, frame: FrameType) -> None:
            host.made[optimizer] = lines_of(frame)

        @functools.wraps(original)
        def __init__(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            original(optimizer, *args, **kwargs)
            host.by_hand_after = ACCUMULATED
            host.guard("optimizer", note, optimizer, sys._getframe(1))

        return __init__

    def _wrap_zero_grad(self, original: Any) -> Any:
        seam, phases = self, self.host.phases

        @functools.wraps(original)
        def zero_grad(optimizer: Optimizer, set_to_none: bool = True) -> Any:
            if not set_to_none:
                seam.zeroes = True
                if seam.setup.set_to_none:
                    set_to_none = True
            if phases.resting or get_ident() != phases.owner:
                return original(optimizer, set_to_none)
            phases.push("optimizer")
            try:
                return original(optimizer, set_to_none)
            finally:
                phases.pop()

        return zero_grad

    def _wrap_state_dict(self, save: Any) -> Any:
        seam, host = self, self.host

        @functools.wraps(save)
        def state_dict(optimizer: Optimizer) -> dict[str, Any]:
            saved: dict[str, Any] = save(optimizer)
            host.guard("optimizer", seam.give_as_the_scripts, optimizer, saved)
            return saved

        return state_dict

    def _wrap_load_state_dict(self, load: Any) -> Any:
        seam, host = self, self.host

        @functools.wraps(load)
        def load_state_dict(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:
            load(optimizer, *args, **kwargs)
            if seam.own.pop(optimizer, None) is not None:
                host.guard("optimizer", seam.bring, optimizer)

        return load_state_dict

    def remove(self) -> None:
        """Take it out."""
        for handle in self.handles:
            handle.remove()
        self.handles = []
        self.replaced.put_all_back()
        self.reconcile(AS_IS)

    def reconcile(self, setup: Setup) -> None:
        """Bring the known optimizers to ``setup``."""
        self.setup = setup
        self.mislaid.clear()
        for optimizer in list(self.host.optimizers):
            self.bring(optimizer)

    def before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        """A step begins; its arguments where a closure is among them, which is the script's own."""
        host = self.host
        if not host.trains_here():
            return None
        self.begun = True
        if self.last() is not optimizer:
            self.last = weakref.ref(optimizer)
            if optimizer not in host.optimizers:
                host.optimizers.add(optimizer)
                if self.setup.fused is not None or self.setup.foreach is not None:
                    host.guard("optimizer", self.bring, optimizer)
        if self.setup.fused or self.setup.channels_last:
            host.guard("optimizer", self.keep_alike, optimizer)
        if not host.phases.resting:
            host.phases.push("optimizer")
        given = (*args, *kwargs.values())
        if torch.compiler.is_compiling() or not any(isinstance(one, CLOSURES) for one in given):
            return None
        return (
            tuple(self.beside_step(optimizer, value) for value in args),
            {name: self.beside_step(optimizer, value) for name, value in kwargs.items()},
        )

    def beside_step(self, optimizer: Optimizer, value: Any) -> Any:
        """A closure that stops the optimizer's clock while it runs: it has phases of its own.

        A search calls it many times a step: the step's loss, and its batches, are those of the first call.
        Where it goes on for long, as a whole training in one call of ``step`` or a pass over all samples,
        each is a step of its own. An exception of it ends the step, and leaves no phase running.
        """
        host, phases = self.host, self.host.phases
        if not isinstance(value, CLOSURES):
            return value
        first: tuple[int, int] | None = None
        self.calls, self.began = 0, perf_counter()

        @functools.wraps(value)
        def closure(*args: Any, **kwargs: Any) -> Any:
            nonlocal first
            if get_ident() != phases.owner:
                return value(*args, **kwargs)
            self.calls += 1
            if phases.resting or phases.current() != "optimizer":
                result = value(*args, **kwargs)
                if self.is_step(optimizer):
                    host.guard("optimizer", host.saw_optimizer_step, optimizer)
                return result
            phases.pop()
            depth = len(phases.stack)
            try:
                result = value(*args, **kwargs)
            finally:
                phases.unwind(depth)
            if self.is_step(optimizer):
                host.guard("optimizer", host.saw_optimizer_step, optimizer)
            elif first is None:
                first = len(host.pending), host.backwards_in_step
            else:
                del host.pending[first[0] :]
                host.backwards_in_step = first[1]
            phases.push("optimizer")
            return result

        return closure

    def is_step(self, optimizer: Optimizer) -> bool:
        """Whether a call of a closure is to be one."""
        long = self.calls > 1 and perf_counter() - self.began > LONG_S
        if long or self.calls > MOST_CALLS:
            self.by_calls.add(optimizer)
        return optimizer in self.by_calls

    def after_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        """A step ended."""
        host = self.host
        if host.on_main_thread() and self.begun:
            self.begun = False  # a class whose step calls its base's ends two, and steps once
            stack = host.phases.stack
            within = _current_graph_task_id() != -1
            # What an exception left of an earlier step goes too, the backward pass around this one does not.
            host.phases.unwind(stack.index("backward") + 1 if "backward" in stack else 0)
            if optimizer not in self.by_calls:
                host.saw_optimizer_step(optimizer, within=within)

    def keep_alike(self, optimizer: Optimizer) -> None:
        """Fused kernels go through weights, gradients and state by address, and do not look how they lie."""
        if any(group.get("fused") for group in optimizer.param_groups):
            lay_states(optimizer)
            if not grads_lie_as_weights(optimizer):
                self.mislays = True
                self.mislaid.add(optimizer)
                self.bring(optimizer)

    def give_as_the_scripts(self, optimizer: Optimizer, saved: dict[str, Any]) -> None:
        """Have what is saved be as it would be without us."""
        for group, own in zip(saved["param_groups"], self.own.get(optimizer, ()), strict=False):
            was_fused = group.get("fused")
            group.update((key, value) for key, value in own.items() if key in group)
            if was_fused and not (group.get("fused") or group.get("capturable")):
                count_on_host(saved["state"], group["params"])
        if self.setup.channels_last:
            saved["state"] = {key: laid_in_rows(state) for key, state in saved["state"].items()}

    def bring(self, optimizer: Optimizer) -> None:
        """Switch an optimizer's implementation, or give it its own back."""
        own = self.own.setdefault(
            optimizer,
            [{k: g[k] for k in OPTIONS if k in g} for g in optimizer.param_groups],
        )
        fused, foreach = self.setup.fused, self.setup.foreach
        name, mislaid = type(optimizer).__name__, optimizer in self.mislaid
        for group, before in zip(optimizer.param_groups, own, strict=False):
            if "foreach" not in before:
                continue
            options = before
            if mislaid:
                options = before | {"fused": None}
            elif fused and name in FUSED and can_fuse(name, group):
                options = {"fused": True, "foreach": False}
            elif foreach and name in FOREACH:
                options = {"fused": False, "foreach": True}
            group.update((key, options[key]) for key in before)
        begin_momenta(optimizer)
        fused_now = any(g.get("fused") for g in optimizer.param_groups)
        for parameter, state in of_weights(optimizer):
            step = state.get("step")
            if isinstance(step, torch.Tensor) and parameter.is_cuda:
                wanted = parameter.device if fused_now else torch.device("cpu")
                if step.device.type != wanted.type and not _capturable(optimizer):
                    state["step"] = step.to(wanted)


def can_fuse(name: str, group: dict[str, Any]) -> bool:
    """Whether torch has a fused kernel for such parameters, for an optimizer of this name that has one."""
    devices = ("cpu",) if name in FUSED_ON_CPU else ("cpu", "cuda")
    if name == "SGD" and group.get("momentum") and group.get("dampening"):
        return False  # the first step is another one: see `begin_momenta`
    return not group.get("differentiable") and all(
        p.is_floating_point()
        and p.device.type in devices
        and not (p.grad is not None and p.grad.is_sparse)
        for p in group["params"]
    )


def begin_momenta(optimizer: Optimizer) -> None:
    """Have fused SGD begin with momenta of zero, which give the same first step where nothing is dampened.

    Its kernel takes momenta of all of a group's weights or of none: a weight whose first gradient comes later
    than others' would end the training. And where GradScaler leaves out a first step that overflowed, it
    leaves momenta of memory that nobody has written to.
    """
    if type(optimizer).__name__ != "SGD":
        return
    for group in optimizer.param_groups:
        if group.get("fused") and group.get("momentum") and not group.get("dampening"):
            for weight in group["params"]:
                learns = weight.requires_grad
                if learns and optimizer.state[weight].get("momentum_buffer") is None:
                    optimizer.state[weight]["momentum_buffer"] = torch.zeros_like(weight).detach()


def _capturable(optimizer: Optimizer) -> bool:
    return any(group.get("capturable") for group in optimizer.param_groups)


def count_on_host(states: dict[Any, Any], held: list[Any]) -> None:
    """Have steps be counted on the host, as plain optimizers do: they would wait for a GPU at each step."""
    for key in held:
        step = states.get(key, {}).get("step")
        if isinstance(step, torch.Tensor) and step.is_cuda:
            states[key] = {**states[key], "step": step.cpu()}
