"""Whether an epoch may get more batches than its loader has, so that the time before a deadline is used.

Where the time is up while an epoch's validation would run, there is none for another epoch, and the
training would end by up to a validation too early. Its last epoch then goes on with the batches of the
next. Only a plain ``for`` of the user's that stores nothing by an index is given more turns than it
counts on: arrays are often made with one place for each batch.
"""

from __future__ import annotations

import ast
import dis
from collections.abc import Callable
from types import CodeType, FrameType

from outpace.measure.length import loops_around
from outpace.seams.where import is_user_file


class Longer:
    """Asked by the loaders; ``wanted`` says whether the time is to be used so now."""

    def __init__(self, wanted: Callable[[], bool]) -> None:
        self.wanted = wanted
        self.possible = False
        """in the loop that draws"""
        self._known: dict[tuple[CodeType, int], bool] = {}

    def drawn_in(self, frame: FrameType) -> None:
        """A batch of training is drawn there."""
        place = (frame.f_code, frame.f_lasti)
        if place not in self._known:
            self._known[place] = may_be_longer(frame)
        self.possible = self._known[place]

    def more(self) -> bool:
        """Whether the epoch whose batches are all drawn goes on."""
        return self.possible and self.wanted()


def may_be_longer(frame: FrameType) -> bool:
    """Whether the frame is about to turn such a loop."""
    code = frame.f_code
    if dis.opname[code.co_code[frame.f_lasti]] != "FOR_ITER" or not is_user_file(code.co_filename):
        return False
    loops = loops_around(frame)
    return bool(loops) and not any(
        isinstance(node, ast.Subscript)
        and isinstance(node.ctx, ast.Store)
        and not isinstance(node.slice, ast.Constant)
        for node in ast.walk(loops[-1])
    )
