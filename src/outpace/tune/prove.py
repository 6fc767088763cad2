"""The proof that a recipe costs no quality: non-inferiority at equal samples seen.

For each seed the script runs twice in a process of its own, without and with the remedies that
change numbers, both from the same seed. What is compared is the mean loss over the last two thirds
of the steps, and each metric that the script reports. The recipe is proven where the upper limit of
the mean difference over seeds, one-sided with 95 % confidence (Student's t), is below the
margin for all of them: a share of the loss's fall, or of the metric, in the script without them.

A recipe that keeps the bits needs no such test; its losses must then be equal, which is checked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from outpace.records.trial import NO_METRIC, Curve, Proof

LAST = 2 / 3
FIRST = 0.05
FEWEST_STEPS = 60
CONFIDENCE = 0.95
UNTOLD = "the script's own metrics come later than that, and were not judged"
LATER = "the script's own metrics (outpace.log) come later than the steps of the proof"
NO_LOSS = "no loss was seen to compare: the script calls backward() on no single number"
SMALLER_IS_BETTER = re.compile(
    r"loss|error|inaccura|perplexity|distance|entropy|brier|"
    r"(?<![a-z])(errs?|rmse|rmsle|mse|mae|mape|smape|wer|cer|ter|eer|ece|fid|kid|ppl|nll|bpc|bpb|crps|lpips)"
    r"(?![a-z])|(?<![a-z])per(?![a-z _-])",  # not the word, as in accuracy_per_class
    re.IGNORECASE,
)
LARGER_IS_BETTER = re.compile(
    r"(?<![a-z])acc(?!e|u(?!rac))|accurac|(?<![a-z])precision|recall|score|reward|likelihood|"
    r"dice|bleu|rouge|psnr|ssim|jaccard|kappa|"
    r"(?<![a-z])(f1|f2|auc|auroc|auprc|roc|ap|map|ar|iou|miou|r2|top|hits?|mrr|ndcg|elo|win)(?![a-z])",
    re.IGNORECASE,
)
SKILL = re.compile(r"(?<![a-z])(d2|skill)(?![a-z])|correlation(?!.*(loss|err|dist))", re.IGNORECASE)
"""better the larger they are, whatever is lost or far apart: d2_log_loss_score, distance_correlation"""
SPEED = re.compile(
    r"(?<![a-z])(s|secs?|seconds|ms|minutes|time|elapsed|eta|fps|throughput|per_s|per_sec|per_second)$",
    re.IGNORECASE,
)
"""names of times and speeds, which a recipe is to change: they tell nothing of how good a model is"""
WORDS = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""where the words of MyMAE meet"""
NEGATED = re.compile(
    r"(?<![a-z])(neg|negative|negated|minus|std|var|variance|gap|drop|diff)(?![a-z])", re.IGNORECASE
)
"""names of metrics; one that neither knows, or that may have its sign turned, is to change by less than the
margin either way
"""


@dataclass(frozen=True)
class Losses:
    """Loss by samples seen of one run, and metrics that the script reported."""

    samples: tuple[int, ...]
    values: tuple[float, ...]
    metrics: dict[str, float]
    state: int | None = None
    """a checksum of weights and buffers after the last step; None where that is not known"""
    awaited: bool = False
    """the script gives metrics to ``outpace.log``, and gave none by then"""


FAILED = "failed"
Runner = Callable[[int, bool, int], Losses | str]
"""(seed, under the recipe?, steps) -> losses, or how the run failed: "failed", "hung for 2m" """


def prove_equal(run: Runner, steps: int) -> Proof | None:
    """A recipe that keeps the bits: are the losses the same, and what the model holds after them?

    None where the script's own are not, from one run to the next: a GPU adds up in any order.
    """
    base = run(0, False, steps)
    other = base if isinstance(base, str) else run(0, True, steps)
    curves = tuple(_curves(0, base, other))
    if isinstance(base, str) or isinstance(other, str):
        return Proof(False, False, reason=f"a run for the comparison {other}", curves=curves)
    known = base.state is not None and other.state is not None
    if not base.values and not known:
        return Proof(False, False, seeds=1, reason=NO_LOSS, curves=curves)
    if len(other.values) != len(base.values):
        reason = (
            f"the recipe's run made {len(other.values)} losses, and {len(base.values)} without it"
        )
        return Proof(False, False, seeds=1, reason=reason, curves=curves, refuted=True)
    count = len(base.values)
    at = next((i for i in range(count) if not _same(base.values[i], other.values[i])), count)
    same = at == count and (base.state == other.state or not known)
    if not same:
        again = run(0, False, steps)
        if isinstance(again, Losses):
            repeats = all(map(_same, again.values, base.values))
            if not (repeats and again.state == base.state):
                return None
    equal = f"{count} losses are equal" + (", and weights and buffers after them" if known else "")
    if not count:
        equal = "weights and buffers are equal after the same steps"
    reason = (
        f"all remedies keep the bits: {equal}"
        if same
        else f"the recipe should keep the bits, but losses differ from step {at} on"
        if at < count
        else "the recipe should keep the bits, but weights or buffers differ after "
        f"{count or 'the same'} steps"
    )
    return Proof(False, same, seeds=1, steps=count, reason=reason, curves=curves, refuted=not same)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def prove(
    run: Runner,
    *,
    seeds: int,
    steps: int,
    margin: float,
    most_seeds: int = 0,
    enough_time: Callable[[], bool] = lambda: True,
    by_loss: bool = True,
) -> Proof:
    """Test non-inferiority over ``seeds`` seeds, and if it is open then, over ``most_seeds``. ``by_loss``: it
    tells how good the model is; else metrics alone do.

    Looking twice gives chance two tries: each look has half of the error that is allowed.
    """
    seeds = max(2, seeds)
    most = max(seeds, most_seeds)
    level = CONFIDENCE if most == seeds else (1 + CONFIDENCE) / 2
    pairs: list[tuple[Losses, Losses]] = []
    curves: list[Curve] = []
    proof = Proof(True, False, reason="no pair of runs was finished")
    for seed in range(most):
        base = run(seed, False, steps)
        if not by_loss and isinstance(base, Losses) and not base.metrics:
            return Proof(True, False, reason=LATER if base.awaited else NO_METRIC)
        other = base if isinstance(base, str) else run(seed, True, steps)
        curves += _curves(seed, base, other)
        if isinstance(base, str) or isinstance(other, str):
            failed = f"a run of the proof {other}"
            under_it_alone = base != FAILED and other == FAILED
            return Proof(
                *(True, False, seed, 0, margin, CONFIDENCE),
                reason=failed,
                curves=tuple(curves),
                refuted=under_it_alone,
            )
        pairs.append((base, other))
        last = len(pairs) == most or (len(pairs) >= seeds and not enough_time())
        if last or len(pairs) == seeds:
            proof = judge(pairs, margin, level, curves, by_loss=by_loss)
        if last or (len(pairs) == seeds and proof.proven):
            break
    return msgspec.structs.replace(proof, confidence=CONFIDENCE)


class Measure(NamedTuple):
    """By how much each pair's recipe is worse, and what that is a share of: the loss's fall, the metric."""

    name: str
    whole: float
    differences: list[float]


def judge(
    pairs: Sequence[tuple[Losses, Losses]],
    margin: float,
    confidence: float,
    curves: list[Curve],
    *,
    by_loss: bool = True,
) -> Proof:
    """Whether the recipe's loss, and each metric of the script's, is no worse by more than the margin.

    What is told is the one that comes nearest to the margin, or goes farthest beyond it.
    """
    from scipy import stats

    count = min(min(len(b.values), len(o.values)) for b, o in pairs)
    proof = Proof(True, False, len(pairs), count, margin, confidence, curves=tuple(curves))
    if reason := _unlike(pairs):
        return msgspec.structs.replace(proof, reason=reason, refuted=True)
    measures = list(measured(pairs, count if by_loss else 0))
    awaited = any(run.awaited for pair in pairs for run in pair)
    missing = NO_LOSS if by_loss else LATER if awaited else NO_METRIC
    if reason := _no_answer(pairs, measures, missing):
        return msgspec.structs.replace(proof, reason=reason)
    if awaited:
        proof = msgspec.structs.replace(proof, reason=UNTOLD)

    def judged(measure: Measure) -> Proof:
        mean = sum(measure.differences) / len(pairs)
        squares = sum((d - mean) ** 2 for d in measure.differences)
        spread = math.sqrt(squares / (len(pairs) - 1))
        reach = float(stats.t.ppf(confidence, len(pairs) - 1)) * spread / math.sqrt(len(pairs))
        high = (mean + reach) / measure.whole
        return msgspec.structs.replace(
            proof,
            proven=high < margin,
            difference=mean / measure.whole,
            high=high,
            measure=measure.name,
            refuted=mean / measure.whole >= margin,
        )

    return max(map(judged, measures), key=lambda one: one.high or 0.0)


def measured(pairs: Sequence[tuple[Losses, Losses]], count: int) -> Iterator[Measure]:
    """What the pairs are judged by: each metric that tells runs apart, and the loss.

    One that no run of the recipe changes tells nothing: it was reported before training, or it is the
    number of the epoch. Nor does one of a time or a speed. A loss that does not fall says nothing either,
    where there is a metric.
    """
    found = []
    for name in pairs[0][0].metrics:
        falls = [b.metrics[name] - o.metrics[name] for b, o in pairs]
        if any(falls) and (larger_is_better(name) is not None or not SPEED.search(name)):
            whole = sum(abs(b.metrics[name]) for b, _ in pairs) / len(pairs)
            sign, told = direction(name, falls)
            told = "reported loss" if told == "loss" else told  # which is no share of a fall
            found.append(Measure(told, whole, [sign * fall for fall in falls]))
    yield from found
    if not count:
        return
    fall = sum(_start(b, count) - _end(b, count) for b, _ in pairs) / len(pairs)
    if not found or not fall <= 0:
        yield Measure("loss", fall, [_end(o, count) - _end(b, count) for b, o in pairs])


def larger_is_better(name: str) -> bool | None:
    """Whether larger values of a metric of that name are better; None where the name does not say."""
    if NEGATED.search(WORDS.sub("_", name)):
        return None
    if SKILL.search(name):
        return True
    if SMALLER_IS_BETTER.search(name):
        return False
    return True if LARGER_IS_BETTER.search(name) else None


def direction(name: str, falls: Sequence[float]) -> tuple[float, str]:
    """1 where larger values of a metric are better, -1 where smaller ones are; and how it is told.

    Where its name does not say, what came is taken for the worse.
    """
    larger = larger_is_better(name)
    if larger is not None:
        return (1.0 if larger else -1.0), name
    return math.copysign(1.0, sum(falls)), f"{name}, which may be better larger or smaller,"


def _unlike(pairs: Sequence[tuple[Losses, Losses]]) -> str:
    """Why runs cannot be compared; empty where they can."""
    finite = [all(map(math.isfinite, other.values)) for _, other in pairs]
    if not all(finite) and all(math.isfinite(v) for base, _ in pairs for v in base.values):
        return "the loss became NaN or infinite under the recipe only"
    for base, other in pairs:
        if len(other.values) < len(base.values):
            return f"the recipe's run ended after {len(other.values)} of {len(base.values)} losses"
        if missing := sorted(base.metrics.keys() - other.metrics.keys()):
            return f"the recipe's run did not tell {', '.join(missing)}"
    told = [run.metrics.keys() for pair in pairs for run in pair]
    if sometimes := sorted(set().union(*told) - set(told[0]).intersection(*told)):
        return f"not all runs told {', '.join(sometimes)}"
    return ""


def _no_answer(
    pairs: Sequence[tuple[Losses, Losses]], measures: Sequence[Measure], nothing: str
) -> str:
    """Why runs prove nothing; empty where they may. ``nothing``: that of runs which tell nothing."""
    if not measures:
        return nothing
    for name, whole, differences in measures:
        if not all(map(math.isfinite, (whole, *differences))):
            return f"the {name} became NaN or infinite"
        if whole <= 0:
            if name == "loss":
                return "the loss of the script as it is did not fall in the steps tried"
            return f"the {name} of the script as it is was 0 in the steps tried"
    told = [base.values or (base.metrics, base.state) for base, _ in pairs]
    if all(one == told[0] for one in told) and any(any(m.differences) for m in measures):
        return "another seed changed nothing in the script: its runs are one and the same"
    return ""


def shortfall(proof: Proof) -> str:
    """Why a proof fails, short."""
    if proof.high is None:
        return proof.reason
    most, margin = 100 * proof.high, 100 * proof.margin
    told = f"{most:.2f}" if f"{most:.2f}" != f"{margin:.2f}" else f"{most:.4g}"
    return f"{proof.measure} at most {told} % worse, margin {margin:g} %"


def _start(losses: Losses, count: int) -> float:
    first = losses.values[: max(1, round(count * FIRST))]
    return sum(first) / len(first)


def _end(losses: Losses, count: int) -> float:
    last = losses.values[count - max(1, round(count * LAST)) : count]
    return sum(last) / len(last)


def _curves(seed: int, base: Losses | str, other: Losses | str) -> Iterator[Curve]:
    for recipe, found in ((False, base), (True, other)):
        if isinstance(found, Losses):
            yield _curve(seed, found, recipe)


def _curve(seed: int, losses: Losses, recipe: bool) -> Curve:
    stride = max(1, len(losses.values) // 400)
    values = (value if math.isfinite(value) else None for value in losses.values[::stride])
    metrics = {name: value for name, value in losses.metrics.items() if math.isfinite(value)}
    return Curve(seed, recipe, losses.samples[::stride], tuple(values), metrics)
