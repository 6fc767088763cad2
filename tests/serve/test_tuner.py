from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from outpace.serve import tuner
from outpace.serve.executors import Kind
from outpace.serve.making import Arrival, Made, Request
from outpace.serve.tuner import Choice, Facts, Timed, candidates, choose, memory, rate

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
    told = tuner.queued(count, whole, held)
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
    for ram in (200 * MIB, 800 * MIB, 3000 * MIB):
        for choice in candidates(facts, kinds=ALL, workers=None, prefetch_bytes=2**31, ram=ram):
            if choice.kind != "none":
                assert memory(facts, *choice[:3]) <= ram


class Fake:
    """A maker whose batches take so long, and what was tried of it."""

    streams = ()

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wall_s: float, scaling: float) -> None:
        self.wall_s, self.scaling = wall_s, scaling
        self.looks = 0
        self.tried: dict[str, float] = {}
        monkeypatch.setattr(tuner, "_timed", self.timed)
        monkeypatch.setattr(tuner, "tried", self.at_work)

    def __call__(self, request: Request) -> Made:
        return Made(torch.zeros(4))

    faults = 0

    def timed(self, *args: Any) -> Timed:
        self.looks += 1
        both = self.looks in (3, 4)  # after the first time and alone
        wall = 2 * self.wall_s / self.scaling if both else self.wall_s
        return Timed(wall, wall, self.faults, 1)

    def at_work(
        self, maker: Any, choice: Choice, requests: Any, size: int, seconds: float, *rest: Any
    ) -> float:
        self.tried[choice.kind] = seconds
        return {"none": 1.0, "threads": 2.0, "processes": 3.0}[choice.kind]

    def chosen(self, batches: int, kinds: tuple[Kind, ...] = ALL, saved_s: float = 0.0) -> Choice:
        self.looks = 0
        maker: Any = self
        return choose(
            maker, [Request(0, np.arange(4))] * 4, kinds=kinds, workers=None, batches=batches,
            cores=2, prefetch_bytes=256 * MIB, ram=2**33, saved_s=saved_s,
        )  # fmt: skip


def test_what_is_made_in_no_time_is_not_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, 150e-6, 2.0)
    choice = fake.chosen(1_000_000)
    assert choice[:3] == ("none", 0, 1)
    assert "made when it is drawn" in choice.reason
    assert (fake.looks, fake.tried) == (2, {})
    assert fake.chosen(1_000_000, ("threads",)).kind == "threads"


def test_trying_takes_a_small_part_of_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(monkeypatch, 0.02, 1.9)
    assert fake.chosen(100).kind == "threads"
    assert fake.tried == {}
    assert fake.chosen(1500).kind == "processes"
    assert fake.tried.keys() == {"threads", "processes"}
    assert sum(fake.tried.values()) + tuner.START_S <= tuner.PROBED * 1500 * 0.02
    fake.chosen(10**6)
    assert sum(fake.tried.values()) + tuner.START_S <= tuner.PROBE_S


def test_what_was_not_tried_is_chosen_again_once_that_is_paid_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = Fake(monkeypatch, 0.02, 1.9)
    first = fake.chosen(100)
    assert (first.kind, first.measured) == ("threads", None)
    again = fake.chosen(100, saved_s=1.1 * first.again_s)
    assert (again.kind, again.again_s) == ("processes", 0.0)
    assert fake.chosen(100, ("threads",)).again_s == 0  # nothing else to choose


def test_untried_processes_are_for_what_holds_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Fake(monkeypatch, 0.02, 1.0).chosen(10).kind == "processes"


def test_slow_batches_are_made_beside_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: tuple[Kind, ...] = ("none", "threads")
    assert Fake(monkeypatch, 0.02, 1.0).chosen(10, kinds).kind == "threads"


def test_many_tensors_and_what_follows_count_against_processes() -> None:
    plain = Facts(0.002, 0.002, 1.0, MIB, cores=4)
    crossing = replace(plain, crossing_s=0.01)
    assert rate(crossing, "processes", 4) < rate(plain, "processes", 4) / 3
    assert rate(crossing, "threads", 1) == rate(plain, "threads", 1)
    # Where it arrives a batch is finished by one alone.
    follows = replace(plain, arrival_s=0.001)
    assert rate(follows, "processes", 4) == pytest.approx(1000)


@pytest.mark.parametrize(("kinds", "others"), [(("processes",), False), (("threads",), True)])
def test_samples_that_bear_no_threads_are_made_in_none(
    kinds: tuple[Kind, ...], others: bool
) -> None:
    class Slow(Fake):
        def __init__(self) -> None:
            self.makers: set[int] = set()

        def __call__(self, request: Request) -> Made:
            self.makers.add(threading.get_ident())
            time.sleep(0.002)
            return Made(torch.zeros(4))

    maker: Any = Slow()
    choice = choose(
        maker, [Request(0, np.arange(4))] * 4, kinds=kinds, workers=None, batches=100, cores=2,
        prefetch_bytes=256 * MIB, ram=2**33,
    )  # fmt: skip
    assert (maker.makers - {threading.get_ident()} != set()) == others
    assert ("two threads make" in choice.reason) == others


def test_what_follows_is_measured_with_the_batch() -> None:
    class Quick(Fake):
        def __init__(self) -> None:
            pass

    def after(batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005)
        return batch

    maker: Any = Quick()
    requests = [Request(0, np.arange(4))]
    facts = tuner.look(maker, requests, 1, 4, Arrival(after))
    assert facts.arrival_s >= 0.005
    assert tuner.look(maker, requests, 1, 4).arrival_s < 0.005


class Paging(Fake):
    """One whose worker processes are so many times as fast where they keep freed memory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gain: float, faults: int) -> None:
        super().__init__(monkeypatch, 0.02, 1.0)
        self.gain, self.faults = gain, faults

    def at_work(self, maker: Any, choice: Choice, *args: Any) -> float:
        self.tried[f"{choice.kind} {choice.keeps_freed}"] = 1.0
        return 3.0 * (self.gain if choice.keeps_freed else 1.0)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")
@pytest.mark.parametrize(("gain", "kept"), [(1.3, True), (1.05, False)])
def test_freed_memory_is_kept_from_a_tenth_more_on(
    monkeypatch: pytest.MonkeyPatch, gain: float, kept: bool
) -> None:
    choice = Paging(monkeypatch, gain, faults=5000).chosen(10**6)
    assert (choice.kind, choice.keeps_freed) == ("processes", kept)
    assert ("keep the memory" in choice.reason) == kept


def test_where_few_pages_are_fresh_keeping_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Paging(monkeypatch, 2.0, faults=10)
    assert not fake.chosen(10**6).keeps_freed
    assert not any(name.endswith("True") for name in fake.tried)


class Costly(Fake):
    """One that takes 1 ms of waiting a batch, and the first time something besides."""

    def __init__(self, at_first: Callable[[], Any]) -> None:
        self.at_first, self.made = at_first, set[int]()

    def __call__(self, request: Request) -> Made:
        time.sleep(0.001)
        if (index := int(request.indices[0])) not in self.made:
            self.at_first()
            self.made.add(index)
        return Made(torch.zeros(4))


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass


REQUESTS = [Request(0, np.arange(i, i + 1)) for i in range(400)]


@pytest.mark.parametrize("threads", [True, False])
def test_work_of_the_first_time_is_not_counted(threads: bool) -> None:
    """Of a packed set that is when checksums are looked at: much slower than any batch after it."""
    maker: Any = Costly(lambda: busy(0.02))
    facts = tuner.look(maker, REQUESTS, 2, 1000, threads=threads)
    assert facts.cpu_s < 0.01


def test_waiting_of_the_first_time_is_counted_and_looked_at_again() -> None:
    """Files that are not in memory yet are read by more threads; once they are, few will do."""

    def chosen() -> Choice:
        return choose(
            maker, REQUESTS, kinds=("threads",), workers=None, batches=10**6, cores=2,
            prefetch_bytes=256 * MIB, ram=2**33,
        )  # fmt: skip

    maker: Any = Costly(lambda: time.sleep(0.05))
    facts = tuner.look(maker, REQUESTS, 2, 1000)
    assert facts.wall_s >= 0.05
    first = chosen()
    assert first.again_s > 0
    maker.made = {int(request.indices[0]) for request in REQUESTS}
    assert chosen().predicted > first.predicted


def test_threads_are_no_more_than_keep_the_cores_busy() -> None:
    for scaling in (1.2, 1.5, 2.0):
        assert best(Facts(0.02, 0.02, scaling, MIB, cores=2), kinds=("threads",))[1] <= 2
        assert best(Facts(0.02, 0.005, scaling, MIB, cores=2), kinds=("threads",))[1] <= 8
