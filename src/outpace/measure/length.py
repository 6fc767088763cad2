"""How long the whole run will be, read off the loops around the step."""

from __future__ import annotations

import ast
import contextlib
import math
import sys
from types import FrameType
from typing import NamedTuple

from torch.optim import Optimizer

from outpace.measure import libraries
from outpace.measure.expressions import Unknown, variable
from outpace.measure.heads import count_of, head_of, is_over_loader, is_range, unwrapped
from outpace.measure.loops import loops_around, loops_over_parts, training_frames
from outpace.measure.reached import reached


class Loop(NamedTuple):
    """A loop around the step. ``turns``: None where they are unknown, as those of ``while`` are."""

    turns: int | None
    over_range: bool
    """else it is over batches, of which a step may take several"""
    while_: bool = False
    """it goes on until something is so"""
    loader: bool = False
    """it is over a DataLoader: once its epoch is over, so is the loop"""


def turns(loop: ast.For | ast.While, frame: FrameType) -> Loop:
    """How often a loop over a range or a list turns."""
    if isinstance(loop, ast.While):
        return Loop(None, False, while_=True)
    over = unwrapped(loop.iter)
    loader = is_over_loader(over, frame)
    try:
        count = count_of(over, frame)
    except Exception:
        count = None
    if count is not None:
        head = head_of(loop, frame)
        if head is not None and len(head.items) == count:
            with contextlib.suppress(Exception):  # nothing tells: all of them
                count = len(reached(loop, frame, head.name, head.items))
    return Loop(count, is_range(over), loader=loader)


def loops_around_step() -> list[Loop]:
    """Each loop around the calling step, the innermost first; a library's is one over its steps."""
    found: list[Loop] = []
    frame: FrameType | None = sys._getframe(1)
    parts, looked_at = loops_over_parts(frame), training_frames(frame)
    while frame is not None:
        if frame in looked_at:
            around = [loop for loop in loops_around(frame) if loop not in parts]
            found += [turns(loop, frame) for loop in reversed(around)]
        elif (steps := libraries.steps_of(libraries.trainer_of(frame))) is not None:
            found.append(Loop(steps, True))
        elif _searches(frame):
            found.append(Loop(None, False, while_=True))
        frame = frame.f_back
    return found


def _searches(frame: FrameType) -> bool:
    """Whether this is a step of torch's optimizer, which calls its closure until something is so."""
    name = str(frame.f_globals.get("__name__", ""))
    if frame.f_code.co_name != "step" or not name.startswith("torch.optim."):
        return False
    try:
        return isinstance(variable(frame, "self"), Optimizer)
    except Unknown:
        return False


def total_steps(loops: list[Loop], epoch: float | None, micro_steps: float) -> int | None:
    """Steps of the whole run from the loops around a step and the steps of a loader's epoch.

    ``micro_steps``: batches of a step, where the loops are over batches.
    """
    unknown = [loop for loop in loops if loop.turns is None]
    if not loops or len(unknown) > 1 or (unknown and epoch is None):
        return None
    if unknown and unknown[0].while_ and loops[-1] is unknown[0]:
        return None  # the training goes on until something is so, whatever an epoch has
    known = math.prod(loop.turns for loop in loops if loop.turns is not None)
    if unknown:
        assert epoch is not None
        return max(1, round(epoch * known))
    if loops[0].over_range:
        return known
    return max(1, int(known // max(1.0, micro_steps)))
