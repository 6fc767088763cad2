"""When a training ends, by what was measured of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.errors import UsageError
from outpace.plan.budget import budget
from outpace.plan.epochs import notes
from outpace.plan.forecast import LEAST_S, RUN_TO_RUN, finish, options, steps_of, terms
from outpace.plan.question import Question, answer
from outpace.records.evidence import Evidence, Overhead
from outpace.records.gain import Gain
from outpace.records.ledger import Row
from outpace.records.plan import Forecast, Plan
from outpace.records.run import Recurring
from outpace.report.plan import about, mark, money, script_lines
from tests.remedies.some_evidence import IMAGES
from tests.report.report_sessions import images_diagnosed

replace = msgspec.structs.replace
LEDGER = (
    Row("startup", 100.0, 0.1),
    Row("backward", 800.0, 0.8),
    Row("validation", 100.0, 0.1),
)


def seen(*, count: int, total: int | None, finished: bool = False) -> Evidence:
    run = replace(IMAGES.run, total_steps=total, finished=finished)
    return replace(IMAGES, run=run, steps=replace(IMAGES.steps, count=count), ledger=LEDGER)


def test_the_whole_run_is_what_its_ledger_says() -> None:
    found = finish(seen(count=50, total=1000))
    assert found.estimate == pytest.approx(1000.0)
    assert found.low < found.estimate < found.high
    assert found.low > 100.0


def test_other_steps_take_as_much_each() -> None:
    """Start-up is paid once, validation with the steps."""
    assert finish(seen(count=50, total=1000), 500).estimate == pytest.approx(100 + 450)
    assert finish(seen(count=100, total=None), 1000).estimate == pytest.approx(100 + 9000)
    ended = seen(count=10, total=None, finished=True)
    assert finish(ended).estimate == pytest.approx(1000.0)
    assert finish(ended, 20).estimate == pytest.approx(100 + 1800)


@pytest.mark.parametrize("steps", [100, 400, 1000, 3000])
def test_steps_that_take_longer_and_longer_take_more_than_as_many_as_were_seen(steps: int) -> None:
    """A second each, 20 ms more with each step; looked at were the first hundred, of a thousand."""
    slope, looked_at, told = 0.02, 49.5, 1000
    alike = 1.0 + slope * looked_at
    grown = slope * ((told - 1) / 2 - looked_at) * told
    run = replace(
        IMAGES.run, total_steps=told, finished=False, slope_s=slope, grown_s=grown, starts_s=0.0
    )
    rows = (Row("forward", alike * told, 0.1), Row("elsewhere", grown, 0.9))
    facts = replace(IMAGES, run=run, steps=replace(IMAGES.steps, count=100), ledger=rows)
    truth = sum(1.0 + slope * step for step in range(steps))
    assert finish(facts, steps).estimate == pytest.approx(truth)
    assert finish(facts).estimate == pytest.approx(sum(row.seconds for row in rows))
    assert all(seconds > 0 for seconds in terms(facts, steps).values())
    assert terms(facts, steps).get("elsewhere", 0.0) == pytest.approx(
        max(0.0, truth - alike * steps)
    )


def test_what_watching_surely_costs_is_left_out() -> None:
    watched = replace(
        seen(count=50, total=1000), overhead=Overhead(1.25, 1.2, step_low=1.1, step_high=1.4)
    )
    assert finish(watched).estimate == pytest.approx(100 + 900 / 1.25)
    unsure = replace(watched, overhead=Overhead(1.25, 1.2, step_low=0.9, step_high=1.6))
    assert finish(unsure).estimate == pytest.approx(1000.0)


def test_what_comes_now_and_then_comes_as_often_as_its_steps_say() -> None:
    """An epoch of 100 steps begins in 2 s and ends in 10 s of validation; 150 steps were seen."""
    came = (
        Recurring("input", 2.0, 2, 0, 100.0, leads=True),
        Recurring("validation", 10.0, 1, 100, 100.0),
    )
    evidence = seen(count=150, total=None)
    rows = (Row("startup", 50.0, 0.2), Row("backward", 150.0, 0.7), Row("input", 4.0, 0.0))
    evidence = replace(
        evidence,
        ledger=(*rows, Row("validation", 10.0, 0.1)),
        run=replace(evidence.run, recurring=came),
    )
    assert finish(evidence, 1000).estimate == pytest.approx(50 + 1000 + 10 * 2 + 10 * 10)
    known = (*rows[:2], Row("input", 20.0, 0.0), Row("validation", 100.0, 0.1))
    known = (known[0], Row("backward", 1000.0, 0.7), *known[2:])
    run = replace(evidence.run, total_steps=1000)
    whole = replace(evidence, ledger=known, run=run)
    assert finish(whole).estimate == pytest.approx(50 + 1000 + 10 * 2 + 10 * 10)
    assert finish(whole, 300).estimate == pytest.approx(50 + 300 + 3 * 2 + 3 * 10)


def test_what_came_once_may_come_no_more() -> None:
    came = Recurring("checkpoint", 3.0, 1, 0, 50.0, sure=False)
    evidence = seen(count=50, total=None)
    ledger = (Row("backward", 50.0, 0.9), Row("checkpoint", 3.0, 0.1))
    evidence = replace(evidence, ledger=ledger, run=replace(evidence.run, recurring=(came,)))
    found = finish(evidence, 1000)
    assert found.estimate == pytest.approx(1000 + 21 * 3)
    assert found.low == pytest.approx(1003 / RUN_TO_RUN)
    (said, *_) = notes(evidence, 1000)
    assert said == (
        "one checkpoint was seen, after 0 steps: with one every 50 steps 1m of that are for those "
        "to come"
    )


def test_a_length_that_is_said() -> None:
    evidence = replace(IMAGES, input=replace(IMAGES.input, batches=50))
    evidence = replace(evidence, steps=replace(evidence.steps, batch_size=64, micro_steps=2))
    assert steps_of(evidence, None, None, None) is None
    assert steps_of(evidence, 7, None, None) == 7
    assert steps_of(evidence, None, 3, None) == 75
    assert steps_of(evidence, None, None, 640) == 5
    assert steps_of(replace(evidence, world=2), None, None, 2560) == 10
    with pytest.raises(UsageError, match="steps an epoch has"):
        steps_of(replace(evidence, input=replace(IMAGES.input, batches=None)), None, 3, None)


def test_a_length_that_nothing_tells() -> None:
    with pytest.raises(UsageError, match="could not be found"):
        finish(seen(count=50, total=None))
    with pytest.raises(UsageError, match="no step"):
        finish(seen(count=0, total=None), 100)


def test_what_would_make_it_fit() -> None:
    session = images_diagnosed()
    seconds = finish(session.evidence)
    found = options(session.evidence, session.findings, seconds, 0.5 * seconds.estimate, 6.0)
    hours = [option.hours.estimate for option in found]
    assert hours == sorted(hours)
    fewer = next(option for option in found if option.change.endswith(" % of the steps"))
    # Start-up is there in full, so that half of the time is less than half of the steps.
    assert int(fewer.change.split()[0]) < 50
    assert fewer.hours.estimate == pytest.approx(seconds.estimate / 7200)
    assert fewer.usd is not None
    assert fewer.usd.estimate == pytest.approx(6 * fewer.hours.estimate)
    names = {advice.name for finding in session.findings for advice in finding.remedies}
    assert names & {option.change for option in found}
    assert {option.how for option in found if option.change in names} == {"predicted"}
    at_ease = options(session.evidence, session.findings, seconds, 9 * seconds.estimate, None)
    assert all(option.keeps != "learning" or "% of" not in option.change for option in at_ease)
    assert all(option.usd is None for option in at_ease if option.how != "not measured")


def test_where_start_up_takes_all_the_time_no_fewer_steps_help() -> None:
    evidence = seen(count=50, total=1000)
    found = options(evidence, (), finish(evidence), 90.0, None)
    assert not [option for option in found if option.change.endswith(" % of the steps")]
    found = options(evidence, (), finish(evidence), 550.0, None)
    assert [option.change for option in found if option.change.endswith(" % of the steps")] == [
        "50 % of the steps"
    ]


@given(st.floats(1.0, 1e6), st.floats(1e-6, 0.999))
def test_what_is_made_to_fit_fits(whole: float, part: float) -> None:
    """In words too, to the last bit, and never by rounding up; with the time to fill it is no gain."""
    evidence = seen(count=50, total=1000)
    evidence = replace(evidence, ledger=tuple(replace(r, seconds=whole * r.share) for r in LEDGER))
    seconds, available = finish(evidence), whole * (0.1 + 0.9 * part)
    asked = Question(time=budget(available, {}))
    found = options(evidence, (), seconds, available, None)
    for option in (o for o in found if o.change.endswith(" % of the steps")):
        percent = float(option.change.split()[0])
        assert 0.9 * 100 * part * (part < 0.01) <= percent <= 100 * part * (1 + 1e-9)
        assert mark(asked, option) == "fits     "
    scaled = options(evidence, (), seconds, available, None, "scale")
    assert not [option for option in scaled if option.change.endswith(" % of the steps")]


def in_words(asked: Question) -> tuple[Plan, list[str]]:
    session = images_diagnosed()
    plan, _ = answer(asked, session)
    return plan, list(script_lines(asked, plan, session.target.name))


def test_in_words() -> None:
    half = finish(images_diagnosed().evidence).estimate / 2
    plan, lines = in_words(Question(time=budget(half + 60, {"deploy": 60.0})))
    assert plan.forecast
    assert not plan.forecast.fits
    assert "less deploy 1m" in lines[0]
    assert "which does not fit" in lines[1]
    hourly = Question(cost=0.001, usd_per_hour=9.0, time=budget(1e6, {}))
    plan, lines = in_words(hourly)
    assert plan.forecast
    assert not plan.forecast.fits
    assert "which fits; $" in lines[1]
    assert lines[1].endswith(", more than $0.0010")
    assert plan.forecast.cost == 0.001
    assert plan.forecast.usd is not None
    assert plan.forecast.usd.estimate == 9.0 * plan.forecast.finish_s.estimate / 3600
    plan, lines = in_words(Question())
    assert plan.forecast
    assert plan.forecast.fits
    assert not plan.budget
    assert lines[0].startswith(images_diagnosed().target.name)


def test_a_remedy_speeds_up_the_steps_alone() -> None:
    """A tenth before the first step and a tenth of validation stay: 16x makes 1000 s no less than 250."""
    session = images_diagnosed()
    evidence = seen(count=50, total=1000)
    advice = session.findings[0].remedies[0]
    quick = replace(advice, predicted=Gain(16.0, 16.0, 16.0, "predicted"))
    finding = replace(session.findings[0], remedies=(quick,))
    found = options(evidence, (finding,), finish(evidence), None, None)
    assert found[0].hours.estimate * 3600 == pytest.approx(200 + 800 / 16)


@pytest.mark.parametrize(
    ("gain_of", "seconds"),
    [("steps", 200 + 800 / 2), ("epochs", 100 + 900 / 2), ("run", 1000 / 2)],
)
def test_a_remedy_leaves_as_it_is_what_its_gain_is_not_of(gain_of: Any, seconds: float) -> None:
    session = images_diagnosed()
    evidence = seen(count=50, total=1000)
    advice = replace(
        session.findings[0].remedies[0],
        predicted=Gain(2.0, 2.0, 2.0, "predicted"),
        gain_of=gain_of,
    )
    finding = replace(session.findings[0], remedies=(advice,))
    found = options(evidence, (finding,), finish(evidence), None, None)
    assert found[0].hours.estimate * 3600 == pytest.approx(seconds)


@pytest.mark.parametrize(("steps", "saved"), [(10_000, 1500 / 6), (100, 15 / 6), (10, 1.5 / 6)])
def test_a_gain_of_the_run_that_was_seen_is_restated_for_another_length(
    steps: int, saved: float
) -> None:
    """Half of a third of the validations is saved, which come with the steps; start-up stays."""
    ledger = (
        Row("startup", 30.0, 0.5),
        Row("backward", 15.0, 0.25),
        Row("validation", 15.0, 0.25),
    )
    evidence = replace(seen(count=100, total=100), ledger=ledger)
    gain = Gain(1 / (1 - 2.5 / 60), 1.0, 1 / (1 - 2.5 / 60), "predicted")
    session = images_diagnosed()
    advice = replace(session.findings[0].remedies[0], predicted=gain, gain_of="run")
    finding = replace(session.findings[0], remedies=(advice,))
    found = options(evidence, (finding,), finish(evidence, steps), None, None, steps=steps)
    before = finish(evidence, steps)
    assert before.estimate == pytest.approx(30 + 0.3 * steps)
    assert found[0].hours.estimate * 3600 == pytest.approx(before.estimate - saved)


def test_epochs_starts_are_no_part_of_the_steps() -> None:
    """Half of the run: twice as fast steps leave three quarters of it."""
    session = images_diagnosed()
    rows = (Row("input", 60.0, 0.6), Row("backward", 40.0, 0.4))
    evidence = replace(seen(count=50, total=1000), ledger=rows)
    start = Recurring("input", 5.0, 1, 0, 100.0, leads=True)
    for came in ((), (start,)):
        run = replace(evidence.run, starts_s=50.0, recurring=came)
        found = replace(evidence, run=run)
        gain = replace(session.findings[0].remedies[0], predicted=Gain(2.0, 2.0, 2.0, "predicted"))
        finding = replace(session.findings[0], remedies=(gain,))
        told = options(found, (finding,), finish(found), None, None)
        assert told[0].hours.estimate * 3600 == pytest.approx(75.0)


def recurring(name: str) -> st.SearchStrategy[Recurring]:
    return st.builds(
        Recurring,
        st.just(name),
        st.floats(0.0, 100.0),
        st.integers(1, 20),
        st.integers(0, 200),
        st.none() | st.floats(1.0, 500.0),
        leads=st.booleans(),
    )


@given(
    st.lists(st.floats(0.0, 1e5), min_size=6, max_size=6),
    st.lists(st.sampled_from(("input", "validation", "checkpoint")).flatmap(recurring), max_size=3),
    st.floats(0.0, 1.0),
    st.booleans(),
    st.integers(1, 100_000),
)
def test_the_terms_add_up(
    seconds: list[float], came: list[Recurring], starts: float, mingled: bool, steps: int
) -> None:
    names = ("startup", "input", "backward", "validation", "checkpoint", "ending")
    evidence = seen(count=50, total=None)
    run = replace(evidence.run, recurring=tuple(came), starts_s=starts * seconds[1])
    evidence = replace(
        evidence,
        ledger=tuple(Row(name, s, 0.0) for name, s in zip(names, seconds, strict=True)),
        run=replace(run, validation_s=3.0),
        steps=replace(evidence.steps, mingled=mingled),
    )
    found = terms(evidence, steps)
    assert sum(found.values()) == pytest.approx(finish(evidence, steps).estimate)
    assert ("startup" in found) == (seconds[0] > LEAST_S)


def test_what_the_estimate_is_the_sum_of() -> None:
    session = images_diagnosed()
    rows = (Row("startup", 4.0, 0.0), Row("backward", 382.0, 0.9), Row("validation", 20.0, 0.05))
    run = replace(session.evidence.run, total_steps=4700, recurring=())
    evidence = replace(session.evidence, ledger=rows, run=run, overhead=None)
    asked = Question()
    plan, _ = answer(asked, replace(session, evidence=evidence))
    assert plan.forecast
    assert plan.forecast.steps == 4700
    assert plan.forecast.steps_per_s == pytest.approx(4700 / 382)
    assert plan.forecast.terms == {"startup": 4.0, "steps": 382.0, "validation": 20.0}
    lines = list(
        script_lines(asked, replace(plan, forecast=replace(plan.forecast, notes=())), "train.py")
    )
    assert lines[1] == "4,700 steps at 12.3 a second: 6m22s; start-up 4s; validation 20s"


def test_another_training_before_it_is_told_and_counted() -> None:
    """A student's, whose teacher trained for ten minutes: ten minutes late, and not a word of it."""
    session = images_diagnosed()
    note = "nothing is told of the 10m before step 500, of another training"
    alone, _ = answer(Question(), session)
    run = replace(session.evidence.run, from_step=500, before_s=600.0)
    later = replace(session, evidence=replace(session.evidence, run=run), notes=(note,))
    plan, _ = answer(Question(), later)
    assert alone.forecast
    assert plan.forecast
    gained = plan.forecast.finish_s.estimate - alone.forecast.finish_s.estimate
    assert gained == pytest.approx(600.0)
    assert plan.forecast.finish_s.low - alone.forecast.finish_s.low == pytest.approx(600.0)
    lines = list(script_lines(Question(), plan, "train.py"))
    assert note in lines
    assert any("; all that came before it 10m" in line for line in lines)
    faster = {option.change: option.hours.estimate for option in alone.options or ()}
    for option in plan.options or ():
        assert 3600 * (option.hours.estimate - faster[option.change]) == pytest.approx(600.0)


def test_start_up_is_paid_once_however_much_training_fits() -> None:
    """In 2000 s 1900 s of steps, of which the script has 900."""
    evidence = seen(count=50, total=1000)
    slow = replace(images_diagnosed().findings[0].remedies[0], predicted=Gain(1 + 1e-9, 1.0, 1.0))
    finding = replace(images_diagnosed().findings[0], remedies=(slow,))
    found = options(evidence, (finding,), finish(evidence), 2000.0, None, "scale")
    assert found[-1].scale == pytest.approx(1900 / 900)
    asked = Question(objective="scale", time=budget(2000.0, {}))
    plan = Plan(forecast=Forecast(finish(evidence), True), options=found)
    assert "; 2.11x the steps in the time; keeps" in list(script_lines(asked, plan, "x"))[-2]
    assert options(evidence, (finding,), finish(evidence), 2000.0, None)[0].scale is None


@pytest.mark.parametrize(("available_s", "percent"), [(None, 50), (1e6, 50), (325.0, 25)])
def test_money_pays_for_a_part_of_the_steps_too(available_s: float | None, percent: int) -> None:
    """What is tighter: 550 s of this machine, or the time."""
    evidence = seen(count=50, total=1000)
    found = options(evidence, (), finish(evidence), available_s, 36.0, cost=5.5)
    fewer = [option for option in found if option.change.endswith(" % of the steps")]
    assert [option.change for option in fewer] == [f"{percent} % of the steps"]
    asked = Question(cost=5.5, usd_per_hour=36.0)
    assert mark(asked, fewer[0]) == "fits     "


def test_no_finer_than_could_be_known() -> None:
    told = [about(seconds) for seconds in (83.4, 3599.4, 3600 + 95, 47 * 3600 + 1799, 232_242)]
    assert told == ["1m23s", "59m59s", "1h2m", "47h30m", "65h"]


@pytest.mark.parametrize(
    ("seconds", "limit", "told"),
    [
        (10.3, 10.0, "11s"),
        (9.7, 9.9, "9s"),
        (86_420.0, 86_400.0, "24h20s"),
        (232_242.0, 232_800.0, "64h31m"),
        (232_242.0, 240_000.0, "65h"),
    ],
)
def test_what_is_late_is_not_rounded_to_what_fits(seconds: float, limit: float, told: str) -> None:
    """Nor the other way round."""
    assert about(seconds, limit) == told


def test_money_is_told_apart_from_its_limit() -> None:
    assert [money(200.4), money(200.4, 200.0), money(200.4, 300.0)] == ["$200", "$200.40", "$200"]


def test_a_device_that_is_asked_about() -> None:
    session = images_diagnosed()
    spent = replace(session.evidence.compute, flops=1e10, learnt_bytes=4_000_000)
    session = replace(session, evidence=replace(session.evidence, compute=spent))
    plan, _ = answer(Question(device="l40s", count=4, usd_per_hour=2.0), session)
    told = {option.change: option for option in plan.options or ()}
    there = told["on 4 L40S"]
    assert there.usd is not None
    assert there.usd.estimate == pytest.approx(4 * 1.861 * there.hours.estimate)
    assert "4 machines like this one, at 10 Gbit/s" in told
    assert "2 machines like this one, at 10 Gbit/s" not in told
    assert plan.forecast
    assert not any("nothing is told" in note for note in plan.forecast.notes)
    made = replace(session.evidence.input, workers=2, wait_s=session.evidence.steps.mean_s)
    fed = replace(session, evidence=replace(session.evidence, input=made))
    plan, _ = answer(Question(device="l40s"), fed)
    assert plan.forecast
    assert "L40S would end it no sooner" in plan.forecast.notes
    unknown = replace(session.evidence.compute, learnt_bytes=0)
    alone = replace(session, evidence=replace(session.evidence, compute=unknown))
    for name in ("l40s", "l4"):
        plan, _ = answer(Question(device=name, count=4), alone)
        assert plan.forecast
        (note,) = [note for note in plan.forecast.notes if name.upper() in note]
        assert note == f"nothing is told of 4 {name.upper()}: what they would exchange is not known"
    plan, _ = answer(Question(device="l40s", objective="cost", usd_per_hour=9.0), fed)
    assert [o.change for o in plan.options or () if "L40S" in o.change] == ["on one L40S"]
    full = replace(session.evidence, memory=replace(session.evidence.memory, peak_bytes=10**12))
    plan, _ = answer(Question(device="l40s"), replace(session, evidence=full))
    assert plan.forecast
    assert "nothing is told of L40S: it has no room for a step" in plan.forecast.notes


def test_what_is_told_at_validations_is_part_of_the_run() -> None:
    run = replace(IMAGES.run, told_s=3.0)
    ledger = (*IMAGES.ledger, Row("logging", 3.0, 0.0))
    with_figures = replace(IMAGES, run=run, ledger=ledger)
    more = finish(with_figures).estimate - finish(IMAGES).estimate
    assert more == pytest.approx(3.0)
