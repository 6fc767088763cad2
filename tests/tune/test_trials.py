"""What becomes of remedies once the whole recipe is compared."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import msgspec
import pytest

from outpace.records.gain import Gain
from outpace.records.trial import Settings, Trial
from outpace.remedies.catalog import setup_of
from outpace.seams.setup import AS_IS
from outpace.tune.data_plan import Rival
from outpace.tune.propose import candidates
from outpace.tune.trials import Trials, _why, in_own_processes, keeps_samples
from tests.remedies.some_evidence import FIXED_IMAGES, IMAGES


def accepted(name: str, settings: Settings | None = None) -> Trial:
    gain = Gain(2.0, 1.5, 2.5, "measured")
    return Trial(name, settings or {}, "numerics", gain, gain, True, "measured 2.00x [1.50, 2.50]")


def of(speedup: float) -> list[tuple[float, float, float, float]]:
    """Rounds of an arm."""
    return [(1.0, share / speedup, 1.0, share / speedup) for share in (0.96, 1.0, 1.04) * 4]


@pytest.mark.parametrize(
    ("name", "settings", "wanted"),
    [
        ("cache_decoded", {"limit_mib": 64}, True),
        ("cache_samples", {"limit_mib": 64}, True),
        ("slice_batches", {}, False),
        ("decode_jpeg", {}, False),
    ],
)
def test_what_gives_more_once_data_are_met_again(
    name: str, settings: Settings, wanted: bool
) -> None:
    assert keeps_samples(accepted(name, settings)) is wanted


@pytest.mark.parametrize(
    ("speedup", "rounds", "why"),
    [
        (1.5, 12, ""),
        (1.5, 3, ""),
        (1.02, 12, "the whole recipe no faster: 1.02x [0.9"),
        (1.02, 3, ""),
        (1.0, 3, "the whole recipe no faster: 1.00x"),
        (0.4, 12, "the whole recipe slower afterwards: 0.40x"),
    ],
)
def test_a_recipe_that_measured_no_faster_is_none(speedup: float, rounds: int, why: str) -> None:
    """Though each of its remedies was faster when it was tried."""
    trials = Trials.__new__(Trials)
    trials.unfinished = {}
    trials.time_s, trials.begun = 60.0, 0.0
    slower = Trial("bf16", {}, "numerics", Gain(1, 1, 1), Gain(0.5, 0.4, 0.6), False, "slower")
    trials.trials, trials.final = [accepted("fused_optimizer"), slower], {}
    trials.evidence = IMAGES
    for contest in trials.compare():
        contest.pairs["recipe"] = of(speedup)[:rounds]
    assert [t.accepted for t in trials.trials] == [not why, False]
    assert bool(trials.final) == (not why)
    assert why in trials.trials[0].reason
    assert trials.trials[1].reason == "slower"


@pytest.mark.parametrize(("epochs", "kept"), [(2, False), (50, True)])
def test_a_cache_that_the_run_is_too_short_for_is_taken_back(epochs: int, kept: bool) -> None:
    """Its first epoch draws all samples, and without the script's workers."""
    trials = Trials.__new__(Trials)
    trials.unfinished = {}
    trials.time_s, trials.begun, trials.final = 60.0, 0.0, {}
    cache = accepted("cache_samples", {"limit_mib": 64})
    trials.trials = [cache, accepted("fused_optimizer")]
    data = msgspec.structs.replace(IMAGES.input, epochs=epochs)
    trials.evidence = msgspec.structs.replace(IMAGES, input=data)
    for contest in trials.compare():
        has_cache = "cold" in contest.arms
        contest.pairs["recipe"] = of(2.4 if has_cache else 1.1)
        if has_cache:
            contest.pairs["cold"] = of(0.23)
    assert [t.accepted for t in trials.trials] == [kept, True]
    measured = trials.final["recipe"]["gain"]["speedup"]
    assert measured == pytest.approx(2.4 if kept else 1.1, rel=0.01)
    if not kept:
        assert "and the whole run no faster: 0." in trials.trials[0].reason


@pytest.mark.parametrize(("speedup", "outlasts"), [(1.02, False), (1.2, True)])
def test_compiling_is_to_be_won_back(speedup: float, outlasts: bool) -> None:
    """Half a minute, of a run of ten."""
    trials = Trials.__new__(Trials)
    trials.unfinished = {}
    trials.evidence = IMAGES
    assert trials.outlasts_compiling(Gain(speedup, speedup, speedup)) is outlasts


@pytest.mark.parametrize(("step_s", "least", "most"), [(0.1, 8.0, 8.0), (4.0, 112.0, 240.0)])
def test_a_trial_of_slow_steps_is_as_long_as_they_need(
    step_s: float, least: float, most: float
) -> None:
    trials = Trials.__new__(Trials)
    trials.unfinished = {}
    trials.trials, trials.time_s, trials.begun = [], 3600.0, perf_counter()
    steps = msgspec.structs.replace(IMAGES.steps, mean_s=step_s)
    trials.evidence = msgspec.structs.replace(IMAGES, steps=steps)
    (candidate,) = [c for c in candidates(IMAGES) if c.remedy.name == "bf16"][:1]
    contest = next(trials.attempt(candidate, Gain(1.5, 1.4, 1.6)))
    assert least <= contest.seconds <= most


@pytest.mark.parametrize(("speedup", "taken"), [(1.4, True), (1.0, False), (0.7, False)])
def test_another_way_to_feed_the_steps_takes_the_place_of_the_accepted_one(
    speedup: float, taken: bool
) -> None:
    """Only where it is measured faster: by its prediction it is as good, and more is not known."""
    data = msgspec.structs.replace(FIXED_IMAGES.input, deterministic=True, epochs=1)
    trials = Trials.__new__(Trials)
    trials.unfinished = {}
    trials.evidence = msgspec.structs.replace(FIXED_IMAGES, input=data)
    trials.time_s, trials.begun = 60.0, perf_counter()
    found = {c.remedy.name: c for c in reversed(candidates(trials.evidence))}
    decode, threads, ahead = (
        found[name].trial(Gain(2, 2, 2), Gain(2, 2, 2), True, "measured 2.00x")
        for name in ("decode_jpeg", "fetch_threads", "prefetch")
    )
    trials.trials = [decode, threads]
    trials.remaining = [found["prefetch"]]
    recipe = setup_of(_pairs(decode, ahead))
    rival = Rival(found["prefetch"], ("fetch_threads",), recipe, 1.01)
    for contest in trials.try_instead(rival):
        assert list(contest.arms) == ["accepted", "prefetch"]
        assert contest.name == "trying prefetch in place of fetch_threads"
        contest.pairs["prefetch"] = of(speedup)
    assert [t.accepted for t in trials.trials] == [True, not taken, taken]
    assert trials.trials[2].reason.endswith(", in place of fetch_threads")
    assert trials.recipe() == (recipe if taken else setup_of(_pairs(decode, threads)))
    assert trials.remaining == [], "it is not tried again"
    rivals = trials.trials[2]
    assert rivals.measured is not None
    if taken:
        assert rivals.reason.startswith("measured 1.40x"), "over what it took the place of"
        assert rivals.measured.speedup == pytest.approx(2 * 1.4, rel=0.01)
        assert rivals.measured.how == "predicted"
    else:
        assert rivals.measured.speedup == pytest.approx(speedup, rel=0.01)


def _pairs(*trials: Trial) -> list[tuple[str, Settings]]:
    return [(t.remedy, t.settings) for t in trials]


@pytest.mark.parametrize("same", [True, False])
def test_a_trial_that_the_script_ended_in_goes_on_in_its_next_run(same: bool) -> None:
    """With the rounds that it had, where it compares the same."""
    trials = Trials.__new__(Trials)
    trials.evidence = IMAGES
    arms = {"accepted": AS_IS, "bf16": replace(AS_IS, autocast="bfloat16")}
    rounds = [[1.0, 0.5, 1.0, 0.5]] * 4  # lists, as a file has them
    base = repr(arms if same else {"accepted": AS_IS})
    spare = {"bf16": [40.0, 10]}
    trials.unfinished = {"of": base, "pairs": {"bf16": rounds}, "spare": spare, "spent": 3.0}
    contest = trials.contest(arms, 8.0, "trying bf16")
    assert (contest.rounds, contest.spent) == ((4, 3.0) if same else (0, 0.0))
    if same:
        assert contest.slower("bf16") == pytest.approx(40 / 30)
        assert contest.gain("bf16").speedup == pytest.approx(2.0 * 30 / 40)
        assert trials.contest(arms, 8.0, "trying bf16").rounds == 0, "no round counts twice"
    else:
        assert trials.unfinished, "it is kept for what it is of"


def test_arms_of_several_decoders_have_workers_of_their_own() -> None:
    workers = msgspec.structs.replace(IMAGES.input, workers=3, prefetch_factor=4)
    evidence = msgspec.structs.replace(IMAGES, input=workers)
    arms = {"accepted": AS_IS, "decode_jpeg": replace(AS_IS, decoder="simplejpeg")}
    one, other = (setup.feed for setup in in_own_processes(evidence, arms).values())
    assert one != other
    assert {feed.executor for feed in (one, other)} == {"processes"}
    assert (one.workers, one.prefetch) == (other.workers, other.prefetch) == (3, 4)
    assert in_own_processes(IMAGES, arms) == arms
    alike = {"accepted": AS_IS, "bf16": replace(AS_IS, autocast="bfloat16")}
    assert in_own_processes(evidence, alike) == alike
    ahead = replace(AS_IS.feed, executor="ahead")
    threads = {name: replace(setup, feed=ahead) for name, setup in arms.items()}
    assert in_own_processes(evidence, threads) == threads


@pytest.mark.parametrize(
    ("gain", "why"),
    [
        (Gain(0.38, 0.02, 50.0, "measured"), "too few steps to tell: 0.38x [0.02, 50.00]"),
        (Gain(1.09, 0.96, 1.18, "measured"), "not clearly faster: 1.09x [0.96, 1.18]"),
        (Gain(0.9, 0.8, 0.998, "measured"), "measured slower: 0.900x [0.800, 0.998]"),
        (None, "could not be measured: too few steps"),
    ],
)
def test_why_a_remedy_is_not_taken(gain: Gain | None, why: str) -> None:
    assert _why(gain, False) == why
