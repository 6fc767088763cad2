"""Leaving an epoch that has just begun without what comes after its batches.

The time may be up within a validation, and the first step after it begins another epoch. A second validation,
of a model that has learnt for one step more, would only take time that there is none of.
"""

from __future__ import annotations

from outpace.plan.leave import Exit, Exits, loops_of
from outpace.plan.lower_limit import Limit

MOST = 2
"""loops, over epochs and batches: what follows the epochs of a fold, or of one of several models, is done"""


def cut_short(exits: list[Exits]) -> bool:
    """Have the outermost loop end as soon as the statement of its body that runs is over.

    ``exits`` are changed for it. False, and nothing is, where nothing follows that statement in the body, the
    loop cannot be left there, or there are others than those over epochs and batches.
    """
    loops = loops_of(exits)
    if len(loops) != MOST:
        return False
    frame, loop = exits[0].frame, loops[0]
    here = frame.f_lineno
    ends = [
        each.end_lineno or each.lineno
        for each in loop.body
        if each.lineno <= here <= (each.end_lineno or each.lineno)
    ]
    outermost = [each for each in exits[0].left if each.lines[0] == loop.lineno]
    if not ends or not outermost or isinstance(outermost[0].instead, Limit):
        return False
    rest = range(ends[0] + 1, (loop.end_lineno or loop.lineno) + 1)
    if not rest:
        return False
    at_once = outermost[0]._replace(lines=rest, late=True)
    exits[0].left = [at_once, *(_beyond(each, at_once) for each in exits[0].left)]
    return True


def _beyond(inner: Exit, outermost: Exit) -> Exit:
    """A loop whose exit is what is left out is left to where the outermost one is."""
    if not inner.way or inner.way[-1] not in outermost.lines:
        return inner
    return inner._replace(way=outermost.way, leaves=outermost.leaves, instead=outermost.instead)
