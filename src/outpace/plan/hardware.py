"""Accelerators: dense rates, memory, bandwidth and dated prices, from hardware.csv.

The rates are those of dense matrices; makers also print twice as much, for sparse ones. Most are from
data sheets, prices from list pages: what a machine reaches is measured on it, never looked up here.
"""

from __future__ import annotations

import csv
import functools
from difflib import get_close_matches
from importlib import resources

import msgspec

from outpace.errors import UsageError

CONTEXT_BYTES = 800_000_000
"""taken on an accelerator by a process's context and libraries; not measured here"""


class Device(msgspec.Struct, frozen=True):
    """One accelerator. Rates in TFLOP/s, memory in GB, bandwidths in GB/s; None: not known.

    ``link_gb_s``: of all links together, in one direction.
    """

    name: str
    year: int
    fp32_tflops: float | None
    tf32_tflops: float | None
    bf16_tflops: float | None
    fp16_tflops: float | None
    fp8_tflops: float | None
    memory_gb: float
    bandwidth_gb_s: float
    link_gb_s: float | None
    usd_per_hour: float | None
    price_source: str | None
    price_date: str | None
    confidence: str

    @property
    def room_bytes(self) -> int:
        """What its memory holds besides a process's context."""
        return round(self.memory_gb * 1e9) - CONTEXT_BYTES

    @property
    def price(self) -> str | None:
        """Whose price, and of when."""
        told = filter(None, (self.price_source, self.price_date))
        return ", ".join(told) if self.usd_per_hour is not None else None

    def flops_per_s(self, dtype: str) -> float:
        """Dense peak. Raises UsageError where the device has none in that format."""
        rate = getattr(self, f"{dtype}_tflops", None)
        if rate is None:
            raise UsageError(
                f"no {dtype} rate is known of {self.name}",
                f"known: {', '.join(self.formats)}; choose one with --dtype",
            )
        return float(rate) * 1e12

    @property
    def formats(self) -> list[str]:
        """Formats that it has a rate for."""
        names = ("fp32", "tf32", "bf16", "fp16", "fp8")
        return [name for name in names if getattr(self, f"{name}_tflops") is not None]


@functools.cache
def devices() -> dict[str, Device]:
    """All of the table, by name."""
    text = resources.files("outpace.plan").joinpath("hardware.csv").read_text("utf-8")
    rows = ({k: v or None for k, v in row.items()} for row in csv.DictReader(text.splitlines()))
    found = [msgspec.convert(row, Device, strict=False) for row in rows]
    return {device.name: device for device in found}


def device(name: str) -> Device:
    """A device by its name, or by what only one name begins with. Raises UsageError."""
    wanted = name.lower()
    named = {known.lower(): found for known, found in devices().items()}
    if wanted in named:
        return named[wanted]
    begin = [found for known, found in named.items() if known.startswith(wanted)]
    if len(begin) == 1:
        return begin[0]
    if begin:
        several = ", ".join(found.name for found in begin)
        raise UsageError(f"{name!r} may be any of {several}", "name one of them")
    near = get_close_matches(wanted, named, n=1)
    hint = f"did you mean {named[near[0]].name}?" if near else f"known: {', '.join(devices())}"
    raise UsageError(f"{name!r} is no device that is known", hint)
