"""What is tried next: what keeps the bits, of the earliest stage, then what is predicted to pay most."""

from __future__ import annotations

import msgspec

from outpace.diagnose.bottlenecks import findings
from outpace.records.evidence import Evidence
from outpace.records.ledger import Row
from outpace.seams.setup import AS_IS
from outpace.tune.data_plan import EXACT_IS_WORTH, SMALLEST, WORTH_AT_LAST, WORTH_REDRAWING
from outpace.tune.propose import (
    best,
    candidates,
    in_steps,
    untried,
    with_advice,
)
from tests.remedies.some_evidence import FIXED_IMAGES, IMAGES, arm


def on_two_threads(deterministic: bool) -> Evidence:
    replace = msgspec.structs.replace
    return replace(
        IMAGES,
        compute=replace(IMAGES.compute, threads=2),
        input=replace(IMAGES.input, deterministic=deterministic),
        arms=(*IMAGES.arms, arm("threads_1", 1.0, 0.1)),
    )


def test_less_work_goes_first() -> None:
    found = best(IMAGES, candidates(IMAGES), AS_IS, redraw=True)
    assert found is not None
    assert (found[0].remedy.stage, found[0].keeps) == (0, "exact")


def test_what_keeps_the_bits_goes_first_whatever_its_stage() -> None:
    """So no exact remedy is measured on top of one that may leave for want of a proof."""
    facts = on_two_threads(deterministic=True)
    remaining, setup, order = [c for c in candidates(facts) if in_steps(c)], AS_IS, []
    while (found := best(facts, remaining, setup, redraw=True)) is not None:
        order.append((found[0].keeps != "exact", found[0].remedy.stage))
        setup = found[0].on(setup)
        remaining = [c for c in remaining if c.remedy.name != found[0].remedy.name]
    inexact = [each for each, _ in order]
    assert inexact == sorted(inexact)
    assert max(stage for no, stage in order if not no) > min(stage for no, stage in order if no)


def test_the_same_random_numbers_go_before_others() -> None:
    """Both overlaps change numbers; one deals the random samples differently."""
    facts = on_two_threads(deterministic=False)
    fewer = [
        c
        for c in candidates(facts, only=("prefetch", "fetch_threads"))
        if "compute_threads" in c.settings
    ]
    found = best(facts, fewer, AS_IS, redraw=True)
    assert found is not None
    assert found[0].remedy.name == "prefetch"


def test_a_remedy_is_tried_in_its_best_way() -> None:
    facts = on_two_threads(deterministic=True)
    options = candidates(facts, only=("prefetch",))
    assert {c.keeps for c in options} == {"exact", "numerics"}
    found = best(facts, options, AS_IS, redraw=True)
    assert found is not None
    gains = {c.keeps: c.predict(facts).speedup for c in options}
    exact_is_close = EXACT_IS_WORTH * gains["exact"] > gains["numerics"]
    assert found[0].keeps == ("exact" if exact_is_close else "numerics")


def test_nothing_that_is_there_already() -> None:
    options = candidates(IMAGES, only=("decode_jpeg",))
    assert best(IMAGES, options, options[0].on(AS_IS), redraw=True) is None


def test_what_was_asked_for_by_name_is_tried() -> None:
    """Though it deals out other random numbers, and promises less than those are worth."""
    facts = on_two_threads(deterministic=False)
    options = candidates(facts, only=("fetch_threads",))
    most = max(c.predict(facts).speedup for c in options)
    assert most < WORTH_REDRAWING
    assert best(facts, options, AS_IS, redraw=False) is None
    found = best(facts, options, AS_IS, asked=("fetch_threads",), redraw=False)
    assert found is not None
    assert found[1].speedup == most


def test_other_random_numbers_come_last() -> None:
    """So they can leave alone where they are not proven; not at all where there is no time to prove them."""
    facts = on_two_threads(deterministic=False)
    remaining, order = [c for c in candidates(facts) if in_steps(c)], []
    while (found := best(facts, remaining, AS_IS, redraw=True)) is not None:
        order.append(found[0].remedy.redraws(facts))
        assert found[1].speedup >= (WORTH_AT_LAST if order[-1] else SMALLEST)
        remaining.remove(found[0])
    assert order == sorted(order)
    assert set(order) == {False, True}
    assert best(facts, remaining, AS_IS, redraw=False) is None


def test_what_advice_keeps_is_said_of_the_settings_that_it_is_predicted_with() -> None:
    """Room made by fewer threads of the step sums in another order."""
    facts = on_two_threads(deterministic=True)
    told = {
        advice.name: advice
        for found in with_advice(facts, findings(facts))
        for advice in found.remedies
    }
    seen = 0
    for candidate in candidates(facts, only=("loader_workers", "prefetch")):
        name = candidate.remedy.name
        if name in told and candidate.settings == candidate.remedy.settings(facts):
            assert told[name].keeps == candidate.keeps
            seen += candidate.keeps == "numerics"
    assert seen, "nothing here shows the difference"


def test_what_was_measured_slower_is_not_advised_for_bandwidth() -> None:
    """Steps that move memory for 60 of 100 ms, and take twice as long in bf16."""
    replace = msgspec.structs.replace
    assert IMAGES.machine.ceilings is not None
    ceilings = replace(IMAGES.machine.ceilings, memory_bytes_s=20e9)
    facts = replace(
        IMAGES,
        machine=replace(IMAGES.machine, ceilings=ceilings),
        input=replace(IMAGES.input, wait_s=0.0),
        steps=replace(IMAGES.steps, mean_s=0.1, cpu_s=0.1),
        ledger=(Row("forward", 90.0, 0.9),),
        compute=replace(IMAGES.compute, moved_bytes=1.2e9),
        arms=(arm("bf16", 0.5, 0.2, "as_is"),),
    )
    told = with_advice(facts, findings(facts))
    (finding,) = (f for f in told if f.cause == "bandwidth")
    assert all(advice.predicted.speedup >= SMALLEST for advice in finding.remedies)


def test_memory_that_is_full_is_treated_by_slower_steps_too() -> None:
    told = with_advice(FIXED_IMAGES, findings(FIXED_IMAGES))
    (finding,) = (f for f in told if f.cause == "capacity")
    slower = {a.name for a in finding.remedies if a.predicted.speedup < SMALLEST}
    assert "checkpoint_activations" in slower


def test_what_there_was_no_time_for_is_told_once_each() -> None:
    """Of remedies that are tried within a process, and pay by their prediction."""
    found = untried(IMAGES, [], "the time was over")
    names = [trial.remedy for trial in found]
    assert names
    assert len(set(names)) == len(names)
    assert {c.remedy.name for c in candidates(IMAGES) if in_steps(c)} >= set(names)
    assert all(t.predicted.speedup >= SMALLEST and t.measured is None for t in found)
    assert {t.reason for t in found} == {"not tried: the time was over"}
    assert not any(trial.was_tried or trial.accepted for trial in found)
    left = untried(IMAGES, found[:1], "the time was over")
    assert names[0] not in [trial.remedy for trial in left]
    assert untried(IMAGES, [], "", only=("bf16",), skip=("bf16",)) == []
