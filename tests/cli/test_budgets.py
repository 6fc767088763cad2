"""The time there is, by the machine's own clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from outpace.cli import budgets
from outpace.plan.budget import seconds_until


@pytest.fixture
def central_europe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks that are set back by an hour at the end of October, and on at the end of March."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("day", "by", "hours"),
    [
        ("2026-10-24", "06:00", 13),
        ("2026-10-24", "2026-10-25T06:00", 13),
        ("2026-10-25", "06:00", 12),
        ("2026-03-28", "06:00", 11),
    ],
)
def test_a_time_after_the_clocks_were_set(
    central_europe: None, monkeypatch: pytest.MonkeyPatch, day: str, by: str, hours: float
) -> None:
    class Evening(datetime):
        @classmethod
        def now(cls, tz: object = None) -> Evening:
            return cls.fromisoformat(f"{day}T18:00")

    monkeypatch.setattr(budgets, "datetime", Evening)
    found = budgets.budget_of(None, by, ())
    assert found is not None
    assert found.deadline_s == hours * 3600


def test_an_hour_that_clocks_skipped_is_tomorrows(central_europe: None) -> None:
    assert seconds_until("02:30", datetime(2026, 3, 29, 3, 10)) == (23 * 60 + 20) * 60
    assert seconds_until("02:30", datetime(2026, 3, 29, 1, 10)) == 80 * 60
    assert seconds_until("02:30", datetime(2026, 3, 28, 23, 30)) == 3 * 3600
    assert seconds_until("02:30", datetime(2026, 10, 25, 1, 10)) == 80 * 60
