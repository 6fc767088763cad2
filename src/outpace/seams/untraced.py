"""Calls that the trace function of this thread does not see.

While anything is traced, every line of Python costs more: a validation on samples that Python makes one
by one took a fifth longer.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def untraced(call: Callable[[], T]) -> T:
    """What a call gives; the trace function is as it was once it has ended."""
    trace = sys.gettrace()
    sys.settrace(None)
    try:
        return call()
    finally:
        sys.settrace(trace)
