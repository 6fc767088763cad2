"""The proof that a recipe costs no quality: non-inferiority at equal samples seen.

For each seed the script runs twice in a process of its own, without and with the remedies that
change numbers, both from the same seed. What is compared is the mean loss over the last two thirds
of the steps (or a metric that the script reports). The recipe is proven where the upper limit of
the mean difference over seeds, one-sided at the stated confidence (Student's t), is below the
margin: a share of the loss's fall in the script without them.

A recipe that keeps the bits needs no such test; its losses must then be equal, which is checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from outpace.records.trial import Curve, Proof

LAST = 2 / 3
FIRST = 0.05
FEWEST_STEPS = 60


@dataclass(frozen=True)
class Losses:
    """Loss by samples seen of one run, and metrics that the script reported."""

    samples: tuple[int, ...]
    values: tuple[float, ...]
    metrics: dict[str, float]


Runner = Callable[[int, bool, int], Losses | None]
"""(seed, under the recipe?, steps) -> losses, or None where the run failed"""


def prove_equal(run: Runner, steps: int) -> Proof:
    """A recipe that keeps the bits: are the losses the same?"""
    base, other = run(0, False, steps), run(0, True, steps)
    curves = tuple(_curve(0, r, side) for side, r in ((False, base), (True, other)) if r)
    if base is None or other is None or not base.values:
        return Proof(False, False, reason="a run for the comparison failed", curves=curves)
    count = min(len(base.values), len(other.values))
    same = all(_same(a, b) for a, b in zip(base.values[:count], other.values[:count], strict=True))
    at = next((i for i in range(count) if not _same(base.values[i], other.values[i])), count)
    reason = (
        f"all remedies keep the bits: {count} losses are equal"
        if same
        else f"the recipe should keep the bits, but losses differ from step {at} on"
    )
    return Proof(False, same, seeds=1, steps=count, reason=reason, curves=curves)


def _same(one: float, other: float) -> bool:
    return one == other or (math.isnan(one) and math.isnan(other))


def prove(
    run: Runner,
    *,
    seeds: int,
    steps: int,
    margin: float,
    confidence: float = 0.95,
    most_seeds: int = 0,
    enough_time: Callable[[], bool] = lambda: True,
) -> Proof:
    """Test non-inferiority over ``seeds`` seeds, and if it is open then, over ``most_seeds``.

    Looking twice gives chance two tries: each look has half of the error that is allowed.
    """
    seeds = max(2, seeds)
    most = max(seeds, most_seeds)
    level = confidence if most == seeds else (1 + confidence) / 2
    pairs: list[tuple[Losses, Losses]] = []
    curves: list[Curve] = []
    proof = Proof(True, False, reason="no pair of runs was finished")
    for seed in range(most):
        base, other = run(seed, False, steps), run(seed, True, steps)
        curves += [_curve(seed, r, side) for side, r in ((False, base), (True, other)) if r]
        if base is None or other is None:
            return Proof(
                True, False, seed, reason="a run of the proof failed", curves=tuple(curves)
            )
        pairs.append((base, other))
        last = len(pairs) == most or (len(pairs) > seeds and not enough_time())
        if last or len(pairs) == seeds:
            proof = judge(pairs, margin, level, curves)
        if last or (len(pairs) == seeds and proof.proven):
            break
    return msgspec.structs.replace(proof, confidence=confidence)


def judge(
    pairs: Sequence[tuple[Losses, Losses]], margin: float, confidence: float, curves: list[Curve]
) -> Proof:
    """Whether the recipe's loss is no worse than the script's by more than the margin."""
    from scipy import stats

    count = min(min(len(b.values), len(o.values)) for b, o in pairs)
    metric = next((name for name in pairs[0][0].metrics if _all_have(pairs, name)), None)
    bad = [o for _, o in pairs if not all(map(math.isfinite, o.values))]
    fall = sum(_start(b, count) - _end(b, count) for b, _ in pairs) / len(pairs)
    differences = [_end(o, count) - _end(b, count) for b, o in pairs]
    if metric is not None:
        differences = [b.metrics[metric] - o.metrics[metric] for b, o in pairs]
        fall = max(abs(b.metrics[metric]) for b, _ in pairs)
    reason = ""
    if bad and all(math.isfinite(v) for b, _ in pairs for v in b.values):
        reason = "the loss became NaN or infinite under the recipe only"
    elif not all(map(math.isfinite, (fall, *differences))):
        reason = f"the {metric or 'loss'} became NaN or infinite"
    elif fall <= 0:
        reason = "the loss of the script as it is did not fall in the steps tried"
    if reason:
        return Proof(
            True, False, len(pairs), count, margin, confidence, reason=reason, curves=tuple(curves)
        )
    mean = sum(differences) / len(pairs)
    spread = math.sqrt(sum((d - mean) ** 2 for d in differences) / (len(pairs) - 1))
    reach = float(stats.t.ppf(confidence, len(pairs) - 1)) * spread / math.sqrt(len(pairs))
    high = (mean + reach) / fall
    proven = high < margin
    return Proof(
        True,
        proven,
        len(pairs),
        count,
        margin,
        confidence,
        mean / fall,
        high,
        metric or "loss",
        curves=tuple(curves),
    )


def shortfall(proof: Proof) -> str:
    """Why a proof fails, short."""
    most, margin = 100 * proof.high, 100 * proof.margin
    return proof.reason or f"{proof.measure} at most {most:.2f} % worse, margin {margin:.1f} %"


def _all_have(pairs: Sequence[tuple[Losses, Losses]], name: str) -> bool:
    return all(name in run.metrics for pair in pairs for run in pair)


def _start(losses: Losses, count: int) -> float:
    first = losses.values[: max(1, round(count * FIRST))]
    return sum(first) / len(first)


def _end(losses: Losses, count: int) -> float:
    last = losses.values[count - max(1, round(count * LAST)) : count]
    return sum(last) / len(last)


def _curve(seed: int, losses: Losses, recipe: bool) -> Curve:
    stride = max(1, len(losses.values) // 400)
    values = (value if math.isfinite(value) else None for value in losses.values[::stride])
    metrics = {name: value for name, value in losses.metrics.items() if math.isfinite(value)}
    return Curve(seed, recipe, losses.samples[::stride], tuple(values), metrics)
