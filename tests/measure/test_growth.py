"""A leak is found to the byte a step; memory that is taken once is none."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from torch import nn

from outpace.measure import growth
from outpace.measure.growth import FEWEST_POINTS, MOST_POINTS, Growth, Series, trend

MB = 1 << 20
steps = list(range(100))


def test_steady_growth() -> None:
    rng = np.random.default_rng(0)
    found = trend(steps, [50_000.0 * step + rng.normal(0, 1e5) for step in steps])
    assert found is not None
    assert found.grows
    assert found.low < 50_000 < found.high


def test_memory_that_stays() -> None:
    rng = np.random.default_rng(0)
    found = trend(steps, [1e9 + rng.normal(0, MB) for _ in steps])
    assert found is not None
    assert not found.grows


def test_what_is_taken_once_is_no_growth() -> None:
    filling_up = [min(step, 60) * MB * 1.0 for step in steps]
    jumping = [(step // 40) * 100.0 * MB for step in steps]
    trifling = [step * 100.0 for step in steps]
    for held in (filling_up, jumping, trifling):
        found = trend(steps, held)
        assert found is not None
        assert not found.grows


def test_memory_that_wanders_is_seldom_taken_for_growth() -> None:
    rng = np.random.default_rng(0)
    walks = [trend(steps, list(np.cumsum(rng.normal(0, MB, 100)))) for _ in range(200)]
    assert np.mean([walk is not None and walk.grows for walk in walks]) < 0.15


def test_too_little_was_seen() -> None:
    assert trend(range(FEWEST_POINTS - 1), [1.0] * (FEWEST_POINTS - 1)) is None
    assert Growth().trend() is None


def run(count: int, *, keep: bool) -> tuple[Growth, float]:
    """A small training, which keeps its graphs or not; and CPU microseconds a feed."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8))
    watched, kept, spent = Growth(), [], 0.0
    for step in range(count):
        loss = model(torch.randn(64, 64)).square().mean()
        loss.backward()
        if keep:
            kept.append(loss)
        began = time.thread_time()
        watched.feed(step)
        spent += time.thread_time() - began
    return watched, spent / count * 1e6


def test_kept_graphs_are_found_by_the_heap() -> None:
    if growth._heap_reader()() is None:
        pytest.skip("this malloc does not tell what is in use")
    heap = run(400, keep=True)[0].series["heap"]
    found = trend(heap.steps, heap.bytes)
    if found is None:
        pytest.skip("this process has its heap in pieces")
    assert found.grows
    assert 2_000 < found.bytes_per_step < 64 * 64 * 4


def test_a_sound_training_does_not_grow() -> None:
    found = run(400, keep=False)[0].trend()
    assert found is not None
    assert not found.grows


def test_feeding_is_cheap() -> None:
    assert min(run(300, keep=False)[1] for _ in range(3)) < 20.0


def test_a_dear_reading_is_done_seldom() -> None:
    def slow() -> int:
        time.sleep(0.002)
        return 0

    watched = Growth()
    watched.series = {"rss": Series(slow)}
    for step in range(2000):
        watched.feed(step)
    assert 1 <= len(watched.series["rss"].steps) < 60


def test_a_long_run_is_thinned_out() -> None:
    told: list[int] = []
    watched = Growth()
    watched.series = {"rss": Series(lambda: 10_000 * len(told))}
    for step in range(40_000):
        told.append(step)
        watched.feed(step)
    assert FEWEST_POINTS < len(watched.series["rss"].steps) < MOST_POINTS
    found = watched.trend()
    assert found is not None
    assert found.bytes_per_step == pytest.approx(10_000)
