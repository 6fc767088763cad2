"""A leak is found to the byte a step; memory that is taken once is none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import get_args

import numpy as np
import pytest
import torch
from torch import nn

from outpace.measure import growth
from outpace.measure.growth import (
    COST_NS,
    COST_SHARE,
    FEWEST_POINTS,
    MOST_POINTS,
    Growth,
    Series,
    Witness,
    trend,
)

MB = 1 << 20
steps = list(range(100))
WITNESSES = get_args(Witness)


def found_in(held: Callable[[int], Sequence[float]], points: int, witness: Witness) -> float:
    """Share of tries in which memory of that kind is told to grow."""
    told = [trend(range(points), held(points), witness) for _ in range(200)]
    return float(np.mean([one is not None and one.grows for one in told]))


def test_steady_growth() -> None:
    rng = np.random.default_rng(0)
    found = trend(steps, [50_000.0 * step + rng.normal(0, 1e5) for step in steps], "rss")
    assert found is not None
    assert found.grows
    assert found.low < 50_000
    assert found.bytes_per_step == pytest.approx(50_000, rel=0.1)


def test_memory_that_stays() -> None:
    rng = np.random.default_rng(0)
    found = trend(steps, [1e9 + rng.normal(0, MB) for _ in steps], "heap")
    assert found is not None
    assert not found.grows


def test_what_is_taken_once_is_no_growth() -> None:
    filling_up = [min(step, 60) * MB * 1.0 for step in steps]
    jumping = [(step // 40) * 100.0 * MB for step in steps]
    trifling = [step * 100.0 for step in steps]
    for held in (filling_up, jumping, trifling):
        found = trend(steps, held, "heap")
        assert found is not None
        assert not found.grows


@pytest.mark.parametrize(("witness", "most"), [("heap", 0.05), ("rss", 0.025)])
@pytest.mark.parametrize("points", [20, 30, 100])
def test_memory_that_wanders_or_jumps_is_seldom_taken_for_growth(
    points: int, witness: Witness, most: float
) -> None:
    rng = np.random.default_rng(0)

    def wandering(count: int) -> Sequence[float]:
        return list(np.cumsum(rng.normal(0, MB, count)))

    def jumping(count: int) -> Sequence[float]:
        jumps = np.where(rng.random(count) < 3 / count, rng.exponential(8 * MB, count), 0)
        return list(np.cumsum(jumps) + rng.normal(0, 20_000, count))

    assert found_in(wandering, points, witness) < most
    assert found_in(jumping, points, witness) < most


def test_resident_memory_that_still_fills_up_is_seldom_taken_for_growth() -> None:
    rng = np.random.default_rng(0)

    def filling(count: int) -> Sequence[float]:
        full = 1 - np.exp(-np.arange(count) / (rng.uniform(0.1, 0.5) * count))
        return list(40 * MB * full + rng.normal(0, 0.2 * MB, count))

    assert found_in(filling, 28, "rss") < 0.15


@pytest.mark.parametrize("witness", WITNESSES)
def test_a_leak_is_found_by_few_points(witness: Witness) -> None:
    rng = np.random.default_rng(0)

    def leaking(count: int) -> Sequence[float]:
        return list(MB * np.arange(count) + rng.normal(0, 0.3 * MB, count))

    def leaking_unevenly(count: int) -> Sequence[float]:
        return list(np.cumsum(rng.uniform(0.5, 1.5, count) * MB))

    assert found_in(leaking, 20, witness) > 0.98
    assert found_in(leaking_unevenly, 20, witness) > 0.95


def test_a_leak_that_was_seen_at_uneven_distances_is_found() -> None:
    seen = sorted(np.random.default_rng(0).choice(np.arange(400), 24, replace=False).tolist())
    found = trend(seen, [float(MB) * step for step in seen], "rss")
    assert found is not None
    assert found.grows


@pytest.mark.parametrize("witness", WITNESSES)
def test_too_little_was_seen(witness: Witness) -> None:
    few = FEWEST_POINTS[witness] - 1
    assert trend(range(few), [1.0] * few, witness) is None
    assert Growth().trend() is None


def run(count: int, *, keep: bool) -> Growth:
    """A small training, which keeps its graphs or not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    watched, kept = Growth(), []
    for step in range(count):
        loss = model(torch.randn(64, 64)).square().mean()
        loss.backward()
        if keep:
            kept.append(loss)
        watched.feed(step)
    return watched


def test_kept_graphs_are_found_by_the_heap() -> None:
    if growth._heap_reader()() is None:
        pytest.skip("this malloc does not tell what is in use")
    heap = run(400, keep=True).series["heap"]
    found = trend(heap.steps, heap.bytes, "heap")
    if found is None:
        pytest.skip("this process has its heap in pieces")
    assert found.grows
    assert 2_000 < found.bytes_per_step < 64 * 64 * 4


def test_a_sound_training_does_not_grow() -> None:
    found = run(3_000, keep=False).trend()  # even where a reading costs a step 200 us
    assert found is not None
    assert not found.grows


@pytest.mark.parametrize(
    ("heap", "room"), [(3000, 3000 - 1098), (1200, None), (0, None)], ids=["zeros", "full", "apart"]
)
def test_an_array_that_is_filled_has_as_much_room_as_was_taken_for_it(
    heap: int, room: int | None
) -> None:
    """Resident memory grows as its pages are written to, and the heap has had all of it from the first."""
    watched = Growth()
    for witness, held in (("heap", [heap] * 100), ("rss", [900 + 2 * step for step in steps])):
        series = watched.series[witness]  # type: ignore[index]
        series.steps, series.bytes = steps, [float(MB * each) for each in held]
    found = watched.trend()
    assert found is not None
    assert found.grows
    assert found.witness == "rss"
    assert found.room == (None if room is None else room * MB)


def test_what_the_heap_knows_of_has_no_room() -> None:
    watched = Growth()
    for witness in ("heap", "rss"):
        series = watched.series[witness]  # type: ignore[index]
        series.steps, series.bytes = steps, [float(MB * (900 + step)) for step in steps]
    found = watched.trend()
    assert found is not None
    assert (found.witness, found.room) == ("heap", None)


@pytest.mark.parametrize("step_us", [50, 20_000])
@pytest.mark.parametrize("reading_us", [1, 40, 2_000])
def test_a_witness_takes_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, step_us: int, reading_us: int
) -> None:
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(growth, "perf_counter_ns", lambda: clock.now)

    def read() -> int:
        clock.now += reading_us * 1_000
        return 0

    watched = Growth()
    watched.series = {"rss": Series(read)}
    clock.now, count, readings = 0, 4_000, 0
    watched._began = 0
    for step in range(count):
        clock.now += step_us * 1_000
        before = clock.now
        watched.feed(step)
        readings += clock.now > before
    allowed = max(COST_NS, 1.05 * COST_SHARE * step_us * 1_000)
    assert readings >= 1
    assert (readings - 1) * reading_us * 1_000 <= allowed * count


def test_a_long_run_is_thinned_out() -> None:
    told: list[int] = []
    watched = Growth()
    watched.series = {"rss": Series(lambda: 10_000 * len(told))}
    for step in range(40_000):
        told.append(step)
        watched.feed(step)
    assert FEWEST_POINTS["rss"] < len(watched.series["rss"].steps) < MOST_POINTS
    found = watched.trend()
    assert found is not None
    assert found.bytes_per_step == pytest.approx(10_000)
