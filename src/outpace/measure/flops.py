"""What one training step computes: FLOPs, operator calls, bytes moved.

FLOPs are those of matrix products, convolutions, attention and recurrent layers, two to a
multiply-add, counted by torch's own formulas from the shapes at hand; causal attention counts in
full, as is usual for MFU. Added here: attention on the CPU, which torch 2.13 counts as nothing (14
% of a 1.2B GPT), recurrent layers, the undivided forms that inference mode shows, and the gradients of
convolutions in groups, which torch counts as if they were not. Of a sparse operand what it holds counts,
and a product of complex numbers counts as the four of real ones that it is.

Honest limits: inside of `torch.compile` only what is called outside of generated kernels is seen
(matrix products and convolutions are, fused elementwise work is not), so operator calls and bytes
are too low there. Custom kernels (Triton, C++ extensions) count no FLOPs. Bytes are those of
tensors read and written once, as if nothing stayed in a cache.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any, Literal

import torch
from torch.utils import flop_counter

from outpace.measure.counters import last_level_cache
from outpace.measure.dispatch import Operator, OperatorWatch, name_of, phase, storage_of, tensors_in

Kind = Literal["matmul", "elementwise", "other"]
Formula = Callable[..., int]
TORCHS: Any = flop_counter
"""Torch's own formulas; untyped."""
MOVERS = ("copy_", "_to_copy", "clone", "fill_", "zero_", "zeros", "zeros_like", "ones_like")
"""Operators that only write or move: bound by memory bandwidth, as elementwise ones are."""
SPARSE = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass
class StepCount:
    """What was counted in a step; its optimizer step is in it."""

    flops: int = 0
    flops_forward: int = 0
    operations: int = 0
    operations_forward: int = 0
    flops_by_dtype: Counter[torch.dtype] = field(default_factory=Counter)
    """by the dtype of what comes out"""
    bytes_out: int = 0
    """written by all operators"""
    far_bytes: int = 0
    """read and written by operators that only move or map more than any cache holds"""
    far_s: float = 0.0
    """seconds that those took"""
    fresh_bytes: int = 0
    """of those that they wrote to memory that they took for it"""
    spent: dict[tuple[str, int, int], list[float]] = field(default_factory=dict)
    """operator, its FLOPs and bytes -> seconds of each of its calls"""

    @property
    def half(self) -> str:
        """The half precision, bfloat16 or float16, that most FLOPs are done in; empty for none."""
        most = self.flops_by_dtype.most_common(1)
        half = most and most[0][0] in (torch.bfloat16, torch.float16)
        return str(most[0][0]).removeprefix("torch.") if half else ""


class StepCounter(OperatorWatch):  # type: ignore[no-untyped-call]
    """Counts what runs between ``__enter__`` and ``__exit__``, one step: slow, so for one step.

    `count` holds the result; where ``failure`` is not None it is incomplete.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = StepCount()

    def see(
        self, operator: Operator, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any
    ) -> None:
        """Count one operator."""
        if operator.namespace == "profiler":
            return
        count, name = self.count, name_of(operator)
        forward = phase() == "forward"
        count.operations += 1
        count.operations_forward += forward
        formula = formulas().get(operator.overloadpacket)
        flops = moved = 0
        if formula is not None:
            with contextlib.suppress(Exception):  # it may fail on what it was given
                flops = round(_real_share(args) * formula(*args, **kwargs, out_val=out))
                count.flops += flops
                count.flops_forward += flops * forward
                made = next(iter(tensors_in(out)), None)
                if made is not None:
                    count.flops_by_dtype[made.dtype] += flops
        if not is_view(operator):
            read, written = _bytes(args) + _bytes(kwargs), _bytes(out)
            moved = read + written
            count.bytes_out += written
            if kind_of(operator) == "elementwise" and moved > last_level_cache():
                count.far_bytes += moved
                count.far_s += self.took_s
                count.fresh_bytes += 0 if operator._schema.is_mutable else written
        count.spent.setdefault((name, flops, moved), []).append(self.took_s)


@lru_cache(maxsize=1)
def formulas() -> Mapping[Any, Formula]:
    """FLOP formulas by operator: torch's, and those that it lacks; its registry stays untouched."""
    aten = torch.ops.aten
    ours: dict[str, Formula] = {
        "_scaled_dot_product_flash_attention_for_cpu": _attention,
        "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
        "scaled_dot_product_attention": _attention,
        "linear": _linear,
        "matmul": _matmul,
        "conv1d": _convolution,
        "conv2d": _convolution,
        "conv3d": _convolution,
        "convolution_backward": _convolution_backward,
        "mkldnn_rnn_layer": _recurrent,
        "_cudnn_rnn": _recurrent_cudnn,
        "mkldnn_rnn_layer_backward": _recurrent_backward,
        "_cudnn_rnn_backward": _recurrent_cudnn_backward,
    }
    wrapped = {
        getattr(aten, n): TORCHS.shape_wrapper(f) for n, f in ours.items() if hasattr(aten, n)
    }
    return {**TORCHS.flop_registry, **wrapped}


@lru_cache(maxsize=1024)
def is_view(operator: Operator) -> bool:
    """Whether an operator only looks at memory in another shape, moving nothing."""
    return not operator._schema.is_mutable and any(
        result.alias_info is not None for result in operator._schema.returns
    )


@lru_cache(maxsize=1024)
def kind_of(operator: Operator) -> Kind:
    """What bounds an operator: arithmetic, memory bandwidth, or one cannot tell."""
    name = name_of(operator)
    if operator.overloadpacket in formulas():
        return "matmul"
    moves = name in MOVERS or name.startswith(("_foreach_", "_fused_", "_amp_"))
    return "elementwise" if moves or torch.Tag.pointwise in operator.tags else "other"


def _bytes(value: Any) -> int:
    """Bytes of memory under the tensors in ``value``; an expanded tensor counts what it holds."""
    total = 0
    for tensor in tensors_in(value):
        storage = storage_of(tensor)
        if storage is not None:
            total += min(tensor.numel() * tensor.element_size(), storage.nbytes())
    return total


def _real_share(args: tuple[Any, ...]) -> float:
    """Products of real numbers to one of a formula, which takes its operands for dense and real."""
    share = 1.0
    given = tensors_in(args)
    for tensor in given:
        if tensor.layout in SPARSE:
            held = tensor._values() if tensor.is_sparse else tensor.values()
            share *= held.numel() / max(1, tensor.numel())
    return 4.0 * share if any(tensor.is_complex() for tensor in given) else share


def _attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(TORCHS.sdpa_flop_count(query, key, value))


def _attention_backward(grad: Any, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
    return int(TORCHS.sdpa_backward_flop_count(grad, query, key, value))


def _linear(rows: Any, weight: Any, *_: Any, **__: Any) -> int:
    return int(2 * prod(rows) * weight[0])


def _matmul(left: Any, right: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return int(2 * prod(out_shape) * left[-1])


def _convolution(rows: Any, weight: Any, *_: Any, out_shape: Any = None, **__: Any) -> int:
    return int(TORCHS.conv_flop_count(rows, weight, out_shape))


def _convolution_backward(grad: Any, rows: Any, weight: Any, *settings: Any, **__: Any) -> int:
    """As much as forward for each gradient; torch's own formula forgets that channels are in groups."""
    transposed, mask = settings[4], settings[7]
    once = TORCHS.conv_flop_count(rows, weight, grad, transposed=transposed)
    return int(once * (bool(mask[0]) + bool(mask[1])))


def _recurrent(rows: Any, into: Any, onward: Any, *_: Any, **__: Any) -> int:
    """One layer in one direction: each weight meets each time step of each sequence once."""
    return int(2 * prod(rows[:-1]) * (prod(into) + prod(onward)))


def _recurrent_backward(rows: Any, into: Any, onward: Any, *_: Any, **__: Any) -> int:
    """Gradients of the inputs and of the weights: twice the forward pass."""
    return 2 * _recurrent(rows, into, onward)


def _recurrent_cudnn(rows: Any, weights: Any, *_: Any, **__: Any) -> int:
    """All layers and directions at once."""
    return int(2 * prod(rows[:-1]) * sum(prod(shape) for shape in weights if len(shape) == 2))


def _recurrent_cudnn_backward(rows: Any, weights: Any, *_: Any, **__: Any) -> int:
    return 2 * _recurrent_cudnn(rows, weights)
