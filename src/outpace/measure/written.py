"""What the user's modules are written to do that a remedy must not come in the way of, by their text."""

from __future__ import annotations

import linecache
import re
import sys

from outpace.measure.user_modules import file_of, say
from outpace.seams.start_method import forks

LAID_FLAT = re.compile(
    r"\b(parameters_to_vector|vector_to_parameters)\b"
    r"|\.(grad|data)\.view\(|\b(p|param|parameter|w|weight)s?\.view\("
)
GUARD = re.compile(r"^if\s+__name__\s*==")
CUDNN_SET = re.compile(
    r"\bcudnn\.(benchmark|deterministic)\s*=[^=]|\buse_deterministic_algorithms\("
)


def lays_flat() -> bool:
    """Whether they lay weights or gradients out flat by views, for which these have to lie in rows."""
    return say(LAID_FLAT)


def sets_cudnn() -> bool:
    """Whether they say how cuDNN is to choose its algorithms."""
    return say(CUDNN_SET)


def runs_anew() -> bool:
    """Whether a process that is not forked, as a worker may be, would run all of the script."""
    if forks():
        return False
    file = file_of(sys.modules.get("__main__"))
    return file is not None and not any(map(GUARD.search, linecache.getlines(file)))
