"""A step on another accelerator, reckoned operator by operator from what each took here.

An operator is bound by arithmetic or by memory (Williams et al. 2009, "Roofline"), here by the one and
there, it may be, by the other. How near it comes to that bound here it is taken to come there (Yu et al.
2021, "Habitat", who were off by 12 % in the mean between GPUs; between a CPU and a GPU it is a guess, so
the limits are those of all operators at the least and at the most that is usually reached).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from outpace.plan.hardware import Device
from outpace.records.compute import Operators
from outpace.records.evidence import Evidence

REACHED = (0.1, 0.6)
"""shares of its bound that an operator is taken to reach at least and at most"""
DISPATCH_S = 8e-6
"""CPU time of one operation that is sent to an accelerator, forward and backward"""
SEEN = 0.5
"""of a step's computing that is in the operators which were seen: a compiled model's are not"""


class Rates(NamedTuple):
    """FLOP/s, and bytes a second."""

    flops: float
    bandwidth: float

    def bound_s(self, operator: Operators) -> float:
        """Seconds that one call takes at the least."""
        return max(operator.flops / self.flops, operator.moved_bytes / self.bandwidth)


class Reckoned(NamedTuple):
    """Seconds of a step's computing."""

    estimate: float
    least: float
    most: float


def rates_here(evidence: Evidence) -> Rates | None:
    """What was measured of this machine; None where its arithmetic was not."""
    ceilings, compute = evidence.machine.ceilings, evidence.compute
    rates = evidence.machine.products
    top = rates.get(compute.products or "") or rates.get(compute.dtype)  # float16 on a CPU has none
    if ceilings is None or not top:
        return None
    return Rates(top, ceilings.memory_bytes_s or math.inf)


def rates_there(device: Device, products: str | None) -> Rates | None:
    """Those of its data sheet, for ``products`` of that format; None where it has none for float32 either."""
    half = _in_half(device, products)
    rate = half or device.tf32_tflops or device.fp32_tflops or device.bf16_tflops
    return Rates(rate * 1e12, device.bandwidth_gb_s * 1e9) if rate else None


def in_tf32(device: Device, products: str | None) -> bool:
    """Whether they are reckoned at a rate that a script has to ask for."""
    faster = device.tf32_tflops is not None and device.tf32_tflops != device.fp32_tflops
    return faster and not _in_half(device, products)


def _in_half(device: Device, products: str | None) -> float | None:
    return {"bfloat16": device.bf16_tflops, "float16": device.fp16_tflops}.get(products or "")


def step_on(device: Device, evidence: Evidence) -> Reckoned | str:
    """The computing of a step on another device, or why that cannot be told."""
    compute = evidence.compute
    here, there = rates_here(evidence), rates_there(device, compute.products)
    if compute.device != "cpu" or not compute.flops or compute.clocked_s <= 0:
        return "the operators of a step were not measured, which is done on a CPU"
    if here is None or there is None:
        return "its arithmetic, or this machine's, is not known"
    if evidence.memory.peak_bytes > device.room_bytes:
        return "it has no room for a step"
    return computing_s(evidence, here, there)


def computing_s(evidence: Evidence, here: Rates, there: Rates) -> Reckoned:
    """Forward, backward and optimizer of a step on the other device."""
    compute = evidence.compute
    spent, operators = compute.clocked_s, compute.spent
    seen = sum(each.seconds for each in operators)
    if seen < SEEN * spent:
        operators = (Operators("step", 1, spent, compute.flops, compute.moved_bytes),)
        seen = spent
    least_reached, most_reached = REACHED
    estimate = bound = 0.0
    for each in operators:
        took = each.seconds / each.calls * spent / seen  # counting made each of them slower
        reached = min(most_reached, max(least_reached, here.bound_s(each) / took))
        bound += each.calls * there.bound_s(each)
        estimate += each.calls * there.bound_s(each) / reached
    calls = compute.operations * DISPATCH_S
    return Reckoned(
        max(calls, estimate), max(calls, bound / most_reached), max(calls, bound / least_reached)
    )
