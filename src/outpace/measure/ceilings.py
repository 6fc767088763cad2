"""The most that this machine gives: arithmetic, memory, disk, JPEG decoding, dispatch of operators.

Measured once for a fingerprint, within about four seconds besides torch's import, in a child
process of its own (`python -m outpace.measure.peaks`), and kept as JSON in the cache folder.
Each figure is the best of several repeats, as other programs only ever make it worse; where they
kept more than a tenth of the cores from the child, the next session measures again and the better
figures stay (beside two busy processes on two cores, arithmetic read 0.3 of what it is). Where
torch can use CUDA, arithmetic and memory are the GPU's; the rest is always the host's.

Honest limits are those of `outpace.measure.peaks`, which does the measuring.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from outpace.errors import SessionError
from outpace.measure.in_child import in_child
from outpace.measure.machine import cache_folder
from outpace.measure.peaks import Measured
from outpace.records.files import read_json, write_json
from outpace.records.machine import Ceilings, Machine

VERSION = 3
"""Goes up where a figure comes to mean something else: older files are then measured anew."""
MOST_TRIES = 5
"""On a machine that is never quiet, what was seen in so many sessions is taken for its best."""
MEASURING = "measuring this machine, once"
"""what is told meanwhile"""
PATIENCE_S = 120.0
"""A child that takes longer is given up."""


class Kept(msgspec.Struct, frozen=True):
    """What the cache file holds."""

    version: int
    fingerprint: str
    measured: Measured = Measured()
    tries: int = 0


def ceilings(machine: Machine, measuring: Callable[[], None] = lambda: None) -> Ceilings:
    """The ceilings of this machine: from the cache, or measured now, before which ``measuring`` is called.

    Whatever fails (no child process, no room for the file) costs only the figures or the cache: a
    figure that is not known is 0 or missing, and nothing is raised.
    """
    path = cache_folder() / f"ceilings-{machine.fingerprint}.json"
    before = _kept(path, machine)
    if before.measured.quiet or before.tries >= MOST_TRIES:
        return before.measured.ceilings
    measuring()
    now = _measure_in_child()
    found = Measured(best_of(before.measured.ceilings, now.ceilings), now.quiet)
    if found.ceilings.matmul_flops:
        with contextlib.suppress(OSError):
            write_json(path, Kept(VERSION, machine.fingerprint, found, before.tries + 1))
    return found.ceilings


def best_of(one: Ceilings, other: Ceilings) -> Ceilings:
    """Figure by figure, what the machine has been seen to give."""
    costs = [cost for cost in (one.dispatch_s, other.dispatch_s) if cost > 0.0]
    flops = {**one.matmul_flops}
    for name, rate in other.matmul_flops.items():
        flops[name] = max(rate, flops.get(name, 0.0))
    return Ceilings(
        matmul_flops=flops,
        memory_bytes_s=max(one.memory_bytes_s, other.memory_bytes_s),
        disk_read_bytes_s=max(one.disk_read_bytes_s, other.disk_read_bytes_s),
        jpeg_decode_pixels_s=max(one.jpeg_decode_pixels_s, other.jpeg_decode_pixels_s),
        dispatch_s=min(costs, default=0.0),
        device=(other if other.matmul_flops else one).device,
    )


def _kept(path: Path, machine: Machine) -> Kept:
    """What the cache holds for this machine; nothing where it is missing, broken or old."""
    nothing = Kept(VERSION, machine.fingerprint)
    try:
        kept = read_json(path, Kept)
    except SessionError:
        return nothing
    current = (kept.version, kept.fingerprint) == (VERSION, machine.fingerprint)
    return kept if current else nothing


def _measure_in_child() -> Measured:
    """Not by this process's number of threads: what the machine gives is asked for."""
    found = in_child(
        "outpace.measure.peaks",
        Measured,
        patience_s=PATIENCE_S,
        without=("OMP_NUM_THREADS", "MKL_NUM_THREADS"),
    )
    return found or Measured()
