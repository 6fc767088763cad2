"""Which remedies of the data go together: by the whole run, its first epoch in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.records.evidence import Evidence
from outpace.records.finding import Keeps
from outpace.records.gain import Gain
from outpace.records.trial import Trial
from outpace.remedies.base import Remedy
from outpace.remedies.catalog import setup_of
from outpace.remedies.model import step_time
from outpace.seams.setup import AS_IS, Setup
from outpace.tune.candidate import Candidate
from outpace.tune.data_plan import (
    EXACT_IS_WORTH,
    NEAR,
    SMALLEST,
    Rival,
    about_data,
    best_together,
    cold,
    nearest_rival,
    paid_price,
    price_of,
    run_speedup,
    run_step,
    ways,
)
from outpace.tune.propose import best, candidates, in_steps
from tests.remedies.some_evidence import ALL, FIXED_IMAGES, IMAGES, ROWS, WORKERS

replace = msgspec.structs.replace
SLOW_DISK = replace(
    ROWS,
    steps=replace(ROWS.steps, mean_s=0.51, cpu_s=0.03),
    input=replace(
        ROWS.input,
        batch_size=64,
        wait_s=0.5,
        fetch_s=0.5,
        fetch_cpu_s=0.02,
        storage_s=0.48,
        collate_s=0.001,
        sliceable=False,
        slice_s=None,
        cached_s=0.001,
    ),
    arms=(),
    memory=IMAGES.memory,
    compute=replace(ROWS.compute, forward_s=0.004, backward_s=0.005, optimizer_s=0.001),
)
"""samples that wait for a disk for half a second a batch, and a step of some ms"""


def of_epochs(evidence: Evidence, epochs: int | None) -> Evidence:
    return replace(evidence, input=replace(evidence.input, epochs=epochs))


def of_data(evidence: Evidence) -> list[Candidate]:
    return [c for c in candidates(evidence) if about_data(c) and in_steps(c)]


def accepted(evidence: Evidence, *names: str) -> list[Trial]:
    gain = Gain(2.0, 1.9, 2.1, "measured")
    found = {c.remedy.name: c for c in reversed(candidates(evidence))}
    return [found[name].trial(gain, gain, True, "measured") for name in names]


def names(members: Iterable[Candidate]) -> list[str]:
    return [each.remedy.name for each in members]


@pytest.mark.parametrize(
    ("epochs", "first"), [(2, "fetch_threads"), (3, "fetch_threads"), (2000, "cache_samples")]
)
def test_a_short_run_over_a_slow_disk_is_given_threads_and_no_cache(
    epochs: int, first: str
) -> None:
    """A cache is the faster steady step, and in two epochs spares one of them."""
    facts = of_epochs(SLOW_DISK, epochs)
    found = best(facts, of_data(facts), AS_IS, redraw=True)
    assert found is not None
    assert found[0].remedy.name == first
    by_steps = {c.remedy.name: c.predict(facts).speedup for c in of_data(facts)}
    assert by_steps["cache_samples"] > by_steps["fetch_threads"] > 5


def test_on_top_of_threads_no_cache_is_tried_that_loses_by_its_first_epoch() -> None:
    facts = of_epochs(SLOW_DISK, 2)
    options = of_data(facts)
    threads = next(c for c in options if c.remedy.name == "fetch_threads")
    left = [c for c in options if c.remedy.name != "fetch_threads"]
    assert best(facts, left, threads.on(AS_IS), redraw=True) is None


@given(st.sampled_from([IMAGES, FIXED_IMAGES, SLOW_DISK]), st.integers(1, 500))
def test_a_step_in_the_mean_lies_between_the_first_epochs_and_later_ones(
    evidence: Evidence, epochs: int
) -> None:
    facts = of_epochs(evidence, epochs)
    for setup in ways(of_data(evidence), AS_IS):
        first, steady = (step_time(facts, each).seconds for each in (cold(setup), setup))
        mean = run_step(facts, setup)
        if cold(setup) == setup:
            assert mean == steady
        else:
            assert min(first, steady) - 1e-12 <= mean
        if epochs == 1:
            assert mean >= first - 1e-12
    assert run_speedup(facts, AS_IS, AS_IS) == 1.0


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_way_is_reached_by_as_few_as_lead_to_it(name: str) -> None:
    found = ways(of_data(ALL[name]), AS_IS)
    assert found[AS_IS] == ()
    for setup, members in found.items():
        assert setup_of((c.remedy.name, c.settings) for c in members) == setup
        assert len(set(names(members))) == len(members)
        for fewer in itertools.combinations(members, len(members) - 1) if members else ():
            assert setup_of((c.remedy.name, c.settings) for c in fewer) != setup


@pytest.mark.parametrize("name", sorted(ALL))
def test_no_combination_is_cheaper_than_the_best(name: str) -> None:
    """By brute force over one setting, or none, of each remedy."""
    evidence = ALL[name]
    by_name: dict[str, list[Candidate | None]] = {}
    for each in sorted(of_data(evidence), key=lambda c: (c.remedy.stage, c.remedy.name)):
        by_name.setdefault(each.remedy.name, [None]).append(each)

    def cost(members: Iterable[Candidate]) -> float:
        chosen = list(members)
        setup = setup_of((c.remedy.name, c.settings) for c in chosen)
        price = price_of(evidence, [(c.remedy, c.keeps) for c in chosen])
        return price * SMALLEST ** len(chosen) * run_step(evidence, setup)

    found = cost(best_together(evidence, of_data(evidence), AS_IS))
    for combination in itertools.product(*by_name.values()):
        assert found <= cost(c for c in combination if c is not None) * (1 + 1e-9)


def test_only_what_the_model_tells_of_is_planned() -> None:
    about = {c.remedy.name for facts in ALL.values() for c in candidates(facts) if about_data(c)}
    assert about == {
        "slice_batches",
        "cache_samples",
        "cache_decoded",
        "decode_jpeg",
        "decode_scaled",
        "loader_workers",
        "prefetch",
        "fetch_threads",
    }


def test_a_way_that_is_predicted_nearly_as_good_is_a_rival() -> None:
    facts = WORKERS
    trials = accepted(facts, "fetch_threads")
    recipe = setup_of((t.remedy, t.settings) for t in trials)
    rival = nearest_rival(facts, trials, of_data(facts))
    costs = {
        names(members)[0]: run_step(facts, setup)
        for setup, members in ways(of_data(facts), AS_IS).items()
        if len(members) == 1
    }
    near = {n for n, s in costs.items() if s <= NEAR * run_step(facts, recipe)} - {"fetch_threads"}
    assert (rival is None) == (not near)
    if rival is not None:
        assert rival.candidate.remedy.name in near
        assert rival.instead_of == ("fetch_threads",)


def test_a_rival_far_behind_or_tried_already_is_none() -> None:
    trials = accepted(SLOW_DISK, "fetch_threads")
    slow = [c for c in of_data(SLOW_DISK) if c.remedy.name == "prefetch"]
    assert slow
    assert nearest_rival(SLOW_DISK, trials, slow) is None
    again = [c for c in of_data(SLOW_DISK) if c.remedy.name == "fetch_threads"]
    assert nearest_rival(SLOW_DISK, trials, again) is None
    assert nearest_rival(SLOW_DISK, [], of_data(SLOW_DISK)) is None


@pytest.mark.parametrize(
    ("measured", "wanted", "pays"),
    [
        (Gain(1.2, 1.1, 1.3), 1.01, True),
        (Gain(1.2, 0.9, 1.5), 1.01, False),
        (Gain(1.2, 1.1, 1.3), 1.3, False),
        (Gain(1.4, 1.2, 1.6), 1.3, True),
    ],
)
def test_a_rival_is_to_be_clearly_faster_and_by_what_its_changes_are_worth(
    measured: Gain, wanted: float, pays: bool
) -> None:
    setup = next(c for c in of_data(SLOW_DISK) if c.remedy.name == "prefetch").on(AS_IS)
    candidate = of_data(SLOW_DISK)[0]
    assert Rival(candidate, ("prefetch",), setup, wanted).pays(SLOW_DISK, AS_IS, measured) is pays


def test_a_cache_as_a_rival_is_to_pay_in_the_whole_run() -> None:
    """A steady step is twice as fast, and the first of two epochs ten times as slow."""
    trials = accepted(SLOW_DISK, "fetch_threads")
    recipe = setup_of((t.remedy, t.settings) for t in trials)
    cache = next(c for c in of_data(SLOW_DISK) if c.remedy.name == "cache_samples")
    rival = Rival(cache, ("fetch_threads",), cache.on(AS_IS), 1.01)
    twice = Gain(2.0, 1.9, 2.1, "measured")
    assert not rival.pays(of_epochs(SLOW_DISK, 2), recipe, twice)
    assert rival.pays(of_epochs(SLOW_DISK, 2000), recipe, twice)


def test_what_other_random_numbers_and_other_sums_are_worth() -> None:
    class Redraws(Remedy):
        name = "redraws"
        treats = ()
        keeps: Keeps = "exact"

        def applies(self, evidence: Evidence) -> object:  # type: ignore[override]
            return None

        def redraws(self, evidence: Evidence) -> bool:
            return True

    plain = of_data(ROWS)[0].remedy
    assert price_of(ROWS, []) == 1.0
    assert price_of(ROWS, [(plain, "exact")]) == 1.0
    assert price_of(ROWS, [(plain, "numerics")]) == 1.3
    assert price_of(ROWS, [(plain, "numerics"), (Redraws(), "numerics")]) == 2.0


def test_what_was_taken_at_last_gives_its_rivals_no_more_room_than_it_gained() -> None:
    """Though other sums, or random numbers, would have had to give more before."""
    gains = [Gain(gain, gain, gain, "measured") for gain in (1.2, 3.0)]
    trials = [Trial("bf16", {}, "numerics", gain, gain, True, "measured") for gain in gains]
    assert [paid_price(ROWS, [trial]) for trial in trials] == [1.2, EXACT_IS_WORTH]
    assert paid_price(ROWS, []) == 1.0


def test_ways_start_from_what_is_accepted() -> None:
    base: Setup = next(c for c in of_data(IMAGES) if c.remedy.name == "decode_jpeg").on(AS_IS)
    found = ways([c for c in of_data(IMAGES) if c.remedy.name != "decode_jpeg"], base)
    assert all(setup.decoder == "simplejpeg" for setup in found)
    assert best_together(IMAGES, [], base) == ()


@pytest.mark.parametrize(("seconds", "keeps"), [(0.72, "exact"), (0.5, "numerics")])
def test_of_ways_that_are_as_good_the_one_that_keeps_the_bits(
    seconds: float, keeps: Keeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It needs no proof; one that is surely faster, for all its price, goes first."""
    found = of_data(FIXED_IMAGES)
    exact = next(c for c in found if c.keeps == "exact")
    other = next(c for c in found if c.keeps != "exact" and not c.remedy.redraws(FIXED_IMAGES))
    times = {exact.on(AS_IS): 1.0, other.on(AS_IS): seconds, AS_IS: 3.0}
    monkeypatch.setattr(
        "outpace.tune.data_plan.run_step", lambda evidence, setup: times.get(setup, 9.0)
    )
    chosen = best_together(FIXED_IMAGES, found, AS_IS)
    assert [each.keeps for each in chosen] == [keeps]
