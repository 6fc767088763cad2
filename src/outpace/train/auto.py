"""Which strategies a training is given: those that the user names, and what "auto" chooses and why.

By what is known before the first step, and by what came of trials (`outpace.train.choose`).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, NamedTuple

from outpace.errors import UsageError
from outpace.train.result import Choice
from outpace.train.strategies import (
    STRATEGIES,
    Divergence,
    Ema,
    LrFinder,
    OneCycle,
    Plateau,
    Restarts,
    Strategy,
    Target,
)
from outpace.train.strategies.base import Course, clash

ASKED = {
    "target": ("which target?", "Trainer(target=0.94)"),
    "transfer": ("which weights?", "strategies=['auto', Transfer('weights.pt')]"),
}
"""strategies that a name is not enough for"""

WHY_NOT_GIVEN = "nobody gave a rate"
WHY_MADE = (
    "the rate of optimizer='s function may be torch's default, so it counts only where none is found; to set "
    "it give the optimizer itself, or strategies=['auto', OneCycle(rate=0.1)]"
)


class Known(NamedTuple):
    """What is known before the first step. ``rate_given``: the user's own optimizer sets it;
    ``batch_norm``: the model has layers of it; ``by_function``: a function of the user's makes the
    optimizer, and nobody can tell whether its rate is meant or torch's default; ``copies``: the model can be
    copied.
    """

    end: bool
    validation: bool
    rate_given: bool
    target: float | None
    batch_norm: bool = False
    by_function: bool = False
    copies: bool = True


Asked = str | Sequence[str | Strategy]


def chosen(
    given: Asked, known: Known, choice: Choice | None = None
) -> tuple[list[Strategy], list[str]]:
    """The strategies in their order, and the reasons of those that were chosen for the user.

    ``choice``: what came of trials.
    """
    own = own_of(given)
    found, reasons = own, list[str]()
    if is_auto(given):
        found, reasons = automatic(own, known, choice or Choice())
    own_target = next((each.target for each in found if isinstance(each, Target)), None)
    if known.target is not None and own_target is None:
        found.append(Target(known.target))
        reasons.append(f"target: training ends at {known.target:g}, as asked")
    elif known.target not in (None, own_target):
        raise UsageError(
            f"target={known.target:g}, and strategies= has Target({own_target:g})",
            "keep one of them",
        )
    found.sort(key=lambda each: each.name == "target")  # others may find a validation to be none
    return found, reasons


def is_auto(given: Asked) -> bool:
    """Whether what is missing is to be chosen."""
    return "auto" in ([given] if isinstance(given, str) else given)


def own_of(given: Asked) -> list[Strategy]:
    """The user's own."""
    given = [given] if isinstance(given, str) else given
    if not isinstance(given, Sequence):
        raise UsageError(
            f"strategies={given!r}", "write 'auto', or a list: ['one_cycle', 'ema']; [] is none"
        )
    return [named(each) for each in given if each != "auto"]


def automatic(
    own: Sequence[Strategy], known: Known, choice: Choice
) -> tuple[list[Strategy], list[str]]:
    """The user's strategies, and before them what is missing and what was chosen."""
    kept = [each for each in own if choice.rate is None or each.name != "lr_finder"]
    tried = len(kept) < len(own)
    own = [*(taken(name, choice.rate) for name in choice.taken), *kept]
    set_already = {what for each in own for what in each.sets}
    names = {each.name for each in own}
    found: list[Strategy] = []
    reasons: list[str] = []
    if "the rate's course" not in set_already:
        course, reasons = schedule(own, known, choice.rate)
        found += course
        set_already.update(what for each in course for what in each.sets)
    if "the largest rate" not in set_already:
        if known.rate_given:
            reasons.append("the largest rate is that of your optimizer")
        else:
            found.insert(0, LrFinder())
            reasons.append(f"lr_finder: {WHY_MADE if known.by_function else WHY_NOT_GIVEN}")
    if tried:
        reasons.append("lr_finder: trials have begun with what it tells, and found the rate")
    elif known.by_function and choice.rate is not None:
        reasons.append(f"the largest rate is what trials found: {WHY_MADE}")
    if "divergence" not in names:
        found.insert(0, Divergence())
        reasons.append(
            "divergence: it costs next to nothing, and a training that is lost costs all"
        )
    return [*found, *own], reasons


def taken(name: str, rate: float | None) -> Strategy:
    """A strategy that was chosen; one that sets the rate's course is given the rate."""
    kind = STRATEGIES[name]
    return kind(rate) if issubclass(kind, Course) else kind()


def schedule(
    own: Sequence[Strategy], known: Known, rate: float | None
) -> tuple[list[Strategy], list[str]]:
    """What sets the rate's course, and what goes with that."""
    names = {each.name for each in own}
    if known.end and "early_stopping" not in names:
        if known.validation and (known.target is not None or "target" in names):
            return aiming(own, known, rate)
        why = "one_cycle: the end is known, and the rate falls to zero until then"
        return [OneCycle(rate)], [why]
    why = "early_stopping may end it any time" if known.end else "no end is known"
    if known.validation:
        return [Plateau(rate)], [f"plateau: {why}, so the rate falls where learning stalls"]
    return [], [f"a constant rate: {why}, and there is no valid= to tell a plateau by"]


def aiming(
    own: Sequence[Strategy], known: Known, rate: float | None
) -> tuple[list[Strategy], list[str]]:
    """The same where training ends at a target."""
    found: list[Strategy] = [Restarts(rate)]
    reasons = ["restarts: a target may be reached long before a fall over the whole budget ends"]
    # Statistics of BatchNorm are of the trained weights: with averaged ones a target was missed.
    if not known.copies:
        reasons.append("ema: left out, as the model cannot be copied")
    elif not known.batch_norm and not any(clash(each, Ema()) for each in own):
        found.append(Ema())
        reasons.append("ema: averaged weights may reach the target before the rate falls")
    return found, reasons


def named(given: Any) -> Strategy:
    """A strategy by its name. Raises UsageError where there is none."""
    if isinstance(given, Strategy):
        return given
    if isinstance(given, type):
        raise UsageError(f"strategies= has the class {given.__name__}", f"give {given.__name__}()")
    if given in STRATEGIES:
        if given in ASKED:
            raise UsageError(*ASKED[given])
        return STRATEGIES[given]()
    near = difflib.get_close_matches(str(given), STRATEGIES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are: auto, {', '.join(STRATEGIES)}"
    raise UsageError(f"there is no strategy {given!r}", hint)
