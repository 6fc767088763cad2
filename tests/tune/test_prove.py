"""The proof: what is as good passes, what is worse does not, and what should be equal is compared."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from outpace.records.files import read_json, write_json
from outpace.records.trial import Proof
from outpace.report.sentences import proof_sentence
from outpace.tune.prove import Losses, Runner, prove, prove_equal, shortfall


def curve(seed: int, worse: float = 0.0, noise: float = 0.01, steps: int = 200) -> Losses:
    """A loss that falls from 2 to 1; ``worse`` is added to its end."""
    chance = random.Random(seed)
    values = [
        1 + 0.99**step + worse * step / steps + chance.gauss(0, noise) for step in range(steps)
    ]
    return Losses(tuple(range(64, 64 * steps + 1, 64)), tuple(values), {})


def runner(worse: float, noise: float = 0.001):
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        return curve(2 * seed + recipe, worse if recipe else 0.0, noise, steps)

    return run


def test_as_good_is_proven() -> None:
    proof = prove(runner(0.0), seeds=3, steps=200, margin=0.01)
    assert proof.proven
    assert proof.seeds == 3
    assert proof.high < 0.01


@pytest.mark.parametrize("worse", [0.05, 0.2, float("nan"), float("inf")])
def test_worse_is_not_proven(worse: float) -> None:
    proof = prove(runner(worse), seeds=3, steps=200, margin=0.01)
    assert (proof.proven, proof.refuted) == (False, True)


def test_what_is_no_number_reads_back(tmp_path: Path) -> None:
    """JSON has no NaN: a session with one could be written, and not read again."""

    def diverged(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        return Losses(plain.samples, (*plain.values[:-1], math.nan), {"accuracy": math.nan})

    for proof in (prove(diverged, seeds=3, steps=60, margin=0.01), prove_equal(diverged, 12)):
        write_json(tmp_path / "proof.json", proof)
        assert read_json(tmp_path / "proof.json", Proof) == proof
        assert proof.curves[0].values[-1] is None
    unproven = prove(diverged, seeds=3, steps=60, margin=0.01)
    assert (unproven.proven, unproven.reason) == (False, "the accuracy became NaN or infinite")


def test_better_is_proven() -> None:
    assert prove(runner(-0.1), seeds=3, steps=200, margin=0.01).proven


def test_noise_is_not_a_proof() -> None:
    noisy = prove(runner(0.0, noise=2.0), seeds=3, steps=50, margin=0.01, enough_time=lambda: False)
    assert not noisy.proven
    assert "worse, margin 1 %" in shortfall(noisy), "the user is told by how much"


def test_chance_has_no_more_tries_than_it_is_given() -> None:
    """A recipe that is worse by the margin is let through in 5 % of all tries, looks and all."""
    through = 0
    for trial in range(400):

        def run(seed: int, recipe: bool, steps: int, trial: int = trial) -> Losses:
            chance = random.Random(10_000 * trial + 2 * seed + recipe)
            end = 1.0 + chance.gauss(0.01 if recipe else 0.0, 0.004)
            return Losses((1, 2, 3), (2.0, end, end), {})

        through += prove(run, seeds=3, steps=3, margin=0.01, most_seeds=8).proven
    assert through <= 0.05 * 400 + 2 * (0.05 * 0.95 * 400) ** 0.5


def test_more_seeds_prove_what_few_leave_open() -> None:
    asked: list[int] = []

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        asked.append(seed)
        return curve(2 * seed + recipe, noise=0.045)

    assert not prove(run, seeds=3, steps=200, margin=0.01).proven
    assert prove(run, seeds=3, steps=200, margin=0.01, most_seeds=8).proven
    assert max(asked) == 7


def test_no_pair_is_run_once_the_time_is_over() -> None:
    asked: list[int] = []

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        asked.append(seed)
        return curve(2 * seed + recipe, noise=0.045)

    over = {"most_seeds": 8, "enough_time": lambda: False}
    proof = prove(run, seeds=3, steps=200, margin=0.01, **over)
    assert (proof.seeds, max(asked)) == (3, 2)
    assert proof.high is not None


def test_a_loss_that_does_not_fall_proves_nothing() -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        return Losses(tuple(range(steps)), tuple(1.0 + i for i in range(steps)), {})

    assert not prove(run, seeds=3, steps=60, margin=0.01).proven


def test_a_run_that_fails_proves_nothing() -> None:
    proof = prove(lambda *_: "hung for 2m", seeds=3, steps=60, margin=0.01)
    assert not proof.proven
    assert proof.reason == "a run of the proof hung for 2m"
    assert not proof.refuted
    assert not prove(lambda *_: "failed", seeds=3, steps=60, margin=0.01).refuted

    def fails(seed: int, recipe: bool, steps: int) -> Losses | str:
        return "failed" if recipe else curve(seed, steps=steps)

    assert prove(fails, seeds=3, steps=60, margin=0.01).refuted
    equal = prove_equal(lambda *_: "failed", 12)
    assert equal is not None
    assert (equal.proven, equal.reason) == (False, "a run for the comparison failed")


@pytest.mark.parametrize(
    ("name", "worse", "proven"),
    [
        ("accuracy", -0.4, False),
        ("accuracy", 0.001, True),
        ("val_loss", 0.4, False),
        ("val_loss", -0.001, True),
        ("rmse", 0.4, False),
        ("rmse", -0.4, True),
        ("test/WER", 0.4, False),
        ("mAP", -0.4, False),
        ("top1", 0.4, True),
        ("accuracy_per_class", -0.4, False),
        ("val/PER", 0.4, False),
        ("top1_err", 0.4, False),
        ("val/acc_err", 0.4, False),
        ("inaccuracy", 0.4, False),
        ("d2_log_loss_score", -0.4, False),
        ("brier_skill_score", -0.4, False),
        ("distance_correlation", -0.4, False),
        ("pearson_correlation", 0.4, True),
        ("correlation_distance", 0.4, False),
    ],
)
def test_a_metric_is_judged_too(name: str, worse: float, proven: bool) -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        return Losses(plain.samples, plain.values, {name: 0.9 + (worse if recipe else 0.0)})

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert proof.proven == proven
    assert proven or proof.measure == name


@pytest.mark.parametrize(("change", "proven"), [(0.4, False), (-0.4, False), (0.001, True)])
def test_a_metric_whose_better_way_is_not_known_is_to_stay(change: float, proven: bool) -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        return Losses(plain.samples, plain.values, {"wobble": 0.9 + (change if recipe else 0.0)})

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert proof.proven == proven
    assert proven or "wobble, which may be better larger or smaller," in shortfall(proof)


@pytest.mark.parametrize("short", ["steps", "metrics"])
def test_a_run_of_the_recipe_that_tells_less_proves_nothing(short: str) -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps // 2 if recipe and short == "steps" else steps)
        metrics = {} if recipe and short == "metrics" else {"accuracy": 0.9 + 0.001 * seed}
        return Losses(plain.samples, plain.values, metrics)

    proof = prove(run, seeds=3, steps=60, margin=0.5)
    assert not proof.proven
    said = {"steps": "ended after 30 of 60 losses", "metrics": "did not tell accuracy"}
    assert said[short] in proof.reason
    if short == "steps":
        assert not prove_equal(run, 60).proven


@pytest.mark.parametrize("metric", [{"epoch": 3.0}, {}])
def test_a_metric_that_tells_nothing_hides_no_worse_loss(metric: dict[str, float]) -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        values = tuple(v + (0.3 if recipe else 0.0) for v in plain.values)
        return Losses(plain.samples, values, metric)

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert (proof.measure, proof.proven) == ("loss", False)


def test_one_run_over_and_over_is_no_proof() -> None:
    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(0, steps=steps)
        return Losses(plain.samples, tuple(v + 1e-6 * recipe for v in plain.values), {})

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert not proof.proven
    assert "another seed changed nothing" in proof.reason


@pytest.mark.parametrize(("state", "proven"), [(None, False), (7, False), ("other", True)])
def test_one_run_is_known_by_its_metrics_where_it_has_no_losses(
    state: int | str | None, proven: bool
) -> None:
    """Of weights that differ a metric may be the same by chance."""

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        held = seed if state == "other" else state
        return Losses((), (), {"accuracy": 0.9 + 1e-6 * recipe}, held)

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert proof.proven is proven
    assert proven or "another seed changed nothing" in proof.reason


def test_equal_losses() -> None:
    same = prove_equal(lambda *_: curve(0), 12)
    assert same.proven
    assert not same.needed
    assert not same.refuted
    other = prove_equal(lambda seed, recipe, steps: curve(int(recipe)), 12)
    assert (other.proven, other.refuted) == (False, True)
    assert "step 0" in other.reason


@pytest.mark.parametrize(
    ("states", "proven"), [((1, 1), True), ((1, 2), False), ((None, 2), True), ((1, None), True)]
)
def test_what_a_model_holds_afterwards_is_equal_too(
    states: tuple[int | None, int | None], proven: bool
) -> None:
    """As the statistics of batch norms, which no loss of the training shows."""

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        return replace(curve(0), state=states[recipe])

    proof = prove_equal(run, 12)
    assert proof is not None
    assert proof.proven is proven
    assert proven or "buffers differ" in proof.reason


def test_a_loss_that_is_reported_is_told_from_the_training_loss() -> None:
    """Its margin is a share of the loss itself, not of a fall."""

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain = curve(seed, steps=steps)
        return Losses(plain.samples, plain.values, {"loss": 0.9 + (0.4 if recipe else 0.0)})

    proof = prove(run, seeds=3, steps=60, margin=0.01)
    assert (proof.measure, proof.proven) == ("reported loss", False)


def test_a_script_that_does_not_repeat_itself_cannot_be_compared_bit_by_bit() -> None:
    """Its own runs differ: whether the recipe keeps the bits nobody can see."""
    runs: list[bool] = []

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        runs.append(recipe)
        return curve(len(runs), steps=steps)

    assert prove_equal(run, 20) is None
    assert runs == [False, True, False]


@pytest.mark.parametrize(("state", "proven"), [(7, True), (8, False), (None, False)])
def test_where_no_loss_was_seen_weights_tell_what_is_equal(state: int | None, proven: bool) -> None:
    """As of a loss for each sample, which backward() is called on with a gradient."""

    def unseen(seed: int, recipe: bool, steps: int) -> Losses:
        return Losses((), (), {}, state if recipe else 7)

    proof = prove_equal(unseen, 12)
    assert proof is not None
    assert proof.proven is proven
    if state == 7:
        assert (
            proof.reason
            == "all remedies keep the bits: weights and buffers are equal after the same steps"
        )
    if state is None:
        assert proof.reason.startswith("no loss was seen")


def test_where_no_loss_was_seen_only_metrics_prove_anything() -> None:
    def unseen(seed: int, recipe: bool, steps: int) -> Losses:
        return Losses((), (), {})

    def reported(seed: int, recipe: bool, steps: int) -> Losses:
        return Losses((), (), {"accuracy": 0.9 + 1e-4 * seed + 1e-5 * recipe})

    proof = prove(unseen, seeds=2, steps=60, margin=0.02)
    assert (proof.proven, proof.difference, proof.high) == (False, None, None)
    assert proof.reason.startswith("no loss was seen")
    assert prove(reported, seeds=3, steps=60, margin=0.02).proven


def test_a_run_that_failed_gives_no_figures() -> None:
    def failing(seed: int, recipe: bool, steps: int) -> Losses | str:
        return "failed" if seed == 1 else curve(seed, steps=steps)

    proof = prove(failing, seeds=3, steps=60, margin=0.02)
    assert (proof.seeds, proof.margin, proof.high) == (1, 0.02, None)


@pytest.mark.parametrize(
    ("high", "margin", "told"),
    [
        (0.02, 0.01, "at most 2.00 % worse, margin 1 %"),
        (0.010041, 0.01, "at most 1.004 % worse, margin 1 %"),
        (0.0007, 0.0004, "at most 0.07 % worse, margin 0.04 %"),
    ],
)
def test_a_refusal_does_not_read_as_if_it_had_passed(high: float, margin: float, told: str) -> None:
    assert shortfall(Proof(True, False, high=high, margin=margin)).endswith(told)


def told(*metrics: float | None, awaited: bool = False) -> Runner:
    """A run of each seed with its metric; those without remedies and with them alike."""

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain, value = curve(seed, steps=steps), metrics[seed]
        given = {} if value is None else {"accuracy": value + (0.001 if recipe else 0.0)}
        return Losses(plain.samples, plain.values, given, None, awaited)

    return run


def test_a_metric_that_not_all_runs_told_proves_nothing() -> None:
    proof = prove(told(0.9, None, 0.8), seeds=3, steps=60, margin=0.5)
    assert not proof.proven
    assert proof.reason == "not all runs told accuracy"
    assert prove(told(0.9, 0.7, 0.8), seeds=3, steps=60, margin=0.5).proven


def test_metrics_that_come_later_than_the_proof_are_said_to_be_missing() -> None:
    """It is the loss alone that is proven then."""
    proof = prove(told(None, None, None, awaited=True), seeds=3, steps=60, margin=0.5)
    assert proof.proven
    assert proof.measure == "loss"
    assert "the script's own metrics come later" in proof.reason
    said = proof_sentence(proof)
    assert said.endswith(
        "margin is 50 % of the baseline's fall. The script's own metrics come later than "
        "that, and were not judged."
    )
    plain = prove(told(None, None, None), seeds=3, steps=60, margin=0.5)
    assert plain.proven
    assert "metrics" not in proof_sentence(plain)


def test_a_margin_is_of_the_metric_in_the_mean_of_the_seeds() -> None:
    """Two of three are 4 % worse: one bad seed that is ten times as large hides nothing."""

    def run(seed: int, recipe: bool, steps: int) -> Losses:
        plain, value = curve(seed, steps=steps), (0.5, 0.5, 5.0)[seed]
        worse = 0.02 if recipe and seed < 2 else 0.0
        return Losses(plain.samples, plain.values, {"val_loss": value + worse})

    assert not prove(run, seeds=3, steps=60, margin=0.01).proven


def test_losses_of_adversaries_prove_nothing() -> None:
    ran: list[bool] = []

    def run(seed: int, under: bool, steps: int) -> Losses | str:
        ran.append(under)
        return runner(0.0)(seed, under, steps)

    proof = prove(run, seeds=3, steps=200, margin=0.01, by_loss=False)
    assert not proof.proven
    assert "outpace.log" in proof.reason
    assert ran == [False]


def test_a_metric_of_adversaries_proves_what_their_losses_do_not() -> None:
    def run(seed: int, under: bool, steps: int) -> Losses | str:
        losses = runner(9.0 * under)(seed, under, steps)
        assert isinstance(losses, Losses)
        chance = random.Random(10 * seed + under)
        return replace(losses, metrics={"fid": 20.0 + chance.gauss(0.0, 0.01)})

    proof = prove(run, seeds=4, steps=200, margin=0.01, by_loss=False)
    assert proof.proven
    assert proof.measure == "fid"
