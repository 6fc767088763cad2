"""Which strategies a training is given: those that the user names, and what "auto" chooses and why.

For now by what is known before the first step; what pays is not tried yet.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from outpace.errors import UsageError
from outpace.train.strategies import (
    STRATEGIES,
    Divergence,
    LrFinder,
    OneCycle,
    Plateau,
    Strategy,
    Target,
)

ASKED = {
    "target": ("which target?", "Trainer(target=0.94)"),
    "transfer": ("which weights?", "strategies=['auto', Transfer('weights.pt')]"),
}
"""strategies that a name is not enough for"""


class Known(NamedTuple):
    """What is known before the first step. ``rate_given``: the user's own optimizer sets it."""

    end: bool
    validation: bool
    rate_given: bool
    target: float | None


def chosen(given: str | Sequence[str | Strategy], known: Known) -> tuple[list[Strategy], list[str]]:
    """The strategies in their order, and the reasons of those that were chosen for the user."""
    if isinstance(given, str):
        given = [given]
    own = [named(each) for each in given if each != "auto"]
    found, reasons = list(own), list[str]()
    if "auto" in given:
        found, reasons = automatic(own, known)
    if known.target is not None and not any(s.name == "target" for s in found):
        found.append(Target(known.target))
        reasons.append(f"target: training ends at {known.target:g}, as asked")
    return found, reasons


def automatic(own: Sequence[Strategy], known: Known) -> tuple[list[Strategy], list[str]]:
    """The user's strategies, and before them what is missing."""
    set_already = {what for each in own for what in each.sets}
    names = {each.name for each in own}
    found: list[Strategy] = []
    reasons: list[str] = []
    if "the rate's course" not in set_already:
        course, why = schedule(names, known)
        if course is not None:
            found.append(course)
        reasons.append(why)
    if "the largest rate" not in set_already:
        if known.rate_given:
            reasons.append("the largest rate is that of your optimizer")
        else:
            found.insert(0, LrFinder())
            reasons.append("lr_finder: nobody gave a rate")
    if "divergence" not in names:
        found.insert(0, Divergence())
        reasons.append(
            "divergence: it costs next to nothing, and a training that is lost costs all"
        )
    return [*found, *own], reasons


def schedule(names: set[str], known: Known) -> tuple[Strategy | None, str]:
    """What sets the rate's course."""
    if known.end and "early_stopping" not in names:
        return OneCycle(), "one_cycle: the end is known, and the rate falls to zero until then"
    why = "early_stopping may end it any time" if known.end else "no end is known"
    if known.validation:
        return Plateau(), f"plateau: {why}, so the rate falls where learning stalls"
    return None, f"a constant rate: {why}, and there is no valid= to tell a plateau by"


def named(given: str | Strategy) -> Strategy:
    """A strategy by its name. Raises UsageError where there is none."""
    if isinstance(given, Strategy):
        return given
    if given in STRATEGIES:
        if given in ASKED:
            raise UsageError(*ASKED[given])
        return STRATEGIES[given]()
    near = difflib.get_close_matches(str(given), STRATEGIES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: auto, {', '.join(STRATEGIES)}"
    raise UsageError(f"there is no strategy {given!r}", hint)
