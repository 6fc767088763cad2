"""Seeing every operator of one step of a stranger's script, without a way to harm it.

`OperatorWatch` is a dispatch mode that is put in at one step boundary and taken out at a later one,
by hooks, in the middle of whatever the script is doing. Three things could go wrong there, all
met in trials with torch 2.13, and are ruled out:

- torch's guards (inference mode, an autograd node that runs a hook) put the dispatch state back
  when they end. A mode pushed inside of one is lost; one popped inside of one leaves the thread
  with a dispatch key and no mode, and every later operator raises. So a watch goes in, and comes
  out, only where no such guard is open.
- Popping takes the top of the stack, whoever's it is. So a watch does not go in on top of somebody
  else's mode (which would then pop ours) and comes out only while it is the top.
- A watch that cannot come out yet stays, blind: it passes operators on. `remove` tries again.

Compiled regions stay compiled: torch hands a mode only what they call outside of generated
kernels, which is matrix products and convolutions, the optimizer and the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Operator = torch._ops.OpOverload


class OperatorWatch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Base of what looks at operators as they run; a subclass says in `see` what it looks for.

    ``failure`` tells why nothing, or not everything, was seen. No error of ours reaches the script,
    and each operator runs exactly once, with its own arguments.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.watching = False
        self.on_stack = False
        self.failure: str | None = None
        self.took_s = 0.0
        """that the operator that has just run took; on a GPU: to be launched"""

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Keep compiled regions compiled while watched."""
        return True

    def see(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Look at an operator that has just run; abstract."""
        raise NotImplementedError

    def __enter__(self) -> OperatorWatch:
        """Begin to watch, or set ``failure`` where that would not be safe here."""
        self.failure = _why_not_now()
        if self.failure is None and torch._C._len_torch_dispatch_stack() > 0:
            self.failure = "another dispatch mode is active"
        if self.failure is None:
            try:
                super().__enter__()  # type: ignore[no-untyped-call]
                self.on_stack = self.watching = True
            except Exception as error:
                self.failure = f"could not be put in: {error}"
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop watching; an exception passes through."""
        self.watching = False
        self.remove()

    def remove(self) -> bool:
        """Take the watch off torch's stack where that is safe now; whether it is off."""
        if not self.on_stack:
            return True
        depth = torch._C._len_torch_dispatch_stack()
        if _why_not_now() or depth == 0 or torch._C._get_dispatch_stack_at(depth - 1) is not self:
            return False
        super().__exit__(None, None, None)  # type: ignore[no-untyped-call]
        self.on_stack = False
        return True

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Run the operator, then look at it.

        A tensor subclass with a dispatch of its own (DTensor, nested; not Parameter) goes first, by
        NotImplemented: it makes plain operators of the call, and those come here.
        """
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented
        named = kwargs or {}
        begun = perf_counter()
        out = func(*args, **named)
        self.took_s = perf_counter() - begun
        if self.watching:
            try:
                self.see(func, args, named, out)
            except Exception as error:
                self.watching = False
                self.failure = f"{type(error).__name__} at {func}: {error}"
        return out


def _why_not_now() -> str | None:
    """Why the dispatch stack must not be changed at this moment; None where it may be."""
    if torch.is_inference_mode_enabled():
        return "the step boundary lies inside torch.inference_mode"
    if torch._C._current_graph_task_id() != -1:
        return "the step boundary lies inside a backward pass"
    return None


def phase() -> str:
    """What the running operator belongs to, by the state of autograd.

    "forward" is whatever runs with gradients enabled, "other" the optimizer and evaluation.
    """
    if torch._C._current_graph_task_id() != -1:
        return "backward"
    return "forward" if torch.is_grad_enabled() else "other"


def name_of(operator: Any) -> str:
    """An operator's name without its name space: ``add_`` of ``aten::add_``."""
    return str(operator._schema.name.partition("::")[2])


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The memory under a tensor; None for tensors that have none of their own (sparse, meta)."""
    tensor = getattr(tensor, "_local_tensor", tensor)
    if tensor.layout is not torch.strided or tensor.is_meta:
        return None
    try:
        return tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None


def address_of(tensor: torch.Tensor | None) -> int:
    """Of the memory under a tensor; 0 for none."""
    storage = None if tensor is None else storage_of(tensor)
    return 0 if storage is None else storage.data_ptr()


def memory_of(value: Any) -> dict[int, torch.UntypedStorage]:
    """The memory under tensors, by its address: while it is held nothing else comes to lie there."""
    found = map(storage_of, tensors_in(value))
    return {one.data_ptr(): one for one in found if one is not None and one.nbytes()}


def capturing() -> bool:
    """Whether a CUDA graph is being captured, in which no tensor may be read."""
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return started and torch.cuda.is_current_stream_capturing()


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors in an operator's arguments or results, lists and dicts looked through."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (tuple, list)):
        return [tensor for item in value for tensor in tensors_in(item)]
    if isinstance(value, Mapping):
        return [tensor for item in value.values() for tensor in tensors_in(item)]
    return []
