"""Two trainings side by side: what the second came to, and how soon, against the first."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.records.training import Training
from outpace.report import training, words
from outpace.report.compare import Compared, Line, as_fast, ratio_of

NOTE = "A training of each: other seeds, and other work on the machine, count as changes."


def compared_trainings(a: Training, b: Training) -> Compared:
    """What changed from the first to the second."""
    groups = [("quality", list(_quality(a, b))), ("time", list(_time(a, b)))]
    return Compared(headline(a, b), groups, list(_remarks(a, b)))


def headline(a: Training, b: Training) -> str:
    """The main change in one sentence: of the time to one target, else of what they came to."""
    if _same_target(a, b) and a.time_to_target_s is not None and b.time_to_target_s is not None:
        before, after = words.seconds(a.time_to_target_s), words.seconds(b.time_to_target_s)
        change = as_fast(ratio_of(a.time_to_target_s, b.time_to_target_s))
        return f"The target was reached after {after} instead of {before}: {change}."
    change = _better(a, b)
    if not change:
        return "What they came to cannot be compared."
    one, other = words.number(a.metric, 4), words.number(b.metric, 4)
    return f"The best {training.measure(b)} is {other} instead of {one}: {change}."


def _same_measure(a: Training, b: Training) -> bool:
    return training.measure(a) == training.measure(b)


def _same_target(a: Training, b: Training) -> bool:
    return _same_measure(a, b) and a.target is not None and a.target == b.target


def _better(a: Training, b: Training) -> str:
    """Of the second's best; empty where they are judged by different things, or by nothing."""
    if a.metric is None or b.metric is None or not _same_measure(a, b):
        return ""
    if not (words.finite(a.metric) and words.finite(b.metric)):
        return ""
    if a.metric == b.metric:
        return "the same"
    return "better" if (b.metric > a.metric) == b.larger_is_better else "worse"


def _quality(a: Training, b: Training) -> Iterator[Line]:
    if _same_measure(a, b):
        best = words.number(a.metric, 4), words.number(b.metric, 4)
        yield Line(f"best {training.measure(a)}", *best, _better(a, b))
    else:
        yield Line("best", _named_best(a), _named_best(b))
    if a.metric_name and b.metric_name:
        one, other = (each.best.valid_loss if each.best else None for each in (a, b))
        yield Line("validation loss there", words.number(one, 4), words.number(other, 4))


def _named_best(each: Training) -> str:
    return f"{training.measure(each)} {words.number(each.metric, 4)}"


def _time(a: Training, b: Training) -> Iterator[Line]:
    if a.target is not None or b.target is not None:
        ratio = ratio_of(a.time_to_target_s, b.time_to_target_s) if _same_target(a, b) else None
        yield Line("target reached after", _to_target(a), _to_target(b), as_fast(ratio))
    one, other = (each.best.seconds if each.best else None for each in (a, b))
    yield Line("the best came after", words.seconds(one), words.seconds(other))
    yield Line("trained for", words.seconds(a.seconds), words.seconds(b.seconds))
    yield Line("steps", f"{a.steps:,}", f"{b.steps:,}")
    yield Line("epochs", f"{a.epochs:,}", f"{b.epochs:,}")
    yield Line("ended by", words.plain(a.stopped), words.plain(b.stopped))


def _to_target(each: Training) -> str:
    if each.target is None:
        return "no target"
    reached = each.time_to_target_s
    return "not reached" if reached is None else words.seconds(reached)


def _remarks(a: Training, b: Training) -> Iterator[str]:
    for name, each in (("first", a), ("second", b)):
        said = training.verdict(each).headline
        yield f"{name}: {training.source(each)}, {words.plain(each.started)}: {said}"
    yield NOTE
    if a.machine.fingerprint != b.machine.fingerprint:
        yield "They ran on different machines."
