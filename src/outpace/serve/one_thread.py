"""Samples made on one of torch's threads, as workers make them: a sum by several has other last bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Have what this thread does inside be done by it alone; other threads keep their numbers.

    One that begins its first operation meanwhile takes on the 1: torch has the number for threads to come in
    a global.
    """
    own = torch.get_num_threads()
    if own == 1:
        yield
        return
    torch._C.set_num_threads(1)  # what a script calls may be noted as its own wish
    try:
        yield
    finally:
        torch._C.set_num_threads(own)
