"""Two sessions side by side: nothing of either is lost, and nothing compared that differs."""

from __future__ import annotations

import msgspec

from outpace.records.evidence import Steps
from outpace.records.ledger import Row
from outpace.records.session import Session, StepSummary
from outpace.report.compare import compare_markdown, headline
from tests.report import report_sessions as made

replace = msgspec.structs.replace


def session(batch: int, median_s: float) -> Session:
    steps = Steps(batch_size=batch, micro_steps=2)
    found = made.images_diagnosed()
    return replace(
        found,
        steps=StepSummary(100, median_s, median_s, 2 * batch / median_s),
        evidence=replace(found.evidence, steps=steps),
    )


def test_rows_of_one_name_are_added_up() -> None:
    rows = (Row("elsewhere", 3.0, 0.3, "a.py:1"), Row("elsewhere", 1.0, 0.1, "b.py:2"))
    before = replace(made.quiet(), ledger=rows)
    assert "| elsewhere | 40.0 % | 30.0 % | -10.0 points |" in compare_markdown(
        before, replace(before, ledger=rows[:1])
    )


def test_findings_of_one_cause_are_told_apart_by_their_places() -> None:
    found = made.images_diagnosed()
    first = found.findings[0]
    second = replace(first, where="/home/ada/vision/other.py:9", gain=made.measured(1.5, 1.4, 1.6))
    said = compare_markdown(found, replace(found, findings=(first, second)))
    assert "| io · parse at other.py:9 | — | 1.50× (1.40–1.60) | new |" in said


def test_lines_that_moved_do_not_part_a_finding_that_is_alone() -> None:
    found = made.images_diagnosed()
    moved = replace(found.findings[0], where="/home/ada/vision/image_classifier.py:70")
    said = compare_markdown(found, replace(found, findings=(moved, *found.findings[1:])))
    assert "| io · parse | 3.31× (3.18–3.44) | 3.31× (3.18–3.44) |  |" in said


def test_another_batch_size_is_compared_by_samples_a_second() -> None:
    before, after = session(64, 0.1), session(128, 0.16)
    assert headline(before, after) == ("1,600 samples a second instead of 1,280: 1.25× as fast.")
    said = compare_markdown(before, after)
    assert "A step has 256 samples instead of 128" in said
    assert "| samples a second | 1,280 | 1,600 | 1.25× as fast |" in said
    assert "| wall time | 100 ms | 160 ms |  |" in said


def test_ranks_together_are_compared_with_one() -> None:
    alone, both = session(64, 0.2), session(64, 0.22)
    steps = replace(both.steps, samples_per_s=2 * both.steps.samples_per_s)
    both = replace(both, steps=steps, evidence=replace(both.evidence, world=2))
    assert headline(alone, both) == "1,164 samples a second instead of 640: 1.82× as fast."
    assert "| samples a second | 640 | 1,164 | 1.82× as fast |" in compare_markdown(alone, both)


def test_what_was_not_measured_is_no_zero() -> None:
    said = compare_markdown(made.no_training(), made.images_diagnosed()).splitlines()
    for name in ("wall time", "samples a second", "input", "peak"):
        (line,) = [line for line in said if line.startswith(f"| {name} |")]
        _, _, first, _, change, _ = line.split("|")
        assert (first.strip(), change.strip()) == ("—", ""), line


def test_the_same_batch_is_compared_by_steps() -> None:
    assert headline(session(64, 0.1), session(64, 0.05)).startswith("A step takes 50.0 ms")
