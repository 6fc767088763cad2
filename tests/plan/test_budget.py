"""Deadlines, reserves and clock times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outpace.cli.options import Duration
from outpace.errors import UsageError
from outpace.plan.budget import arithmetic, budget, duration, seconds_of, seconds_until

HOUR = 3600.0
NOW = datetime(2026, 3, 1, 5, 0, tzinfo=UTC)


def test_what_is_reserved_is_not_there_to_train() -> None:
    found = budget(24 * HOUR, {"deploy": 2 * HOUR, "ab-test": 4 * HOUR})
    assert found.available_s == 18 * HOUR
    assert arithmetic(found) == "24h less deploy 2h less ab-test 4h: 18h"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("1h30m", 5400), ("1h 30m", 5400), ("2m", 120), ("1.5h", 5400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["1h30", "1m 30", "5 4h", "1e3", "-5m", "", "0s"])
def test_what_may_be_meant_otherwise_is_no_duration(text: str) -> None:
    with pytest.raises(UsageError, match=r"is not a duration|is no time"):
        seconds_of(text)


@pytest.mark.parametrize("reserved", [24 * HOUR, 30 * HOUR])
def test_reserves_that_leave_nothing(reserved: float) -> None:
    with pytest.raises(UsageError, match="no time is left"):
        budget(24 * HOUR, {"deploy": reserved})


@pytest.mark.parametrize(
    ("by", "hours"),
    [
        ("06:00", 1),
        ("05:00", 24),
        ("04:30", 23.5),
        ("2026-03-01T06:00", 1),
        ("2026-03-02T05:00", 24),
        ("20260302", 19),
        ("2026-03-01T08:00+02:00", 1),
    ],
)
def test_until(by: str, hours: float) -> None:
    assert seconds_until(by, NOW) == hours * HOUR


def test_a_time_without_zone_is_that_of_now() -> None:
    eastern = NOW.astimezone(timezone(timedelta(hours=-5)))
    assert seconds_until("01:00", eastern) == HOUR


def test_the_next_time_in_a_zone_is_found_by_the_day_that_it_is_there() -> None:
    late = NOW.replace(hour=23)
    assert seconds_until("06:00+09:00", late) == 22 * HOUR
    early = NOW.astimezone(timezone(timedelta(hours=9))).replace(hour=1)
    assert seconds_until("20:00+00:00", early) == 4 * HOUR


def test_an_hour_that_comes_twice() -> None:
    """Clocks go back from three to two; it is a quarter past two, for the second time."""
    zone = ZoneInfo("Europe/Berlin")
    now = datetime(2026, 10, 25, 2, 15, tzinfo=zone, fold=1)
    assert seconds_until("02:30", now) == HOUR / 4
    assert seconds_until("02:30", now.replace(fold=0)) == HOUR / 4
    assert seconds_until("02:10", now.replace(fold=0)) == HOUR * 11 / 12
    assert seconds_until("2026-10-25T02:30", now) == HOUR / 4


@pytest.mark.parametrize(
    "by", ["2026-03-01T04:59", "2025-01-01", "20250101", "2026-03", "soon", "25:00", ""]
)
def test_times_that_cannot_be_kept(by: str) -> None:
    with pytest.raises(UsageError):
        seconds_until(by, NOW)


@given(st.integers(1, 10**7))
def test_a_duration_reads_back(seconds: int) -> None:
    assert Duration().convert(duration(seconds), None, None) == seconds
