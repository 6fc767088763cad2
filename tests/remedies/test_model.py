"""Predictions from little: guesses that what was measured rules out, and errors that add up."""

from __future__ import annotations

from dataclasses import replace as replace_setup

import msgspec
import pytest

from outpace.records.arm import Arm
from outpace.records.compute import Operators
from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.remedies.bf16 import Bf16
from outpace.remedies.fetch_threads import FetchThreads
from outpace.remedies.loader_workers import LoaderWorkers
from outpace.remedies.model import PRIORS, predicted_gain, step_time
from outpace.seams.setup import AS_IS, Feed, Setup
from outpace.tune.data_plan import SMALLEST
from outpace.tune.propose import candidates
from tests.remedies.some_evidence import IMAGES

replace = msgspec.structs.replace


def with_arm(name: str, gain: Gain, failed: str | None) -> Evidence:
    others = tuple(a for a in IMAGES.arms if a.name != name)
    rounds = 1 if failed else 6
    return replace(
        IMAGES, arms=(*others, Arm(name, rounds, 1.0, 1.0, gain, gain, failed, "input_free"))
    )


def test_one_round_rules_out_a_guess_but_measures_nothing() -> None:
    """One block thirty times as slow is no chance; one that a busy machine explains is."""
    told, few = Bf16().settings(IMAGES), "too few rounds"
    slow = Bf16().predict(with_arm("bf16", Gain(0.03, 0.02, 0.11), few), told)
    assert slow.speedup < 1.0
    unsure = Bf16().predict(with_arm("bf16", Gain(0.6, 0.15, 2.4), few), told)
    guessed = Bf16().predict(replace(IMAGES, arms=IMAGES.arms[:1]), told)
    assert 1.0 < unsure.speedup == guessed.speedup <= PRIORS["bf16"]


def test_half_precision_that_was_not_compared_gains_by_its_large_products() -> None:
    def guessed(flops: float, share: float) -> float:
        spent = (
            Operators("addmm", 10, share, flops, 1e6),
            Operators("sigmoid", 10, 1 - share, 0.0, 1e6),
        )
        facts = replace(IMAGES, compute=replace(IMAGES.compute, spent=spent), arms=())
        return Bf16().predict(facts).speedup

    assert guessed(1e6, 0.9) == pytest.approx(1.0), "as the steps of a recurrent layer in turn"
    assert 1.0 < guessed(1e9, 0.3) < guessed(1e9, 0.9)


def test_mixed_precision_that_was_not_compared_is_tried_without() -> None:
    """Steps of some seconds, as half precision without kernels makes them, leave no time for arms."""
    half = replace(
        IMAGES,
        steps=replace(IMAGES.steps, mean_s=3.0),
        compute=replace(IMAGES.compute, autocast="bfloat16"),
        arms=(),
    )
    tried = [c.remedy.name for c in candidates(half) if c.predict(half).speedup >= SMALLEST]
    assert "float32" in tried


def test_lbfgs_stays_in_float32() -> None:
    """Its line search compares losses; steps that give up sooner are no faster ones."""
    facts = replace(IMAGES, compute=replace(IMAGES.compute, optimizer="LBFGS"))
    assert Bf16().applies(IMAGES).yes
    assert not Bf16().applies(facts).yes


def test_an_overlap_is_no_surer_than_the_compute_in_it() -> None:
    settings = {"workers": 1, "compute_threads": 1}
    facts = replace(
        IMAGES, input=replace(IMAGES.input, fetch_s=0.001, fetch_cpu_s=0.001, images=None)
    )
    base = replace(facts, arms=tuple(a for a in facts.arms if a.name == "input_free"))

    def width(low: float, high: float) -> float:
        arm = Arm(
            "threads_1",
            6,
            0.05,
            0.05,
            Gain(1.5, low, high),
            Gain(1.5, low, high),
            None,
            "input_free",
        )
        gain = LoaderWorkers().predict(replace(base, arms=(*base.arms, arm)), settings)
        return gain.high / gain.low

    assert width(0.8, 2.8) > 1.5 * width(1.45, 1.55)


@pytest.mark.parametrize(
    ("base", "wanted"), [("input_free", 3.0 / (2.1 + 0.9 / 1.2)), ("as_is", 1.2)]
)
def test_where_a_free_input_was_not_timed_arms_go_by_what_they_were_compared_with(
    base: str, wanted: float
) -> None:
    """Of 3 s steps with 2.1 s of input: the arm of a free input had too few rounds."""
    facts = replace(
        IMAGES,
        steps=replace(IMAGES.steps, mean_s=3.0, median_s=3.0, cpu_s=3.0),
        input=replace(
            IMAGES.input, wait_s=2.1, fetch_s=2.1, fetch_cpu_s=2.1, images=None, workers=0
        ),
        arms=(Arm("bf16", 6, 1.0, 1.0, Gain(1.2, 1.1, 1.3), Gain(1.2, 1.1, 1.3), None, base),),
    )
    assert Bf16().predict(facts).speedup == pytest.approx(wanted, rel=0.02)


def test_float64_gains_nothing_by_autocast() -> None:
    facts = replace(IMAGES, compute=replace(IMAGES.compute, dtype="float64"))
    assert not Bf16().applies(facts).yes


def test_threads_that_fetch_keep_up_with_each_batch_of_a_step() -> None:
    """A batch waits 200 ms; 16 of them, 10 ms each, are one step: as many threads as for steps of 10 ms."""

    def threads(micro: int) -> int:
        return FetchThreads().count(
            replace(
                IMAGES,
                steps=replace(IMAGES.steps, mean_s=micro * 0.21, micro_steps=micro),
                input=replace(IMAGES.input, wait_s=micro * 0.2, fetch_s=0.2, storage_s=0.199),
                arms=(),
            )
        )

    assert threads(16) == threads(1) > 30


def test_images_that_are_decoded_small_spare_their_resizing_too() -> None:
    scaled = Setup(scaled=True)
    images = IMAGES.input.images
    assert images is not None
    gains = []
    for saves in (0.5, 1.0, 1.2):
        found = msgspec.structs.replace(images, scaled_saves_s=saves * images.decode_s)
        facts = msgspec.structs.replace(
            IMAGES, input=msgspec.structs.replace(IMAGES.input, images=found)
        )
        gains.append(predicted_gain(facts, AS_IS, scaled).speedup)
        kept = Setup(scaled=True, decoded_bytes=2**40)
        assert step_time(facts, kept) == step_time(facts, Setup(decoded_bytes=2**40))
    assert 1.0 < gains[0] < gains[1] < gains[2]


def test_samples_that_python_makes_are_made_beside_no_step_by_a_thread() -> None:
    """Each of the step's operations waits for the interpreter; a few long ones hardly do."""
    feed = replace_setup(AS_IS, feed=Feed(executor="ahead", prefetch=3))

    def seconds(held: float | None, operations: int, setup: Setup = feed) -> float:
        facts = replace(
            IMAGES,
            input=replace(IMAGES.input, held=held, workers=0),
            compute=replace(IMAGES.compute, operations=operations, device="cuda"),
        )
        return step_time(facts, setup).seconds

    beside = seconds(None, 500)
    assert seconds(0.0, 500) == beside
    assert seconds(0.02, 500) < 1.05 * beside
    assert seconds(1.0, 2) < 1.5 * beside
    in_turn = seconds(1.0, 500, AS_IS)
    assert in_turn < seconds(1.0, 500) < 1.2 * in_turn
    processes = replace_setup(AS_IS, feed=Feed(executor="processes", workers=1))
    assert seconds(1.0, 500, processes) == seconds(None, 500, processes)
