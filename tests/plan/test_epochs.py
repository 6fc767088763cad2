"""What a forecast says of epochs that were cut short, and of validations that were not seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outpace.measure.recurring import starts_of_epochs
from outpace.plan.epochs import notes, validations
from outpace.plan.forecast import finish, options, steps_of
from outpace.plan.question import Question, answer
from outpace.records.evidence import Evidence
from outpace.records.gain import Gain
from outpace.records.ledger import Row
from outpace.records.plan import Estimate
from outpace.records.run import Recurring
from outpace.report.plan import script_lines
from tests.conftest import evidence_of, with_entry
from tests.remedies.some_evidence import IMAGES
from tests.report.report_sessions import images_diagnosed

replace = msgspec.structs.replace
LEDGER = (Row("startup", 100.0, 0.1), Row("backward", 900.0, 0.9))


def seen(*, epoch_steps: float | None = None, validation_s: float | None = None) -> Evidence:
    """A thousand steps, of which a loader says that they are ten epochs; no validation was seen."""
    run = replace(IMAGES.run, total_steps=1000, epoch_steps=epoch_steps, validation_s=validation_s)
    steps, given = replace(IMAGES.steps, micro_steps=2), replace(IMAGES.input, batches=200)
    return replace(IMAGES, run=run, steps=steps, input=given, ledger=LEDGER)


def test_epochs_that_are_left_before_their_loaders_end() -> None:
    cut = seen(epoch_steps=40.0)
    assert steps_of(cut, None, 3, None) == 120
    said = (
        "an epoch is taken to have 40 steps, as those had that were over, where its loader has 100"
    )
    assert tuple(notes(cut, 1000)) == (said,)
    whole = seen(epoch_steps=99.5)
    assert steps_of(whole, None, 3, None) == round(3 * 99.5)
    assert not tuple(notes(whole, 1000))
    assert steps_of(seen(), None, 3, None) == 300


def test_a_validation_that_was_not_seen_is_reckoned_with_and_doubted() -> None:
    evidence = seen(validation_s=20.0)
    without = finish(seen())
    found = finish(evidence)
    assert found.estimate == pytest.approx(without.estimate + 10 * 20.0)
    assert found.low == pytest.approx(without.low)
    assert found.high == pytest.approx(without.high + 20 * 20.0)
    assert finish(evidence, 500).estimate == pytest.approx(100 + 450 + 5 * 20.0)
    (said,) = notes(evidence, 1000)
    assert "no validation was seen" in said
    assert "3m20s (0s to 6m40s) of that are for 10 of them" in said


def test_epochs_that_went_by_without_a_validation_have_one_at_the_end() -> None:
    evidence = seen(epoch_steps=100.0, validation_s=20.0)
    assert validations(evidence, 1000) == (1, Estimate(20.0, 0.0, 200.0))
    assert finish(evidence).estimate == pytest.approx(1000.0 + 20.0)


def test_where_nothing_tells_of_one_that_is_said() -> None:
    assert tuple(notes(seen(), 1000)) == (
        "no validation was seen while it was watched: those that come are left out",
    )
    assert not tuple(notes(seen(epoch_steps=100.0), 1000))
    ledger = (*LEDGER, Row("validation", 50.0, 0.05))
    assert not tuple(notes(replace(seen(), ledger=ledger), 1000))


def test_a_run_that_was_seen_to_its_end_has_no_more() -> None:
    evidence = seen(validation_s=20.0)
    evidence = replace(evidence, run=replace(evidence.run, finished=True, total_steps=None))
    assert validations(evidence, 1000) is None
    assert not tuple(notes(evidence, 1000))


def test_faster_steps_leave_a_validation_as_it_is() -> None:
    evidence, session = seen(validation_s=80.0), images_diagnosed()
    quick = replace(session.findings[0].remedies[0], predicted=Gain(9.0, 9.0, 9.0, "predicted"))
    finding = replace(session.findings[0], remedies=(quick,))
    found = options(evidence, (finding,), finish(evidence), None, None)
    least = next(option for option in found if option.change == quick.name)
    assert 3600 * least.hours.estimate == pytest.approx(100 + 900 / 9 + 10 * 80)


def test_a_loop_that_may_be_left_sooner_is_said() -> None:
    evidence = seen(epoch_steps=100.0)
    evidence = replace(evidence, run=replace(evidence.run, leaves=("train.py:8", "train.py:9")))
    assert tuple(notes(evidence, 1000)) == (
        "it may end sooner, by train.py:8 or train.py:9, which is no count of steps",
    )


def test_it_is_said() -> None:
    session = images_diagnosed()
    session = replace(session, evidence=seen(validation_s=20.0))
    plan, _ = answer(Question(), session)
    assert plan.forecast
    lines = list(script_lines(Question(), plan, "train.py"))
    assert lines[1] == plan.forecast.notes[0]
    assert "no validation was seen" in lines[1]
    assert b"notes" in msgspec.json.encode(plan.forecast)


@pytest.mark.parametrize("validates", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_loader_that_nothing_was_drawn_from(
    script: Callable[[str], Path], tmp_path: Path, validates: bool
) -> None:
    path = script(
        f"""
        import torch
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.ones(80, 2))
        loader, held_out = DataLoader(data, batch_size=4), DataLoader(data, batch_size=40)
        model = torch.nn.Linear(2, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(2):
            for (x,) in loader:
                model(x).sum().backward()
                optimizer.step()
            if {validates}:
                with torch.no_grad():
                    for (x,) in held_out:
                        model(x)
        """
    )
    code, text = with_entry(path, tmp_path / "session")
    assert code == 0, text
    run = evidence_of(tmp_path / "session").run
    assert (run.validation_s is None) == validates
    assert run.validation_s is None or run.validation_s > 0


def test_a_slow_start_of_a_stream_is_not_told_as_samples_that_are_kept() -> None:
    slow = seen()
    run = replace(slow.run, recurring=(starts_of_epochs(30.0, 1, None),))
    assert not any("kept for the others" in note for note in notes(replace(slow, run=run), 1000))
    kept = Recurring("input", 30.0, 1, 0, None, leads=True, over=100.0)
    run = replace(slow.run, recurring=(kept,))
    assert any("kept for the others" in note for note in notes(replace(slow, run=run), 1000))
