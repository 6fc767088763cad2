"""Rules of learning health: what a few steps that were looked at closely tell."""

from __future__ import annotations

from collections.abc import Iterator

from outpace.diagnose.losses import may_fall_later
from outpace.records.evidence import Evidence
from outpace.records.finding import Learning

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
    if names and not evidence.health.lost_again:
        later = may_fall_later(evidence)  # a part of the model may have its turn in a later epoch
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


def gradients_lost(evidence: Evidence) -> Iterator[Learning]:
    """Gradients are set to zero before the step that should use them."""
    if evidence.health.lost_again:
        yield Learning(
            "zero_grad_before_step",
            "critical",
            "gradients are set to zero between backward() and the optimizer's step(), which learns nothing "
            "from them",
            "call optimizer.zero_grad() after step(), or before backward()",
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


def drops_in_evaluation(evidence: Evidence) -> Iterator[Learning]:
    """A function drops whatever the model's mode: what is judged, and used later, is noisy."""
    health = evidence.health
    if health.need_not_fall or health.drops_in_evaluation is None:
        return
    attention = health.drops_in_evaluation == "scaled_dot_product_attention"
    yield Learning(
        "dropout_in_evaluation",
        "warn",
        f"{health.drops_in_evaluation}(){_at(health.drops_where or '')} drops while the model is in "
        "evaluation mode: each call gives something else",
        "unless it is meant so, "
        + (
            "pass dropout_p=self.p if self.training else 0.0"
            if attention
            else "pass training=self.training, or make an nn.Dropout in __init__"
        ),
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


def _at(where: str) -> str:
    return f" at {where}" if where else ""


def _named(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more


def _unshuffled(evidence: Evidence) -> bool:
    """Batches are of one class, though classes are many: in what was seen, or among the outputs."""
    health = evidence.health
    if health.purity is None or health.classes < 2 or health.purity < PURE or health.shuffles:
        return False
    everywhere = health.labels[0] / sum(health.labels)
    in_order = health.shuffles is False and not health.streams
    one_of_many = len(health.labels) == 1 and health.classes > 2 and in_order
    return one_of_many or health.purity > everywhere + 0.3
