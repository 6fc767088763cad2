from __future__ import annotations

from typing import Any

import pytest

from outpace.serve.executors import Kind
from outpace.serve.tuner import Facts, candidates, memory, rate

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
    assert best(Facts(50e-6, 50e-6, 1.0, MIB, cores=2))[0] in ("none", "threads")
    assert best(Facts(50e-6, 50e-6, 1.0, MIB, cores=2), kinds=("none", "processes"))[0] == "none"


@pytest.mark.parametrize("scaling", [0.9, 1.0, 1.3, 1.7, 2.0])
def test_two_threads_are_predicted_to_scale_as_they_did(scaling: float) -> None:
    facts = Facts(0.01, 0.01, scaling, 0, cores=2)
    told = rate(facts, "threads", 2) / rate(facts, "threads", 1)
    assert told == pytest.approx(min(2.0, max(1.0, 1 / max(1e-9, 2 / scaling - 1))), rel=1e-6)


def test_rates_never_fall_with_workers_nor_pass_the_cores() -> None:
    for scaling in (1.0, 1.5, 2.0):
        facts = Facts(0.01, 0.008, scaling, 10 * MIB, cores=3)
        for kind in ("threads", "processes"):
            rates = [rate(facts, kind, w) for w in range(1, 20)]
            assert rates == sorted(rates)
            assert rates[-1] <= 3 / 0.008


def test_memory_is_kept_to() -> None:
    facts = Facts(0.02, 0.02, 1.0, 50 * MIB, cores=16)
    for ram in (200 * MIB, 800 * MIB, 3000 * MIB):
        for choice in candidates(facts, kinds=ALL, workers=None, prefetch_bytes=2**31, ram=ram):
            if choice.kind != "none":
                assert memory(facts, *choice[:3]) <= ram
