"""What follows from evidence: how long an epoch is, how often a sample is met, what is in steps."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from outpace.records.evidence import Evidence
from outpace.records.ledger import Row, with_ending
from tests.remedies.some_evidence import IMAGES, WORKERS

replace = msgspec.structs.replace


def of(evidence: Evidence, epoch_steps: float | None = None, **data: Any) -> Evidence:
    run = replace(evidence.run, epoch_steps=epoch_steps)
    return replace(evidence, run=run, input=replace(evidence.input, **data))


def test_an_epoch_that_is_left_early_pays_for_its_workers_start_with_few_steps() -> None:
    whole = of(WORKERS, batches=1000, epoch_start_s=0.5)
    assert whole.starting_s == pytest.approx(0.5 / 1000)
    early = of(WORKERS, 50.0, batches=1000, epoch_start_s=0.5)
    assert early.starting_s == pytest.approx(0.5 / 50)
    assert of(WORKERS, batches=None).starting_s == 0.0


@pytest.mark.parametrize(
    ("samples", "batches", "epoch_steps", "epochs", "wanted"),
    [
        (6400, 100, None, 5, 5.0),
        (6400, 100, 10.0, 20, 2.0),  # left early
        (64_000, 100, None, 20, 2.0),  # a sampler that draws some
        (6400, 100, 1.0, 20, 1.0),  # each is met once at the least, if at all
        (None, None, None, 7, 7.0),
        (6390, 100, None, 5, 5.0),  # a last batch that is not full
    ],
)
def test_how_often_a_sample_is_met(
    samples: int | None,
    batches: int | None,
    epoch_steps: float | None,
    epochs: int,
    wanted: float,
) -> None:
    data = {"samples": samples, "batches": batches, "epochs": epochs, "batch_size": 64}
    assert of(IMAGES, epoch_steps, **data).passes == pytest.approx(wanted)


def test_what_is_told_of_a_validation_is_in_no_step() -> None:
    before = IMAGES.in_steps_s
    told = replace(IMAGES, run=replace(IMAGES.run, told_s=10.0))
    assert told.in_steps_s == pytest.approx(before - 10.0)


def test_the_process_ends_after_what_the_script_does_last() -> None:
    rows = [Row("backward", 8.0, 0.8), Row("ending", 2.0, 0.2, "train.py:9")]
    found = {(row.name, row.where): row.seconds for row in with_ending(rows, 1.0)}
    assert found == {("backward", None): 8.0, ("ending", "train.py:9"): 2.0, ("ending", None): 1.0}
    again = with_ending([Row("ending", 2.0, 1.0)], 1.0)
    assert [(row.name, row.seconds) for row in again] == [("ending", 3.0)]
