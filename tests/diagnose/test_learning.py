"""Each rule tells its fault and is silent about a healthy training."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from outpace.diagnose.learning import learning
from outpace.records.evidence import Evidence, Loss
from outpace.records.health import Health
from tests.remedies.some_evidence import ALL, IMAGES

replace = msgspec.structs.replace
HEALTHY = Health(
    update_ratio=1e-3,
    first_update_ratio=3e-3,
    weakest_gradient=1e-3,
    weakest_where="inner.weight",
    strongest_gradient=1e-1,
    dead=0.1,
    dead_layer="relu 1",
    saturated=0.05,
    saturated_layer="tanh 1",
    labels=(70, 66, 60, 58),
    classes=4,
    purity=0.35,
    shuffles=True,
)
FALLS = tuple(2.3 * 0.99**step + 0.05 * (-1) ** step for step in range(300))


def evidence(
    losses: tuple[float | None, ...] = FALLS,
    bad: int | None = None,
    validated: tuple[float, ...] = (),
    **facts: Any,
) -> Any:
    """Losses of every step, of one sample, in ten epochs; ``validated``: after every 30 of them."""
    passes = tuple((30 * index, value) for index, value in enumerate(validated, start=1))
    loss = Loss(tuple(range(len(losses))), losses, bad, passes)
    data = replace(IMAGES.input, samples=len(losses) // 10, epochs=None)
    steps = replace(IMAGES.steps, count=max(len(losses), 300))
    return replace(IMAGES, steps=steps, loss=loss, input=data, health=replace(HEALTHY, **facts))


def rules(facts: Evidence) -> list[str]:
    return [found.rule for found in learning(facts)]


def test_a_healthy_training_is_left_in_peace() -> None:
    assert rules(evidence()) == []
    for name, facts in ALL.items():
        assert [r for r in rules(facts) if r != "nan"] == [], name


@pytest.mark.parametrize(
    ("samples", "epochs", "told"),
    [
        *((250, None, False), (250, 8, False), (250, 1, True), (100, 8, True)),
        *((1400, 1, True), (1600, 1, False)),
    ],
)
def test_a_loss_that_stays_within_an_epoch_may_fall_in_the_next(
    samples: int, epochs: int | None, told: bool
) -> None:
    """300 samples were seen; as of large embeddings, of which each sample moves rows of its own."""
    stays = evidence(STAYS)
    data = replace(stays.input, samples=samples, epochs=epochs)
    assert rules(replace(stays, input=data)) == ["plateau"] * told
    whole = replace(stays, input=data, run=replace(stays.run, finished=True))
    assert rules(whole) == ["plateau"], "there is no next"


@pytest.mark.parametrize(
    ("of", "times", "told"), [(250, 1, False), (100, 1, True), (250, 200, True)]
)
def test_a_loss_that_stays_that_of_guessing_within_an_epoch_of_few_samples_may_fall(
    of: int, times: int, told: bool
) -> None:
    """300 samples of ``of`` were seen, or so many times as many of each."""
    flat = evidence(FLAT)
    data = replace(flat.input, samples=of * times, epochs=8)
    loss = replace(flat.loss, samples=tuple(times * each for each in flat.loss.samples))
    assert ("learns_nothing" in rules(replace(flat, input=data, loss=loss))) is told


@pytest.mark.parametrize("losses", ["SPIKES", "EXPLODES"])
def test_losses_of_single_samples_that_are_mostly_noise_tell_of_no_rate(losses: str) -> None:
    """Where batches are larger a rate that is too high makes the gradients noise."""
    noise = {"noise_scale": 9.0, "batch": 1, "update_ratio": 0.4}
    assert "learning_rate_too_high" not in rules(evidence(globals()[losses], **noise))
    assert "learning_rate_too_high" in rules(evidence(GROWS, **noise)), "it rises throughout"
    noise.update(noise_scale=1000.0, batch=64)
    assert "learning_rate_too_high" in rules(evidence(globals()[losses], **noise))


def test_gradients_that_are_large_do_no_harm_where_the_loss_falls() -> None:
    """As of a loss that is summed over pixels, with Adam."""
    assert rules(evidence(first_gradient=1e6)) == []
    assert rules(evidence(SPIKES, update_ratio=0.4, first_gradient=1.0)) == [
        "learning_rate_too_high"
    ]


@pytest.mark.parametrize(
    ("samples", "total", "told"),
    [(None, 1600, False), (None, 1400, True), (None, None, True), (100, 1600, True)],
)
def test_a_loss_that_stays_early_in_a_run_without_epochs_may_fall_later(
    samples: int | None, total: int | None, told: bool
) -> None:
    """300 steps were seen, as of a stream, or of batches that a function gives."""
    stays = evidence(STAYS)
    data, run = replace(stays.input, samples=samples), replace(stays.run, total_steps=total)
    assert rules(replace(stays, input=data, run=run)) == ["plateau"] * told
    run = replace(run, finished=True)
    assert rules(replace(stays, input=data, run=run)) == ["plateau"]


def test_noise_that_may_hide_a_fall_is_no_reason_to_say_that_there_is_none() -> None:
    """It falls as fast as before, by less than its noise lets see in so few steps."""
    noise = (0.9, -0.8, 0.3, -0.4)
    falls = tuple(1.3 - 0.0012 * step + noise[step % 4] for step in range(300))
    few = {"noise_scale": 60.0, "batch": 1}
    assert "noisy_loss" not in rules(evidence(falls, **few))
    slower = tuple(max(0.9, 1.3 - 0.004 * step) + 0.4 * noise[step % 4] for step in range(300))
    assert "noisy_loss" in rules(evidence(slower, **few)), "it fell, and no more since"
    assert "noisy_loss" in rules(evidence(LEAPS, **few))


FLAT = tuple(1.386 + 0.02 * (-1) ** step for step in range(300))
NOISY = tuple(2.3 + 0.3 * math.sin(7 * step) - 0.001 * step for step in range(120))
STAYS = tuple(1.2 + 1.1 * 0.95**step + 0.02 * (-1) ** step for step in range(300))
LEAPS = tuple(1.2 + 0.1 * 0.9**step + (0.9, -0.8, 0.3, -0.4)[step % 4] for step in range(300))
RISES = (1.9, 1.5, 1.3, 1.2, 1.25, 1.3, 1.35, 1.4, 1.45, 1.5)
SPIKES = tuple(2.3 + (9.0 if step % 7 == 3 else 0.0) for step in range(300))


CRAWLS = tuple(1.39 - 5e-5 * step + 0.01 * (-1) ** step for step in range(300))
GROWS = tuple(7.0 + 0.2 * step for step in range(300))
HARD = tuple((0.693 if step < 30 else 0.66) + 0.01 * (-1) ** step for step in range(300))
RARE = tuple(0.326 + 0.004 * (-1) ** step for step in range(300))
LUCKY = (0.60, 0.52, 0.55, 0.42, 0.58, 0.47, 0.53, 0.48, 0.56)
RESUMED = tuple(2.10 + 0.06 * math.sin(7 * step) - 3e-5 * step for step in range(400))
EXPLODES = (2.3, 250.0, 120.0, 90.0, 130.0, 80.0, *(2.31 + 0.02 * (-1) ** s for s in range(294)))


def test_a_model_that_has_learnt_what_it_can_hardly_changes() -> None:
    learnt = tuple(1.2 + 1.1 * 0.8**step + 0.001 * (-1) ** step for step in range(300))
    assert rules(evidence(learnt, update_ratio=1e-9)) == ["plateau"]


@pytest.mark.parametrize(("ratio", "advised"), [(1e-3, "lower"), (1e-6, "went down too early")])
def test_a_rate_that_is_down_already_is_not_to_be_lowered(ratio: float, advised: str) -> None:
    (told,) = learning(evidence(STAYS, update_ratio=ratio))
    assert told.rule == "plateau"
    assert advised in told.advice


@pytest.mark.parametrize(
    ("rule", "losses", "facts"),
    [
        ("nan", (*FALLS[:10], None), {"bad": 10}),
        ("learning_rate_too_high", SPIKES, {"update_ratio": 0.4}),
        ("learning_rate_too_high", EXPLODES, {"first_update_ratio": 0.4, "update_ratio": 0.0}),
        ("learning_rate_too_high", (*FALLS[:10], None), {"first_update_ratio": 0.4, "bad": 10}),
        ("exploding_gradients", SPIKES, {"update_ratio": 0.4, "first_gradient": 1e4}),
        ("exploding_gradients", SPIKES, {"update_ratio": 1e-3, "first_gradient": 1e4}),
        ("exploding_gradients", GROWS, {"update_ratio": 0.4, "first_gradient": 1e30}),
        ("learning_rate_too_low", FLAT, {"update_ratio": 1e-7}),
        ("learning_rate_too_low", CRAWLS, {"update_ratio": 2e-5}),
        ("learning_rate_gone", STAYS, {"rate_gone": (1e-3, 1e-9, 500)}),
        ("learning_rate_too_high", GROWS, {"first_update_ratio": 0.4}),
        ("learning_rate_too_high", SPIKES, {"update_ratio": 0.4, "noise_scale": 7.0, "batch": 1}),
        ("softmax_twice", FALLS, {"softmax_twice": "train.py:7"}),
        ("sigmoid_twice", FALLS, {"sigmoid_twice": ""}),
        ("crossed_targets", FALLS, {"crossed": "train.py:7"}),
        ("training_in_evaluation_mode", FALLS, {"left_in_evaluation": 90}),
        ("dropout_in_evaluation", FALLS, {"drops_in_evaluation": "dropout"}),
        (
            "dropout_in_evaluation",
            FALLS,
            {"drops_in_evaluation": "scaled_dot_product_attention", "drops_where": "train.py:9"},
        ),
        ("learns_nothing", FLAT, {}),
        ("learns_nothing", RARE, {"classes": 2, "labels": (691, 77)}),
        ("learns_nothing", FLAT, {"labels": (691, 77, 40, 20), "weighted": True}),
        ("plateau", STAYS, {}),
        ("plateau", STAYS, {"validated": (1.9, 1.5, 1.4, 1.3, 1.29, 1.3, 1.29, 1.28, 1.3)}),
        ("overfitting", FALLS, {"validated": RISES}),
        ("noisy_loss", LEAPS, {"noise_scale": 60.0, "batch": 1}),
        ("vanishing_gradients", FALLS, {"weakest_gradient": 1e-9, "weak_share": 0.3}),
        ("dead_units", FALLS, {"dead": 0.9}),
        ("saturated_units", FALLS, {"saturated": 0.9}),
        ("not_in_optimizer", FALLS, {"not_optimized": ("last.weight",)}),
        ("no_gradient", FALLS, {"without_gradient": ("branch.weight",)}),
        ("missing_zero_grad", FALLS, {"carried": True}),
        ("zero_grad_before_step", FLAT, {"lost_again": True}),
        ("class_imbalance", FALLS, {"labels": (700, 15), "purity": 0.97, "classes": 2}),
        ("not_shuffled", FALLS, {"labels": (512, 256), "purity": 0.99, "shuffles": False}),
        ("not_shuffled", FALLS, {"labels": (512, 256), "purity": 0.99, "shuffles": None}),
        ("not_shuffled", FALLS, {"labels": (768,), "purity": 1.0, "shuffles": False}),
        (
            "validation_in_training_mode",
            FALLS,
            {"validated_training": 3, "validated_where": "train.py:30"},
        ),
    ],
)
def test_a_fault_is_told(
    rule: str, losses: tuple[float | None, ...], facts: dict[str, Any]
) -> None:
    told = learning(evidence(losses, **facts))
    assert rule in [found.rule for found in told]
    assert all(found.reason and found.advice for found in told)


def test_gradients_that_were_lost_had_a_loss_to_come_from() -> None:
    told = learning(evidence(FLAT, lost_again=True, without_gradient=("0.weight",)))
    assert "no_gradient" not in [found.rule for found in told]


@pytest.mark.parametrize(
    ("seen", "total", "since", "told"),
    [
        (1000, 2000, 500, True),
        (1000, 2000, 200, False),
        (1000, 1200, 500, True),
        (1000, 1200, 270, False),
        (1000, None, 500, False),
        (120, 2000, 60, False),
    ],
)
def test_a_rate_that_is_gone_for_much_of_the_run_is_told(
    seen: int, total: int | None, since: int, told: bool
) -> None:
    """At a schedule's end it is meant so, and for a while within one that begins anew."""
    facts = evidence(STAYS, rate_gone=(1e-3, 1e-9, since))
    run = replace(facts.run, total_steps=total)
    facts = replace(facts, run=run, steps=replace(facts.steps, count=seen))
    assert ("learning_rate_gone" in rules(facts)) is told
    assert ("plateau" in rules(facts)) is not told, "the one says why the other"


@pytest.mark.parametrize(
    ("losses", "facts"),
    [
        (FLAT, {"update_ratio": 1e-7, "warming_up": True}),
        (FLAT, {"update_ratio": 1e-7, "learners": 2}),
        (CRAWLS, {"update_ratio": 2e-5, "classes": 0}),
        (tuple(0.5 * value for value in CRAWLS), {"update_ratio": 2e-5}),
        (FALLS, {"saturated": 0.9, "learners": 2}),
        (FALLS, {"dead": 0.71}),
        (RESUMED, {}),
        (RESUMED, {"classes": 0}),
        (STAYS, {"validated": (1.9, 1.5, 1.4, 1.3, 1.29, 1.28, 1.27, 1.26, 1.25)}),
        (STAYS, {"validated": tuple(1.9 - 0.01 * i for i in range(9)), "update_ratio": 1e-9}),
        (FALLS, {"update_ratio": 0.4}),
        ((*FALLS[:200], 12.0, *FALLS[200:]), {"update_ratio": 0.4}),
        (GROWS, {"first_update_ratio": 0.4, "acts": True, "shuffles": None}),
        (HARD, {"classes": 2, "labels": (390, 378)}),
        (FALLS, {"validated": LUCKY}),
        ((100.0, 20.0, 5.0, 4.0, 3.0, *FALLS), {"first_update_ratio": 0.4}),
        ((0.7, *FALLS), {"first_update_ratio": 0.4, "update_ratio": 0.4}),
        (NOISY, {"first_update_ratio": 0.4}),
        (FLAT, {"learners": 2}),
        (FLAT, {"warming_up": True}),
        (tuple(0.2 - value for value in FLAT), {}),
        (tuple(value - 1.15 for value in STAYS), {}),
        (STAYS[:90], {}),
        (tuple(value - 6e-5 * step for step, value in enumerate(FLAT)), {}),
        (FALLS, {"validated": RISES[:6]}),
        (FALLS, {"validated": (1.9, 1.5, 1.3, 1.2, 1.21, 1.23, 1.25, 1.26)}),
        (FALLS[::-1], {"validated": RISES}),
        (LEAPS, {"noise_scale": 6.0, "batch": 1}),
        (LEAPS, {"noise_scale": 60.0, "batch": 1, "learners": 2}),
        (FALLS, {"noise_scale": 60.0, "batch": 1}),
        (FALLS, {"labels": (768,), "purity": 1.0, "classes": 65, "shuffles": None}),
        (FALLS, {"labels": (768,), "purity": 1.0, "shuffles": False, "streams": True}),
        (FALLS, {"labels": (400, 368), "purity": 1.0, "shuffles": True}),
        (FALLS, {"labels": (700, 15), "purity": 0.97, "classes": 2, "shuffles": None}),
        (FALLS, {"labels": (700, 15), "purity": 0.97, "classes": 2, "weighted": True}),
        (FALLS, {"weakest_gradient": 1e-9, "strongest_gradient": 1e-8, "weak_share": 1.0}),
        (FALLS, {"weakest_gradient": 1e-9, "weak_share": 0.06}),
        (FALLS, {"labels": (30, 1), "purity": 0.97, "classes": 2}),
        (FALLS, {"labels": (768,), "purity": 1.0, "classes": 2}),
        (FALLS, {"validated_training": 900}),
        (FALLS, {"validated_training": 3, "learners": 2}),
    ],
)
def test_what_only_looks_like_a_fault_is_not_told(
    losses: tuple[float | None, ...], facts: dict[str, Any]
) -> None:
    assert rules(evidence(losses, **facts)) == []


def test_what_made_a_nan_is_named() -> None:
    made = "2 (Root) is the first module whose output is not"
    (told,) = learning(
        evidence((*FALLS[:10], None), bad=10, bad_made=made, bad_gradient="0.weight")
    )
    assert told.reason == f"the loss is not a finite number from step 10 on; {made}"


def test_losses_that_are_not_finite_now_and_then_are_told_as_such() -> None:
    """As where half precision overflows, and a GradScaler skips the step."""
    (told,) = learning(evidence((*FALLS[:5], None, *FALLS[6:]), bad=5))
    assert (told.rule, told.severity) == ("nan", "warn")
    assert "1 of 300 losses, the first at step 5, are not finite, and the" in told.reason
    (told,) = learning(evidence(bad=601))  # of many losses some are kept
    assert "a loss is not finite, and the training went on" in told.reason


def test_the_step_is_told_where_there_is_one_loss_for_some_steps() -> None:
    facts = evidence((*FALLS[:10], None, None), bad=45)
    steps = (*range(6), 13, 21, 29, 37, 45, 53)
    samples = tuple(64 * (step + 1) for step in steps)
    (told,) = learning(replace(facts, loss=replace(facts.loss, samples=samples)))
    assert told.severity == "critical"
    assert told.reason == "the loss is not a finite number from step 45 on"


def test_what_gets_no_gradient_in_the_first_epoch_may_have_its_turn_later() -> None:
    seen = evidence(without_gradient=("aux.weight",))
    early = replace(seen, input=replace(seen.input, samples=250, epochs=8))
    told = {facts is early: learning(facts)[0] for facts in (seen, early)}
    assert "in the 300 steps seen" in told[True].reason
    assert "unless they are to learn later" in told[True].advice
    assert "steps seen" not in told[False].reason


def test_a_largest_gradient_of_nobody_knows_whom_is_told_without_a_name() -> None:
    (told,) = learning(evidence((2.3, None, None, None, None), 1, first_gradient=1e4))[1:]
    assert told.rule == "exploding_gradients"
    assert "None" not in told.reason
