"""THE table of learning-health rules: from losses and a few steps looked at closely to a finding.

What is judged is as much of the run as was watched, often its first some hundred steps: what comes
up later, overfitting for one, is told where a run is short or is watched for longer. Thresholds
name their source; "calibrated" ones were set on the cases of bench/truth/learning and the examples,
none of which was held out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from statistics import mean, median, stdev

from outpace.records.evidence import Evidence
from outpace.records.finding import Learning
from outpace.records.health import HUGE, Health

LARGE_UPDATE = 0.1
"""|change| / |weights| a step; 1e-3 is usual, 1e-4 to 1e-2 healthy (calibrated)"""
SMALL_UPDATE = 3e-6
CRAWLING = 5e-5
"""the same of a model that still guesses among its classes: at a thousandth of Adam's usual rate a step
changes it by 2e-5 (calibrated)"""
HEALTHY_UPDATE = 1e-4
SPIKE = 3.0
"""times the first losses"""
LEAP = 10.0
"""times the very first one, which may be low by chance"""
FEW_SAMPLES = 8
"""in a batch: the mean of so many squares of normal noise is over three times its median in 0.5 % of batches,
that of 4 in 4 %, and a single one in 24 %"""
MOST_SPIKES = 0.02
"""of the losses: a rate that is too high makes more than one of them"""
EXPLODED = 100.0
"""|gradient| / |weights| before the first step: 0.01 to 1 as a rule, of a loss summed over a batch a hundred
times that (calibrated)"""
VANISHED = 1e-7
"""largest |gradient| (Amazon SageMaker Debugger's VanishingGradient, of the mean)"""
AT_WORK = 1e-4
MANY_WEAK = 0.15
"""share of the weight matrices with `WEAK` gradients from which on these die out: queries and keys of linear
attention over images have some in nets that learn well, one matrix in sixteen (calibrated)"""
MOST_DEAD = 0.8
"""share of a layer's units (SageMaker Debugger's DeadRelu says 0.5; healthy nets reached that, one 0.7)"""
MOST_SATURATED = 0.5
IMBALANCE = 10.0
"""most over least frequent class (SageMaker Debugger's ClassImbalance)"""
PURE = 0.9
FEWEST_LOSSES = 100
NO_FALL = 0.02
"""of the loss: what the interval of its fall, or rise, may reach"""
RISE = 1.1
"""a loss over what it was; of validation over its best (SageMaker Debugger's Overfit: 0.1 above the
training's)"""
ABOUT = 0.1
"""of a loss, that it may be off from that of guessing"""
EPOCHS = 2
"""that a loss stays over, or less of them, before it is told"""
MANY = 50_000
"""samples, after which a loss that stays that of guessing is told whatever the epoch"""
EARLY = 0.2
"""of a run of one epoch, or of none: less of it does not tell where its loss will stay"""
PATIENCE = 3
"""validations since the best one"""
NOISY = 0.25
"""spread of the loss from step to step, of the loss (calibrated)"""
SLOWER = 0.5
"""of what a loss fell by before: if it may still fall by so much, it has not stopped"""
GONE_FOR, GONE = 0.25, 0.4
"""of the steps so far, and of the whole run, for which a rate is nothing: nobody wants that"""
NOISE_SCALES = 8.0
"""gradient noise scale over the batch; steps gain from larger batches up to it"""

Rule = Callable[[Evidence], Iterator[Learning]]


def not_a_number(evidence: Evidence) -> Iterator[Learning]:
    """The loss became NaN or infinite: if it stays so, nothing is learned from there on."""
    health, values = evidence.health, evidence.loss.values
    if evidence.loss.first_bad_step is None:
        return
    bad = [index for index, value in enumerate(values) if value is None]
    first = f"the gradient of {health.bad_gradient} is the first that is not"
    made = health.bad_made or (first if health.bad_gradient else None)
    because = f"; {made}" if made else ""
    anomaly = "torch.autograd.set_detect_anomaly(True) names the operation that made it"
    step = evidence.loss.first_bad_step
    if _never_finite_again(evidence):
        yield Learning(
            "nan",
            "critical",
            f"the loss is not a finite number from step {step} on{because}",
            f"lower the learning rate or clip gradients; {anomaly}",
        )
    else:
        some = f"{len(bad)} of {len(values)} losses, the first at step {step}, are"
        yield Learning(
            "nan",
            "warn",
            f"{some if bad else 'a loss is'} not finite, and the training went on{because}",
            "nothing is wrong with a few steps that a GradScaler skips until its scale suits; else "
            f"clip gradients; {anomaly}",
        )


def exploding(evidence: Evidence) -> Iterator[Learning]:
    """Gradients grow on their way back, as through many time steps, before there was a step to blame: the
    loss overshoots with any usual rate. Not where it falls all the same, as a sum over pixels does with Adam.
    """
    health, first = evidence.health, evidence.health.first_gradient
    if first is None or first < EXPLODED or evidence.run.from_step:
        return
    if _never_finite_again(evidence) or _overshot(evidence) is not None:
        large = f"{first:.0e} times the size of the weights" if first < HUGE else "not finite"
        yield Learning(
            "exploding_gradients",
            "critical",
            f"before the first step the gradients were {large}"
            + (f", those of {health.first_where} the largest" if health.first_where else ""),
            "clip gradients (torch.nn.utils.clip_grad_norm_); scale inputs and targets to about 1; normalise "
            "layers; initialise recurrent weights orthogonally; take the mean of losses, not their sum",
        )


def rate_too_high(evidence: Evidence) -> Iterator[Learning]:
    """Steps overshoot: the loss spikes or rises while the weights change by a large part."""
    health, values = evidence.health, _finite(evidence)
    ratio = max(health.first_update_ratio or 0.0, health.update_ratio or 0.0)
    if len(values) < 5 or not math.isfinite(ratio) or ratio < LARGE_UPDATE:
        return
    if any(exploding(evidence)):
        return  # which says why
    overshot = _overshot(evidence)
    if _never_finite_again(evidence) or overshot is not None:
        first, last = overshot or (median(values[:5]), _ends(values)[1])
        yield Learning(
            "learning_rate_too_high",
            "critical",
            f"a step changes the weights by {ratio:.0%} of their size, and the loss went from "
            f"{first:.3g} to {last:.3g}, at most {max(values):.3g}",
            "lower the learning rate tenfold; warm it up; clip gradients",
        )


def _overshot(evidence: Evidence) -> tuple[float, float] | None:
    """Where a loss that spikes or rises came from, and where it is.

    That of a policy, a sum over an episode, may grow as it learns to last.
    """
    health, values = evidence.health, _finite(evidence)
    if len(values) < 5 or health.acts:
        return None
    # One loss is noise. A net that its first steps have killed gets no gradients: later updates are 0.
    first, last = median(values[:5]), _ends(values)[1]
    # Of a few samples single losses are so high without an overshoot. Of more a rate that is too high makes
    # the noise outweigh the gradient too.
    alone = _is_noise(health) and health.batch < FEW_SAMPLES
    leaps = not alone and 0 < LEAP * values[0] < median(values[1:6])
    high = sum(0 < SPIKE * first < value for value in values[5:])
    spikes = not alone and high > max(1, MOST_SPIKES * len(values))
    start = max(values[0], first)
    rises = last > start + (RISE - 1) * abs(start)
    rises = rises and (health.update_ratio or 0.0) >= LARGE_UPDATE
    return (values[0] if leaps else first, last) if leaps or spikes or rises else None


def rate_too_low(evidence: Evidence) -> Iterator[Learning]:
    """Weights hardly change, and the loss with them; not that of a model that has learnt."""
    values = _finite(evidence)
    if not _hardly_changes(evidence) or evidence.health.warming_up or len(values) < 20:
        return
    if evidence.health.need_not_fall:
        return  # the loss of adversaries, or of a policy, need not fall
    first, last = _ends(values)
    crawls = 0.95 if _guesses(evidence, last) else 0.99
    if last > crawls * first and _fell_and_stays(evidence) is None:
        yield Learning(
            "learning_rate_too_low",
            "warn",
            f"a step changes the weights by {evidence.health.update_ratio:.0e} of their size, and in "
            f"{_seen(evidence)} the loss went from {first:.4g} to {last:.4g}",
            "raise the learning rate tenfold or more; 1e-3 of a weight's size a step is usual",
        )


def rate_gone(evidence: Evidence) -> Iterator[Learning]:
    """A schedule has brought the rate to nothing long before the training ends, as one for epochs that is
    stepped at each batch.
    """
    gone, run = evidence.health.rate_gone, evidence.run
    steps = evidence.steps.count
    total = steps if run.finished else run.total_steps
    if gone is None or total is None:
        return
    largest, now, since = gone
    to_come = max(0, total - steps)
    if since >= max(FEWEST_LOSSES, GONE_FOR * steps) and since + to_come > GONE * total:
        and_more = f"; {to_come:,} are to come" if to_come else ""
        yield Learning(
            "learning_rate_gone",
            "critical",
            f"the learning rate is {now:.1g}, of {largest:.1g} at its largest, and has been next to nothing "
            f"for {since:,} of {steps:,} steps{and_more}",
            "see how often the schedule is stepped: with steps of epochs it goes after each epoch, not each "
            "batch",
        )


def learns_nothing(evidence: Evidence) -> Iterator[Learning]:
    """Weights change as they should, and the loss stays that of guessing: labels may not belong to
    the inputs. Elsewhere a loss stays too, as of a model that was trained before.

    Not within an epoch or two of few samples: a small BERT made anew guessed for one of 6,000 texts, and
    then learnt.
    """
    values, chance = _finite(evidence), _chance(evidence)
    if evidence.health.update_ratio is None or _hardly_changes(evidence):
        return
    if evidence.health.warming_up or evidence.health.need_not_fall or len(values) < FEWEST_LOSSES:
        return  # a warm-up, adversaries or a policy: such a loss need not fall
    if _may_fall_later(evidence) and evidence.loss.samples[-1] < MANY:
        return
    third = len(values) // 3
    early, late = values[:third], values[-third:]
    falls = mean(early) - mean(late) >= 3 * _error(early, late)
    guesses = (1 - NO_FALL) * chance < mean(late) < (1 + ABOUT) * chance
    if min(values) > 0 and guesses and _stays(early, late) and not falls:
        yield Learning(
            "learns_nothing",
            "warn",
            f"the loss stays at {mean(late):.3g} over {_seen(evidence)}, which is guessing among "
            f"{evidence.health.classes} classes",
            "see that labels belong to their inputs and that a model can overfit one batch",
        )


def plateau(evidence: Evidence) -> Iterator[Learning]:
    """The loss fell, and then stays far from zero for as long again, and validations with it.

    Not within an epoch or two: it may fall where samples are met again, as that of large embeddings does.
    """
    fell = _fell_and_stays(evidence)
    if any(rate_gone(evidence)):
        return  # which says why
    if fell is not None and not _validates_better(evidence) and not _may_fall_later(evidence):
        first, late = fell
        ratio = evidence.health.update_ratio
        advice = "lower the learning rate (drop it, or let it go to zero on a schedule)"
        if ratio is not None and ratio < HEALTHY_UPDATE:
            advice = (
                f"see whether the learning rate went down too early, as a step changes the weights by "
                f"{ratio:.0e} of their size; where it is meant to be at its end, stop there"
            )
        yield Learning(
            "plateau",
            "warn",
            f"the loss fell from {first:.3g} to {late:.3g} and stays there for the later half "
            f"of {_seen(evidence)}",
            f"if your validation metric stays as well, {advice}",
        )


def overfitting(evidence: Evidence) -> Iterator[Learning]:
    """The training loss falls and the validation loss rises, by more than it changes from one to the next:
    the best of many small validations was lucky.
    """
    passes = evidence.loss.validated
    if len(passes) <= PATIENCE:
        return
    best = min(range(len(passes)), key=lambda i: passes[i][1])
    since = [value for _, value in passes[best:]]
    lowest, last = since[0], median(since[-2:])
    before, after = _training_loss(evidence, passes[best][0]), _training_loss(evidence, None)
    if len(since) - 1 < PATIENCE or lowest <= 0 or before is None or after is None:
        return
    scatter = stdev(b - a for a, b in pairwise(since)) / math.sqrt(2)
    rose = min(since[-PATIENCE:]) > RISE * lowest and last - lowest > 2 * scatter
    if rose and after < before:
        yield Learning(
            "overfitting",
            "warn",
            f"the validation loss was best at validation {best + 1} of {len(passes)} with "
            f"{lowest:.3g} and rose to {last:.3g}, while the training loss fell from {before:.3g} to "
            f"{after:.3g}",
            "keep the weights of the best validation and stop there; more data or augmentation, "
            "weight decay, dropout, a smaller model",
        )


def noisy(evidence: Evidence) -> Iterator[Learning]:
    """Batches are so small that noise hides where the loss goes."""
    values, health = _finite(evidence), evidence.health
    if len(values) < FEWEST_LOSSES or min(values) <= 0 or health.noise_scale is None:
        return
    if evidence.health.need_not_fall:
        return  # adversaries: such losses need not fall
    third = len(values) // 3
    late = values[-third:]
    spread = stdev(b - a for a, b in pairwise(late)) / math.sqrt(2)
    # By its logarithms too: a few large losses may hide how the others fall.
    still = _falls_no_more(values) and _falls_no_more([math.log(value) for value in values])
    lost = still and not _may_fall_later(evidence)
    if (
        lost
        and _is_noise(health)
        and spread > NOISY * mean(late)
        and mean(late) > 0.5 * _ends(values)[0]
    ):
        yield Learning(
            "noisy_loss",
            "warn",
            f"the loss changes by {spread / mean(late):.0%} of itself from step to step, and no fall "
            "is seen in it any more; noise outweighs the gradient in batches below some "
            f"{health.noise_scale:.0f} samples, and a step has {health.batch}",
            f"a larger batch, or gradients of {min(64, round(health.noise_scale / health.batch))} "
            "batches added up before a step; a lower learning rate",
        )


def _is_noise(health: Health) -> bool:
    """Whether a batch is far too small to tell where its gradient leads."""
    return health.noise_scale is not None and health.noise_scale > NOISE_SCALES * health.batch


def _may_fall_later(evidence: Evidence) -> bool:
    """Whether less than a few epochs were seen, of a run of several that goes on; of one epoch, or of a run
    without epochs whose length is known, whether it was but a small part.
    """
    data, seen, run = evidence.input, evidence.loss.samples, evidence.run
    if run.finished or not seen:
        return False
    if not data.samples:
        return evidence.steps.count < EARLY * (run.total_steps or 0)
    return seen[-1] - seen[0] < (EARLY if data.epochs == 1 else EPOCHS) * data.samples


def _falls_no_more(values: list[float]) -> bool:
    """Whether a loss has stopped falling, rather than falls by less than its noise lets see."""
    third = len(values) // 3
    early, middle, late = values[:third], values[third : 2 * third], values[-third:]
    goes_on, unsure = mean(middle) - mean(late), 2 * _error(middle, late)
    if goes_on >= unsure:
        return False
    fell = mean(early) - mean(middle)
    if fell > 2 * _error(early, middle):
        return goes_on + unsure < SLOWER * fell
    return mean(early) - mean(late) < 2 * _error(early, late)


def vanishing(evidence: Evidence) -> Iterator[Learning]:
    """Gradients die out on their way back through the layers."""
    health = evidence.health
    # Branches whose last scale begins at zero have gradients as small as the rate so far.
    if health.weak_share < MANY_WEAK or health.warming_up:
        return
    weak, strong = health.weakest_gradient, health.strongest_gradient
    if weak is not None and strong is not None and weak < VANISHED and strong > AT_WORK:
        yield Learning(
            "vanishing_gradients",
            "warn",
            f"gradients of {health.weakest_where} are at most {weak:.0e}, where others reach "
            f"{strong:.0e}",
            "use ReLU or GELU instead of sigmoids, normalisation layers, residual connections",
        )


def dead_units(evidence: Evidence) -> Iterator[Learning]:
    """ReLUs that give 0 whatever comes in learn no more."""
    health = evidence.health
    if health.dead > MOST_DEAD:
        yield Learning(
            "dead_units",
            "warn",
            f"{health.dead:.0%} of the units of {health.dead_layer} are 0 for every sample",
            "lower the learning rate, initialise anew, or use leaky ReLU or GELU",
        )


def saturated_units(evidence: Evidence) -> Iterator[Learning]:
    """Sigmoids and tanhs at their limits pass hardly a gradient."""
    health = evidence.health
    if evidence.health.need_not_fall:
        return  # what a generator gives, or an actor, is meant to reach its limits
    if health.saturated > MOST_SATURATED:
        yield Learning(
            "saturated_units",
            "warn",
            f"{health.saturated:.0%} of the outputs of {health.saturated_layer} lie at its limits",
            "scale inputs to unit variance, initialise smaller, or use another activation",
        )


def probabilities_as_logits(evidence: Evidence) -> Iterator[Learning]:
    """A loss takes a softmax, or a sigmoid, of what came from one: its gradients are small, and it cannot
    come near zero.
    """
    health = evidence.health
    for what, where, loss in (
        ("softmax", health.softmax_twice, "cross_entropy"),
        ("sigmoid", health.sigmoid_twice, "binary_cross_entropy_with_logits"),
    ):
        if where is not None:
            yield Learning(
                f"{what}_twice",
                "critical",
                f"the loss{_at(where)} takes a {what} of what are probabilities already",
                f"leave out the model's own {what}: {loss} takes what the last layer gives",
            )


def crossed_targets(evidence: Evidence) -> Iterator[Learning]:
    """Predictions in a column against targets in a row: what fits best is the mean of all targets."""
    where, batch = evidence.health.crossed, evidence.steps.batch_size
    if where is not None:
        yield Learning(
            "crossed_targets",
            "critical",
            f"the loss{_at(where)} holds each prediction against the targets of all samples: shapes "
            f"({batch}, 1) and ({batch},) give {batch} times {batch} differences",
            "squeeze(-1) the predictions, or unsqueeze(-1) the targets",
        )


def not_optimized(evidence: Evidence) -> Iterator[Learning]:
    """Parameters that get gradients and that no optimizer updates."""
    names = evidence.health.not_optimized
    if names:
        yield Learning(
            "not_in_optimizer",
            "critical",
            f"{_named(names)} get gradients and are in no optimizer",
            "give the optimizer model.parameters(), after all layers are made, those of a plain list in a "
            "ModuleList; requires_grad_(False) where they are meant to stay",
        )


def not_reached(evidence: Evidence) -> Iterator[Learning]:
    """Parameters that the loss does not depend on: they stay as they are."""
    names = evidence.health.without_gradient
    if names:
        later = _may_fall_later(evidence)  # a part of the model may have its turn in a later epoch
        seen = f" in the {evidence.steps.count:,} steps seen" if later else ""
        unless = "unless they are to learn later, " if later else ""
        yield Learning(
            "no_gradient",
            "warn",
            f"{_named(names)} get no gradient{seen}: the loss does not depend on them, and they stay as "
            "they are",
            f"{unless}see that the forward pass uses them and that no .detach(), no_grad() or .item() "
            "lies between them and the loss; requires_grad_(False) where they are meant to stay",
        )


def gradients_carried(evidence: Evidence) -> Iterator[Learning]:
    """Gradients of old steps are added to each new one."""
    if evidence.health.carried:
        yield Learning(
            "missing_zero_grad",
            "critical",
            "gradients are not set to zero between two optimizer steps: each adds to all before it",
            "call optimizer.zero_grad() once before each step's backward()",
        )


def imbalance(evidence: Evidence) -> Iterator[Learning]:
    """Some classes are hardly ever seen."""
    counts, purity = evidence.health.labels, evidence.health.purity
    if len(counts) < 2 or sum(counts) < 20 * len(counts) or _unshuffled(evidence):
        return
    if evidence.health.shuffles is None:
        return  # labels that no DataLoader gave may be a policy's actions
    if evidence.health.weighted:
        return  # which is what would be advised
    if purity is not None and counts[0] > IMBALANCE * counts[-1]:
        yield Learning(
            "class_imbalance",
            "warn",
            f"of {sum(counts)} labels the most frequent class has {counts[0]}, the least {counts[-1]}",
            "weight the loss or draw rare classes more often; judge by a metric of each class",
        )


def unshuffled(evidence: Evidence) -> Iterator[Learning]:
    """Batches hold one class each: every step unlearns the others."""
    if _unshuffled(evidence):
        yield Learning(
            "not_shuffled",
            "critical",
            f"a batch has {evidence.health.purity:.0%} of its samples in one of "
            f"{evidence.health.classes} classes",
            "DataLoader(..., shuffle=True), or shuffle the files before they are read",
        )


def same_random_numbers(evidence: Evidence) -> Iterator[Learning]:
    """Workers draw the same random numbers: so many samples at a time are augmented alike."""
    data = evidence.input
    if not data.same_draws or data.workers < 2:
        return
    own = [name for name in data.same_draws if name.startswith(".")]
    names = [f"the data set's {name}" if name in own else name for name in data.same_draws]
    advice = (
        f"each worker has a copy of {own[0]}: seed it there, by get_worker_info().seed in a "
        "worker_init_fn"
        if own
        else "leave out what seeds them in worker_init_fn: torch does, in each worker differently"
    )
    yield Learning(
        "same_random_numbers",
        "warn",
        f"{data.workers} workers draw the same random numbers from {' and '.join(names)}, so that "
        "samples made at one time are augmented alike",
        advice,
    )


def validates_in_training_mode(evidence: Evidence) -> Iterator[Learning]:
    """Dropout and batch statistics are on while the model is judged."""
    health = evidence.health
    if evidence.health.need_not_fall:
        return  # samples of a generator, which are drawn by its batch's own statistics
    if 0 < health.validated_training < 0.5 * evidence.steps.count:
        yield Learning(
            "validation_in_training_mode",
            "warn",
            f"the model runs without gradients and in training mode ({health.validated_where}): "
            "dropout drops and batch norm learns from what is judged",
            "call model.eval() before validation, and model.train() after it",
        )


def trains_in_evaluation_mode(evidence: Evidence) -> Iterator[Learning]:
    """A model learns on in the evaluation mode that a validation brought it to."""
    health = evidence.health
    if health.left_in_evaluation:
        yield Learning(
            "training_in_evaluation_mode",
            "warn",
            f"the model{_at(health.left_where or '')} has learnt in evaluation mode for "
            f"{health.left_in_evaluation:,} steps, after others in training mode: dropout drops nothing, and "
            "batch norms use the statistics of before",
            "unless it is meant so, call model.train() after each validation",
        )


TABLE: tuple[Rule, ...] = (
    not_a_number,
    exploding,
    rate_too_high,
    rate_gone,
    probabilities_as_logits,
    crossed_targets,
    not_optimized,
    not_reached,
    gradients_carried,
    unshuffled,
    same_random_numbers,
    rate_too_low,
    vanishing,
    dead_units,
    saturated_units,
    learns_nothing,
    plateau,
    noisy,
    overfitting,
    imbalance,
    validates_in_training_mode,
    trains_in_evaluation_mode,
)


def learning(evidence: Evidence) -> list[Learning]:
    """What the losses and the looks tell of the learning's health."""
    return [told for rule in TABLE for told in rule(evidence)]


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _finite(evidence: Evidence) -> list[float]:
    return [v for v in evidence.loss.values if v is not None]


def _hardly_changes(evidence: Evidence) -> bool:
    """Whether a step changes the weights by next to nothing; by little, while the model guesses."""
    ratio, values = evidence.health.update_ratio, _finite(evidence)
    if ratio is None or not values:
        return False
    return ratio <= (CRAWLING if _guesses(evidence, _ends(values)[1]) else SMALL_UPDATE)


def _guesses(evidence: Evidence, loss: float) -> bool:
    """Whether a loss is about that of guessing among the classes that there are."""
    chance = math.log(max(1, evidence.health.classes))
    return abs(loss - chance) < ABOUT * chance


def _chance(evidence: Evidence) -> float:
    """The loss of one who knows how often each class comes, and no more: the entropy of the labels.

    With the correction for few of them of Miller (1955): of K classes among n by (K - 1) / 2n. Where the
    loss weights classes, as a rule by how rare they are, they come as often for it.
    """
    counts, classes = evidence.health.labels, max(1, evidence.health.classes)
    total = sum(counts)
    if len(counts) < 2 or evidence.health.weighted:
        return math.log(classes)
    entropy = -sum(n / total * math.log(n / total) for n in counts)
    return min(math.log(classes), entropy + (len(counts) - 1) / (2 * total))


def _never_finite_again(evidence: Evidence) -> bool:
    """Whether the loss became NaN or infinite and stayed so."""
    bad = [value is None for value in evidence.loss.values]
    return any(bad) and all(bad[bad.index(True) :])


def _fell_and_stays(evidence: Evidence) -> tuple[float, float] | None:
    """Where the loss came from and where it stayed, if that is what it did."""
    values = _finite(evidence)
    if len(values) < FEWEST_LOSSES or min(values) <= 0 or evidence.health.need_not_fall:
        return None
    half = len(values) // 2
    first, early, late = median(values[:5]), values[half : half + half // 2], values[-(half // 2) :]
    stays = _stays(early, late) and 0.2 * first < mean(late) < 0.9 * first
    return (first, mean(early)) if stays else None


def _validates_better(evidence: Evidence) -> bool:
    """Whether the newest validation is the best of those in the later half of what was seen."""
    seen = evidence.loss.samples
    later = [v for samples, v in evidence.loss.validated if samples >= (seen[0] + seen[-1]) / 2]
    return len(later) > 1 and later[-1] < min(later[:-1])


def _ends(values: list[float]) -> tuple[float, float]:
    part = max(5, len(values) // 5)
    return median(values[:part]), median(values[-part:])


def _seen(evidence: Evidence) -> str:
    return f"{evidence.loss.samples[-1] - evidence.loss.samples[0]:,} samples"


def _error(one: list[float], other: list[float]) -> float:
    """Standard error of the difference of their means."""
    return math.hypot(stdev(one) / math.sqrt(len(one)), stdev(other) / math.sqrt(len(other)))


def _stays(early: list[float], late: list[float]) -> bool:
    """Surely no change from one to the other that is worth the name."""
    change = abs(mean(early) - mean(late))
    return change + 2 * _error(early, late) < NO_FALL * mean(early)


def _training_loss(evidence: Evidence, samples: int | None) -> float | None:
    """Median of the losses just before so many samples, or before the end."""
    pairs = zip(evidence.loss.samples, evidence.loss.values, strict=True)
    values = [v for s, v in pairs if v is not None and (samples is None or s <= samples)]
    return median(values[-20:]) if values else None


def _unshuffled(evidence: Evidence) -> bool:
    """Batches are of one class, though classes are many: in what was seen, or among the outputs."""
    health = evidence.health
    if health.purity is None or health.classes < 2 or health.purity < PURE or health.shuffles:
        return False
    everywhere = health.labels[0] / sum(health.labels)
    in_order = health.shuffles is False and not health.streams
    one_of_many = len(health.labels) == 1 and health.classes > 2 and in_order
    return one_of_many or health.purity > everywhere + 0.3
