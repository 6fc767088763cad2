"""Whether keeping prepared samples pays: what it takes once against what it saves each time after that.

Measured on the few samples that a shelf is named by, one after the other, beside nothing else. Until a
deadline there are at most as many epochs as could be served: where the step is slower there are fewer, but
then the workers have time for it. Honest limit: a source that draws many samples at once is timed one by one.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from outpace.measure.statistics import median
from outpace.serve.shelf import Shelf


class Costs(NamedTuple):
    """Seconds of a sample: to make it, to put it on the shelf, and to get it from there."""

    make_s: float
    put_s: float
    get_s: float

    @property
    def epochs(self) -> float:
        """After which it is repaid, the first one, in which samples are put there, among them."""
        saved = self.make_s - self.get_s
        return 1 + self.put_s / saved if saved > 0 else math.inf


class Left(NamedTuple):
    """What is left of a training, as far as it is known. ``cores``: that make samples, on all ranks."""

    epochs: float | None = None
    seconds: float | None = None
    cores: int = 1

    def most(self, size: int, make_s: float) -> float | None:
        """Epochs of so many samples that are left at most."""
        by_time = None
        if self.seconds is not None:
            by_time = max(0.0, self.seconds) * self.cores / max(1e-9, size * make_s)
        return min((n for n in (self.epochs, by_time) if n is not None), default=None)


def made_twice(make: Callable[[], Any]) -> tuple[Any, Any, float]:
    """A sample, the same again, and the seconds that it takes.

    Waiting counts as it was for the first time: later the files may still be in memory, or not.
    """
    first, first_wall, first_cpu = _timed(make)
    again, wall, cpu = _timed(make)
    return first, again, max(wall, cpu + first_wall - first_cpu)


def costs(samples: Sequence[Any], made_s: Sequence[float], parent: Path) -> Costs:
    """By a shelf for trying in the folder ``parent``, which is gone afterwards."""
    # NFS keeps a file that is still open under another name, and so the folder that it is in.
    with TemporaryDirectory(prefix=".trying-", dir=parent, ignore_cleanup_errors=True) as folder:
        shelf = Shelf(Path(folder, "shelf"), len(samples), sys.maxsize)
        put = [_timed(lambda n=n, s=s: shelf.put(n, s))[1] for n, s in enumerate(samples)]  # type: ignore[misc]
        got = [_timed(lambda n=n: shelf.get(n))[1] for n in range(len(samples))]  # type: ignore[misc]
    return Costs(median(made_s), median(put), median(got))


def repaid(found: Costs, most: float | None) -> tuple[bool, str]:
    """Whether to keep samples, and why. ``most``: epochs that are left; None: it is as was asked."""
    told = f"a sample takes {_ms(found.make_s)} to make, {_ms(found.put_s)} to keep"
    told += f", {_ms(found.get_s)} to read when it is kept"
    if math.isinf(found.epochs):
        return most is None, f"{told}: keeping it is never repaid"
    told += f": repaid after {found.epochs:.1f} epochs"
    if most is None:
        return True, told
    return most >= found.epochs, f"{told}, {most:.4g} to go"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2g} ms"


def _timed(function: Callable[[], Any]) -> tuple[Any, float, float]:
    """What it gives, and the seconds and the CPU seconds that it took."""
    wall, cpu = time.perf_counter(), time.thread_time()
    found = function()
    return found, time.perf_counter() - wall, time.thread_time() - cpu
