"""The verdict and the sentences around it: what was found is told, and no more than that."""

from __future__ import annotations

from html import unescape
from typing import Any

import msgspec
import pytest

from outpace.records.compute import Compute
from outpace.records.finding import Advice
from outpace.records.gain import Gain
from outpace.records.session import Session
from outpace.records.trial import NOT_TRIED, TOO_SHORT, Proof, Trial
from outpace.report import sentences
from outpace.report.html import render_html
from outpace.report.sentences import (
    ceiling_sentence,
    gain_sentence,
    next_steps,
    proof_sentence,
    verdict,
)
from tests.report import report_sessions as made

replace = msgspec.structs.replace


def not_proven(trial: Trial) -> Trial:
    """As the proof leaves it."""
    reason = "left out: no proof that quality is kept (loss at most 3 % worse, margin 1 %)"
    return replace(trial, accepted=False, reason=reason) if trial.accepted else trial


def without_recipe(*trials: Trial) -> Session:
    changes: dict[str, Any] = {"speedup": None, "recipe": None, "recipe_record": None}
    return replace(made.images_tuned(), trials=trials, proof=Proof(True, False), **changes)


def test_faster_remedies_that_are_not_proven_are_told() -> None:
    said = verdict(without_recipe(*map(not_proven, made.IMAGES_TRIALS)))
    assert said.headline == "3 faster remedies were found, but quality is not proven."
    assert "cache_decoded 2.38× (2.29–2.47), bf16 1.41× (1.36–1.46)" in said.detail
    assert "loader_workers" not in said.detail
    assert said.tone == "warn"


def test_also_where_a_proof_was_required_and_they_are_accepted_still() -> None:
    said = verdict(without_recipe(*made.IMAGES_TRIALS))
    assert said.headline == "3 faster remedies were found, but quality is not proven."


def test_no_remedy_is_faster() -> None:
    slower = [trial for trial in made.IMAGES_TRIALS if not trial.accepted]
    said = verdict(without_recipe(*slower))
    assert said.headline == "No remedy made this training faster."
    assert said.tone == "plain"


def test_remedies_that_there_was_no_time_for_are_told_as_such() -> None:
    """And how to give it some; one that was tried beside them is told as tried."""
    missed = [
        replace(trial, accepted=False, measured=None, reason="not tried: the time was over")
        for trial in made.IMAGES_TRIALS
    ]
    session = replace(without_recipe(*missed), seconds=100.0)
    said = verdict(session)
    assert said.headline == "There was no time to try a remedy."
    assert said.detail.startswith("No remedy was tried.")
    assert next_steps(session)[0].command.startswith("outpace tune --time 4m ")
    reason = f"{NOT_TRIED}: {TOO_SHORT}"
    short = replace(session, trials=tuple(replace(trial, reason=reason) for trial in missed))
    assert verdict(short).headline == "The script is too short for a remedy to be tried."
    assert "--time" not in next_steps(short)[0].command
    slower = made.IMAGES_TRIALS[2]
    some = without_recipe(slower, *(trial for trial in missed if trial.remedy != slower.remedy))
    assert verdict(some).detail.startswith("1 remedy tried.")
    assert next_steps(some)[0].why == "no recipe was made: nothing that was tried pays"


def test_a_remedy_that_was_tried_twice_is_one() -> None:
    slower = made.IMAGES_TRIALS[2]
    again = replace(slower, settings={"workers": 2})
    assert verdict(without_recipe(slower, again)).detail.startswith("1 remedy tried.")


def test_a_step_is_told_as_in_the_reason() -> None:
    """Of steps of which some take far longer the mean is what a gain is of."""
    made_of = made.images_diagnosed()
    steps = replace(made_of.evidence.steps, median_s=0.1, mean_s=0.4)
    first = replace(made_of.findings[0], gain=made.measured(2.0, 1.5, 3.0))
    session = replace(
        made_of,
        steps=replace(made_of.steps, median_s=0.1),
        evidence=replace(made_of.evidence, steps=steps),
        findings=(first,),
    )
    assert gain_sentence(session).endswith(": 200 ms instead of 400 ms.")
    # Workers that start with each epoch of ten batches, in 2 s: of no step's time, but of the gain's.
    starting = replace(made_of.evidence.input, workers=2, batches=10, epoch_start_s=2.0)
    evidence = replace(session.evidence, input=starting)
    starts = replace(session, evidence=evidence, findings=(replace(first, cause="ipc"),))
    assert gain_sentence(starts).endswith(": 300 ms instead of 600 ms.")


def test_what_a_run_would_gain_is_not_told_of_a_step() -> None:
    made_of = made.images_diagnosed()
    compiled = replace(made_of.findings[0], bound="compute", cause="dispatch", gain_of="run")
    said = gain_sentence(replace(made_of, findings=(compiled,)))
    assert said.startswith("Without this cost the run would be 3.31")
    assert "instead of" not in said


@pytest.mark.parametrize(
    ("compute", "said"),
    [
        (Compute(flops=7.1e9), "63.3 % of this machine's float32 matrix speed"),
        (Compute(flops=7.1e9, autocast="bfloat16"), "16.9 % of this machine's bfloat16 matrix"),
        (Compute(flops=7.1e9, autocast="bfloat16", device="cuda"), "machine's bfloat16 matrix"),
    ],
)
def test_a_step_is_held_against_the_format_that_it_is_computed_in(
    compute: Compute, said: str
) -> None:
    session = made.quiet()
    session = replace(session, evidence=replace(session.evidence, compute=compute))
    assert said in ceiling_sentence(session)


def test_float32_on_a_gpu_may_be_tf32() -> None:
    session = made.quiet()
    compute = Compute(flops=7.1e9, device="cuda")
    assert (
        ceiling_sentence(replace(session, evidence=replace(session.evidence, compute=compute)))
        == ""
    )


@pytest.mark.parametrize(
    ("measure", "part"), [("loss", "the baseline's fall"), ("accuracy", "the metric itself")]
)
def test_a_margin_is_a_share_of_what_the_proof_judges_by(measure: str, part: str) -> None:
    tuned = made.images_tuned()
    assert tuned.proof is not None
    proof = replace(tuned.proof, measure=measure)
    assert proof_sentence(proof).endswith(f"the margin is 1.0 % of {part}.")
    html = render_html(replace(tuned, proof=proof))
    assert f"as a share of {part};" in unescape(html)


def test_where_all_that_is_advised_is_done_by_hand_its_page_comes_next() -> None:
    session = made.images_diagnosed()
    gain = Gain(1.2, 1.1, 1.3, "measured")
    by_hand = Advice("validate_less", "learning", gain, "", by_hand=True)
    for remedies, command in (
        ((by_hand,), "outpace remedies validate_less"),
        ((by_hand, Advice("prefetch", "exact", gain)), "outpace tune"),
        ((), ""),
    ):
        finding = replace(session.findings[0], remedies=remedies)
        found = sentences.next_steps(replace(session, findings=(finding,)))
        assert [step.command.startswith(command) for step in found] == [True] * bool(command)


def test_a_tuning_without_a_recipe_sends_nobody_to_run_it() -> None:
    tuned = replace(made.quiet(command="tune"), recipe=None)
    (bare,) = sentences.next_steps(tuned)
    assert bare.command == "python train.py"
    assert bare.why == "no recipe was made: nothing that was tried pays"
    unproven = without_recipe(*map(not_proven, made.IMAGES_TRIALS))
    (longer,) = sentences.next_steps(replace(unproven, seconds=300.0))
    assert longer.command.startswith("outpace tune --time 10m ")
    assert longer.why.startswith("gives the proof more time")


def test_what_is_worse_is_not_given_more_time() -> None:
    worse = without_recipe(*map(not_proven, made.IMAGES_TRIALS))
    assert worse.proof is not None
    (others,) = sentences.next_steps(replace(worse, proof=replace(worse.proof, refuted=True)))
    names = ",".join(
        t.remedy for t in made.IMAGES_TRIALS if t.measured is not None and t.measured.is_gain
    )
    assert others.command.startswith(f"outpace tune --skip {names} ")


def test_what_is_refused_by_a_hair_does_not_read_as_if_it_had_passed() -> None:
    tuned = made.images_tuned()
    assert tuned.proof is not None
    proof = replace(tuned.proof, proven=False, difference=0.004, high=0.010041, margin=0.01)
    told = proof_sentence(proof)
    assert "at most 1.004 % worse" in told
    assert "margin is 1.0 %" in told


def test_what_comes_next_is_of_the_same_training() -> None:
    session = made.images_diagnosed()
    (tune,) = next_steps(session)
    assert "--from" not in tune.command
    run = replace(session.evidence.run, from_step=400)
    (tune,) = next_steps(replace(session, evidence=replace(session.evidence, run=run)))
    assert tune.command.startswith("outpace tune --from 400 ")


def test_what_rounding_alone_makes_is_told_as_that() -> None:
    """As of training in float64."""
    proof = Proof(True, True, 3, 60, measure="loss", difference=6.2e-18, high=1.2e-17)
    assert proof_sentence(proof) == (
        "No worse: over 3 seeds of 60 steps the loss is the same but for rounding; the margin is 1.0 % of "
        "the baseline's fall."
    )
