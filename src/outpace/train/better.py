"""Whether a metric is better the larger or the smaller it is, where the user does not say.

A metric of torchmetrics says so itself; of any other the name tells, by the patterns that the proof of a
recipe goes by (`outpace.tune.prove`). A name may mislead: then ``larger_is_better=`` is to be given.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from outpace.errors import UsageError
from outpace.tune.prove import WORDS
from outpace.tune.prove import larger_is_better as by_name

NOT_TOLD = "metric= is taken to be better the larger it is: say larger_is_better=False if it is not"
BY_NAME = (
    "metric= is taken to be better the {} it is, by its name: say larger_is_better={} if it is not"
)
VAGUE = re.compile(
    r"(?!.*(f\d|d2|skill|acc|auc|roc|r2|recall|precision|dice|jaccard|bleu|rouge|brier|iou|map)).*score",
    re.IGNORECASE,
)
"""an interval's or an energy's score is better the smaller it is"""
TURNED = re.compile(r"(?<![a-z])(neg|negative|negated|minus)_?(log_?)?likelihood", re.IGNORECASE)
FALLS = re.compile(r"_(gap|drop|diff)$", re.IGNORECASE)
PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
OF_WHOLE = re.compile(
    r"(?<![a-z])(r_?2|r_squared|f_?\d|f_?beta|f_?score|au_?c|au_?roc|roc|au_?prc?|recall|precision"
    r"|kappa|mcc|matthews|pearson\w*|spearman\w*|kendall\w*|corr(coef|elation)?|c_index|concordance)(?![a-z])"
)
"""one of all samples together: a batch may have one class of them, or one sample"""
SMALLER = BY_NAME.format("smaller", True)


def larger_is_better(metric: Any, given: Any) -> tuple[bool, str]:
    """Whether it is, and a note where nothing tells. ``given``: what the user says, or None.

    Raises UsageError where that is neither True nor False.
    """
    if isinstance(given, bool):
        return given, ""
    if given is not None:
        raise UsageError(f"larger_is_better={given!r}", "it is True or False")
    own = getattr(metric, "higher_is_better", None)
    if isinstance(own, bool):
        return own, ""
    name = name_of(metric)
    for each in (name, WORDS.sub("_", name)):
        told = by_name(each)
        if told is not None:
            larger = "larger" if told else "smaller"
            return told, BY_NAME.format(larger, not told) if VAGUE.fullmatch(each) else ""
        if TURNED.search(each):
            return False, ""
        if FALLS.search(each):
            return False, SMALLER
    return True, NOT_TOLD if metric is not None else ""


def is_of_whole(metric: Any) -> bool:
    """Whether its name tells of one that a mean over batches is wrong for."""
    return bool(OF_WHOLE.search(PARTS.sub("_", name_of(metric)).lower()))


def name_of(metric: Any) -> str:
    """Of a function, or of an object's class."""
    while isinstance(metric, partial):
        metric = metric.func
    return str(getattr(metric, "__name__", type(metric).__name__))


def called(metric: Any) -> str:
    """Its name where it has one: a lambda is a "metric"."""
    name = name_of(metric)
    return name if name.isidentifier() else "metric"
