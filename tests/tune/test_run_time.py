"""What a run of some steps takes has in it what comes between them."""

from __future__ import annotations

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.records.run import Recurring
from outpace.tune.run_time import between_s, epoch_of, longest_silence_s, run_s
from tests.remedies.some_evidence import IMAGES

replace = msgspec.structs.replace


def with_run(**facts: object) -> Evidence:
    return replace(IMAGES, run=replace(IMAGES.run, **facts))


def test_what_comes_now_and_then_comes_as_often_as_it_was_seen_to() -> None:
    validation, starts = Recurring("validation", 30.0, 2, 71, 71), Recurring("input", 2.0, 2, 0, 71)
    facts = with_run(recurring=(validation, replace(starts, leads=True)))
    assert between_s(facts, 70) == pytest.approx(2)
    assert between_s(facts, 72) == pytest.approx(2 * 2 + 30)
    assert run_s(facts, 72) == pytest.approx(4 + 72 * 0.32 + 34)
    mingled = replace(facts, steps=replace(facts.steps, mingled=True))
    assert between_s(mingled, 72) == 0, "it is in each step's own time"


def test_a_validation_that_was_not_seen_comes_after_each_epoch() -> None:
    assert epoch_of(IMAGES) == 71
    unseen = with_run(validation_s=30.0)
    assert [between_s(unseen, steps) for steps in (70, 71, 142)] == [0, 30, 60]
    gone_by = with_run(validation_s=30.0, epoch_steps=71.0)
    assert between_s(gone_by, 142) == 0, "epochs were over without one"


def test_of_a_run_that_was_seen_to_its_end_a_share_counts() -> None:
    """116 s of 60 steps are for validations and checkpoints, and 4 s for epochs' starts."""
    assert between_s(with_run(finished=True, starts_s=4.0), 30) == pytest.approx(60)


def test_the_longest_silence_holds_the_longest_of_all_that_was_seen() -> None:
    validation, saving = (
        Recurring("validation", 30.0, 2, 71, 71),
        Recurring("checkpoint", 5.0, 2, 9, 9),
    )
    facts = with_run(recurring=(replace(validation, longer_s=10.0), saving))
    assert longest_silence_s(facts, 60.0) == pytest.approx(4 + 20 * 0.32 + 40 + 60)
    unseen = with_run(validation_s=50.0)
    assert longest_silence_s(unseen, 0.0) == pytest.approx(4 + 20 * 0.32 + 50)
    whole = with_run(finished=True)
    assert longest_silence_s(whole, 0.0) == pytest.approx(4 + 20 * 0.32 + 116 + 4)
