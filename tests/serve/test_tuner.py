from __future__ import annotations

import platform
import threading
import time
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import UsageError
from outpace.serve import looking, tuner
from outpace.serve.executors import Kind
from outpace.serve.looking import Timed
from outpace.serve.making import Made, Request
from outpace.serve.rates import Choice
from outpace.serve.tuner import choose
from tests.serve.costly import REQUESTS, Costly

ALL: tuple[Kind, ...] = ("none", "threads", "processes")
MIB = 2**20


class Fake:
    """A maker whose batches take so long, and what was tried of it."""

    streams = ()

    def __init__(self, monkeypatch: pytest.MonkeyPatch, wall_s: float, scaling: float) -> None:
        self.wall_s, self.scaling = wall_s, scaling
        self.looks = 0
        self.tried: dict[str, float] = {}
        monkeypatch.setattr(looking, "_timed", self.timed)
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


def test_slow_batches_are_tried_too_once_that_is_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A trial takes as long as it takes until enough of them have come."""
    fake = Fake(monkeypatch, 0.3, 1.9)
    first = fake.chosen(100)
    assert fake.tried == {}
    again = fake.chosen(100, saved_s=1.1 * first.again_s)
    assert (again.kind, again.again_s) == ("processes", 0.0)
    assert min(fake.tried.values()) > tuner.TRY_S


def test_untried_processes_are_for_what_holds_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert Fake(monkeypatch, 0.02, 1.0).chosen(10).kind == "processes"


def test_slow_batches_are_made_beside_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: tuple[Kind, ...] = ("none", "threads")
    assert Fake(monkeypatch, 0.02, 1.0).chosen(10, kinds).kind == "threads"


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


def test_memory_is_limited_whatever_was_asked_for() -> None:
    def maker(request: Request) -> Made:
        return Made(torch.zeros(1000, dtype=torch.uint8))

    def chosen(ram: int) -> Choice:
        quick: Any = maker
        return choose(
            quick, [Request(0, np.arange(4))] * 4, kinds=("threads",), workers=2, batches=100,
            cores=2, prefetch_bytes=256 * MIB, ram=ram,
        )  # fmt: skip

    assert chosen(10_000).depth == 8
    with pytest.raises(UsageError, match="workers and batches take"):
        chosen(5_000)


def test_what_takes_too_much_memory_is_told_with_the_least_that_it_takes() -> None:
    maker: Any = lambda request: Made(torch.zeros(MIB, dtype=torch.uint8))  # noqa: E731
    with pytest.raises(UsageError, match="take 5 MiB, 2 may be taken"):
        choose(
            maker, [Request(0, np.arange(4))] * 4, kinds=("threads",), workers=None, batches=100,
            cores=2, prefetch_bytes=256 * MIB, ram=int(2.4 * MIB),
        )  # fmt: skip


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


def test_waiting_of_the_first_time_is_counted_and_looked_at_again() -> None:
    """Files that are not in memory yet are read by more threads; once they are, few will do."""

    def chosen() -> Choice:
        return choose(
            maker, REQUESTS, kinds=("threads",), workers=None, batches=10**6, cores=2,
            prefetch_bytes=256 * MIB, ram=2**33,
        )  # fmt: skip

    maker: Any = Costly(lambda: time.sleep(0.05))
    facts = looking.look(maker, REQUESTS, 2, 1000)
    assert facts.wall_s >= 0.05
    first = chosen()
    assert first.again_s > 0
    maker.made = {int(request.indices[0]) for request in REQUESTS}
    assert chosen().predicted > first.predicted
