from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from outpace.serve.executors import Kind
from outpace.serve.looking import Facts
from outpace.serve.processes import ahead_of, places_for
from outpace.serve.rates import PROCESS_BYTES, candidates, memory, queued, rate

ALL: tuple[Kind, ...] = ("none", "threads", "processes")
MIB = 2**20


def best(facts: Facts, **other: Any) -> tuple[str, int]:
    kwargs: dict[str, Any] = {
        "kinds": ALL,
        "workers": None,
        "prefetch_bytes": 256 * MIB,
        "ram": 2**33,
    }
    found = candidates(facts, **(kwargs | other))[0]
    return found.kind, found.workers


def test_work_that_lets_others_run_goes_to_threads() -> None:
    assert best(Facts(0.02, 0.02, 2.0, MIB, cores=4)) == ("threads", 4)


def test_work_that_holds_the_interpreter_goes_to_processes() -> None:
    assert best(Facts(0.02, 0.02, 1.0, MIB, cores=4)) == ("processes", 4)


def test_waiting_takes_threads_far_beyond_the_cores() -> None:
    kind, workers = best(Facts(0.3, 0.002, 2.0, MIB, cores=2))
    assert (kind, workers) == ("threads", 64)


def test_cheap_batches_stay_at_home() -> None:
    for scaling in (1.0, 2.0):
        facts = Facts(50e-6, 50e-6, scaling, MIB, cores=2)
        assert best(facts) == ("none", 0)
        assert best(facts, kinds=("none", "processes")) == ("none", 0)


@pytest.mark.parametrize("scaling", [0.9, 1.0, 1.3, 1.7, 2.0])
def test_two_threads_are_predicted_to_scale_as_they_did(scaling: float) -> None:
    facts = Facts(0.01, 0.01, scaling, 0, cores=2)
    told = rate(facts, "threads", 2) / rate(facts, "threads", 1)
    # But for what it takes to hand a batch over: 1 % of this one.
    assert told == pytest.approx(max(1.0, scaling), rel=0.02)


@pytest.mark.parametrize(("whole", "held"), [(1.0, 0.0), (1.0, 0.4), (1.0, 0.9), (2.0, 2.0)])
def test_threads_wait_for_each_other_as_in_a_queue(whole: float, held: float) -> None:
    """Against a simulation of the queue, and within the bounds of any queue."""
    rng, count, rounds = np.random.default_rng(0), 3, 20_000
    free = [(float(rng.exponential(whole - held)), i) for i in range(count)]
    end = 0.0
    for _ in range(rounds):
        at, i = min(free)
        end = max(end, at) + float(rng.exponential(held))
        free[i] = (end + float(rng.exponential(whole - held)), i)
    simulated = rounds / max(at for at, _ in free)
    told = queued(count, whole, held)
    assert told == pytest.approx(simulated, rel=0.05)
    assert 1 / whole <= told <= min(count / whole, 1 / held if held else np.inf) + 1e-9


def test_rates_never_fall_with_workers_nor_pass_the_cores() -> None:
    for scaling in (1.0, 1.5, 2.0):
        facts = Facts(0.01, 0.008, scaling, 10 * MIB, cores=3)
        for kind in ("threads", "processes"):
            rates = [rate(facts, kind, w) for w in range(1, 20)]
            assert np.diff(rates).min() > -1e-9 * rates[-1]
            assert rates[-1] <= 3 / 0.008


def test_memory_is_kept_to() -> None:
    facts = Facts(0.02, 0.02, 1.0, 50 * MIB, cores=16)
    kinds = set()
    for ram in (200 * MIB, 800 * MIB, 3000 * MIB):
        for choice in candidates(facts, kinds=ALL, workers=None, prefetch_bytes=2**31, ram=ram):
            kinds.add(choice.kind)
            if choice.kind != "none":
                assert memory(facts.batch_bytes, *choice[:3]) <= ram
    assert kinds == set(ALL)


def test_places_in_shared_memory_are_within_the_limit() -> None:
    facts = Facts(0.02, 0.02, 1.0, MIB, cores=16)
    most = 0
    for ram in range(100, 700, 20):
        kwargs: dict[str, Any] = {"workers": None, "prefetch_bytes": 2**31, "ram": ram * MIB}
        for kind, workers, depth, *_ in candidates(facts, kinds=("processes",), **kwargs):
            most = max(most, workers)
            places = places_for(workers, ahead_of(workers, depth), facts.batch_bytes)
            assert places is not None
            assert PROCESS_BYTES * workers + places.memory.numel() <= ram * MIB, kind
    assert most > 1


def test_many_tensors_and_what_follows_count_against_processes() -> None:
    plain = Facts(0.002, 0.002, 1.0, MIB, cores=4)
    crossing = replace(plain, crossing_s=0.01)
    assert rate(crossing, "processes", 4) < rate(plain, "processes", 4) / 3
    assert rate(crossing, "threads", 1) == rate(plain, "threads", 1)
    # Where it arrives a batch is finished by one alone.
    follows = replace(plain, arrival_s=0.001)
    assert rate(follows, "processes", 4) == pytest.approx(1000)


def test_threads_are_no_more_than_keep_the_cores_busy() -> None:
    for scaling in (1.2, 1.5, 2.0):
        assert best(Facts(0.02, 0.02, scaling, MIB, cores=2), kinds=("threads",))[1] <= 2
        assert best(Facts(0.02, 0.005, scaling, MIB, cores=2), kinds=("threads",))[1] <= 8


def test_no_more_threads_are_reckoned_with_than_batches_are_on_their_way() -> None:
    facts = Facts(0.3, 0.002, 2.0, 200 * MIB, cores=4)
    (choice,) = candidates(
        facts, kinds=("threads",), workers=None, prefetch_bytes=256 * MIB, ram=2**40
    )
    assert (choice.workers, choice.depth) == (2, 2)
    assert choice.predicted == pytest.approx(2 / 0.3, rel=0.01)
