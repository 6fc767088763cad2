"""Contests over simulated steps: what is the same reads as the same, what differs as what it is."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from outpace.measure.arms import MORE, SURELY, Contest, Scheduler, settled
from outpace.records.arm import TOO_FEW
from outpace.seams.host import Step
from outpace.seams.setup import AS_IS, Setup

FAST = replace(AS_IS, fused=True)
SAME = replace(AS_IS, foreach=True)
SLOW = replace(AS_IS, threads=1)
SLOWER = replace(AS_IS, threads=4)
SLOWEST = replace(AS_IS, threads=2)
LARGER = replace(AS_IS, batch_scale=2.0)
SECONDS = {AS_IS: 0.1, SAME: 0.1, FAST: 0.08, SLOW: 0.125, SLOWER: 0.13, SLOWEST: 0.25, LARGER: 0.2}


@dataclass
class FakeHost:
    """A training whose step takes what its Setup says, with noise as of a busy machine."""

    setup: Setup = AS_IS
    unfit: dict[str, str] = field(default_factory=dict)
    drift: float = 0.0
    index: int = 0
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def switch(self, setup: Setup) -> None:
        self.setup = setup

    def step(self) -> Step:
        self.index += 1
        noise = self.chance.lognormvariate(0.0, 0.08)
        if self.chance.random() < 0.03:
            noise *= self.chance.uniform(1.5, 3.0)
        seconds = SECONDS[self.setup] * noise * (1 + self.drift * self.index)
        wall = int(seconds * 1e9)
        return Step(self.index, wall, wall, {}, 1, 8, True)


def compete(contest: Contest, host: FakeHost) -> Contest:
    """Run a contest to its end."""
    over: list[Contest] = []

    def program():  # type: ignore[no-untyped-def]
        result = yield contest
        over.append(result)

    queued = host.queued if isinstance(host, Fed) else int
    settle = host.settle if isinstance(host, Launched) else float
    scheduler = Scheduler(host, program(), queued=queued, settle=settle)  # type: ignore[arg-type]
    while not scheduler.over:
        scheduler.on_step(host.step())
    assert host.setup == AS_IS
    return over[0]


class Launched(FakeHost):
    """Of fast steps nine are only launched, in no time, and the tenth waits for all of them."""

    asked_for: float = 0.0

    def settle(self) -> float:
        left, self.asked_for = self.asked_for, 0.0
        return left

    def step(self) -> Step:
        step = super().step()
        if self.setup == AS_IS:
            return replace(step, wall=int(1e8))
        if self.index % 2:
            self.asked_for = 9 * SECONDS[self.setup] - 0.09
            return replace(step, wall=int(1e7), count=9)
        return replace(step, wall=int(1e9 * (SECONDS[self.setup] + self.settle())))


@dataclass
class Fed(FakeHost):
    """Workers make a batch in ``made_s``, and as many ahead as the queue holds."""

    made_s: float = 0.06
    holds: int = 16
    ready: float = 0.0

    def queued(self) -> int:
        return int(self.ready)

    def step(self) -> Step:
        wait_s = max(0.0, 1.0 - self.ready) * self.made_s
        computed = super().step()
        seconds = wait_s + computed.wall / 1e9
        self.ready = min(self.holds, self.ready + seconds / self.made_s - 1.0)
        wall = int(seconds * 1e9)
        return Step(self.index, wall, wall, {}, 1, 8, True)


@pytest.mark.parametrize("holds", [2, 4, 16, 64])
@pytest.mark.parametrize(("made_s", "truth"), [(0.001, 0.1 / 0.03), (0.06, 0.1 / 0.06), (0.2, 1.0)])
def test_batches_made_beside_a_slower_arm_are_no_gain(
    monkeypatch: pytest.MonkeyPatch, holds: int, made_s: float, truth: float
) -> None:
    monkeypatch.setitem(SECONDS, FAST, 0.03)
    off = []
    for seed in range(20):
        host = Fed(made_s=made_s, holds=holds, ready=holds, chance=random.Random(seed))
        gain = compete(contest(FAST, rounds=8), host).gain("arm")
        off.append(gain.speedup / truth)
    assert 0.85 < statistics.median(off) < 1.15, off


@dataclass
class Short(Fed):
    """An epoch's batches, of which workers have made all by its begin."""

    epoch: int = 8

    def queued(self) -> int | None:  # type: ignore[override]
        return None

    def step(self) -> Step:
        self.ready = self.ready - 1.0 if self.ready > 1 else self.epoch
        return FakeHost.step(self)


def test_batches_of_an_epoch_whose_last_is_made_tell_nothing_of_how_fast_they_are_made() -> None:
    told = compete(contest(FAST, rounds=8), Short(ready=8))
    assert told.slower("as_is") == told.slower("arm") == 1.0
    assert told.gain("arm").speedup == pytest.approx(SECONDS[AS_IS] / SECONDS[FAST], rel=0.2)


def contest(arm: Setup, rounds: int = 21) -> Contest:
    return Contest({"as_is": AS_IS, "arm": arm}, 1e9, min_rounds=rounds, max_rounds=rounds)


def test_the_same_arm_twice_is_no_difference_in_95_percent_of_tries() -> None:
    tries, wrong = 300, 0
    for seed in range(tries):
        host = FakeHost(chance=random.Random(seed))
        gain = compete(contest(SAME), host).gain("arm")
        wrong += not gain.low <= 1.0 <= gain.high
    assert wrong <= 0.05 * tries + 2 * (0.05 * 0.95 * tries) ** 0.5


@pytest.mark.parametrize(("spent", "rounds"), [(0.0, 21), (1e9, 2)])
def test_a_contest_has_the_time_that_an_earlier_run_left_it(spent: float, rounds: int) -> None:
    gone_on = compete(replace(contest(SLOW), spent=spent), FakeHost())
    assert gone_on.rounds == rounds
    assert gone_on.spent >= spent


@pytest.mark.parametrize(("arm", "truth"), [(FAST, 1.25), (SLOW, 0.8)])
def test_a_difference_is_found(arm: Setup, truth: float) -> None:
    covered = 0
    for seed in range(40):
        gain = compete(contest(arm), FakeHost(chance=random.Random(seed))).gain("arm")
        assert gain.is_gain == (truth > 1)
        assert gain.is_harm == (truth < 1)
        covered += gain.low <= truth <= gain.high
    assert covered >= 36


def test_a_machine_that_slows_down_favours_no_arm() -> None:
    wrong = 0
    for seed in range(60):
        host = FakeHost(drift=0.01, chance=random.Random(seed))
        gain = compete(contest(SAME), host).gain("arm")
        wrong += not gain.low <= 1.0 <= gain.high
    assert wrong <= 7


def test_several_arms_and_one_that_died() -> None:
    arms = {
        "as_is": AS_IS,
        "fast": FAST,
        "slow": SLOW,
        "same": SAME,
        "dead": replace(AS_IS, threads=9),
    }
    wanted = Contest(arms, 1e9, min_rounds=8, max_rounds=8, failed={"dead": "exit code -9"})
    results = {arm.name: arm for arm in compete(wanted, FakeHost()).results()}
    assert results["dead"].failed == "exit code -9"
    assert results["fast"].gain.speedup > 1.1
    assert results["slow"].gain.speedup < 0.9


def test_a_hopeless_arm_leaves_its_time_to_the_others() -> None:
    """Not so a larger batch, whose time is wanted for itself."""
    arms = {"as_is": AS_IS, "fast": FAST, "slowest": SLOWEST, "larger": LARGER}
    found = compete(Contest(arms, 1e9, min_rounds=8, max_rounds=8), FakeHost())
    rounds = {arm.name: arm.rounds for arm in found.results()}
    assert rounds == {"fast": 8, "slowest": 2, "larger": 8}
    assert found.gain("slowest").speedup < 0.7


ROUND_S = 2.5
"""a round of all, at the most, with the steps after a switch"""


class Clock(FakeHost):
    """Each step takes as long as it says."""

    now = 0.0

    def step(self) -> Step:
        step = super().step()
        self.now += step.wall / 1e9
        return step


def timed(contest: Contest, seed: int, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Rounds of each arm, by the clock of its steps."""
    host = Clock(chance=random.Random(seed))
    monkeypatch.setattr("outpace.measure.arms.perf_counter", lambda: host.now)
    return {arm.name: arm.rounds for arm in compete(contest, host).results()}


def test_an_arm_that_seems_to_pay_has_more_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the time that is its own; slower ones have no more."""
    arms = {"as_is": AS_IS, "fast": FAST, "same": SAME, "slow": SLOW, "slower": SLOWER}
    more = sure = 0
    for seed in range(40):
        wanted = Contest(arms, 6.0)
        rounds = timed(wanted, seed, monkeypatch)
        slower = max(rounds["slow"], rounds["slower"])
        assert rounds["fast"] >= slower
        more += rounds["fast"] > slower
        sure += wanted.gain("fast").low > SURELY
        assert wanted.spent < 6.0 + ROUND_S + MORE * 6.0 + ROUND_S
    assert more > 15
    assert sure > 28  # 17 without


def test_an_arm_takes_no_more_rounds_than_it_is_worth() -> None:
    arms = {"as_is": AS_IS, "same": SAME, "fast": FAST}
    wanted = Contest(arms, 1e9, min_rounds=8, max_rounds=8, narrow=0.0, most_rounds={"same": 3})
    rounds = {arm.name: arm.rounds for arm in compete(wanted, FakeHost()).results()}
    assert rounds == {"same": 3, "fast": 8}


def test_steps_of_which_none_tells_anything_come_to_an_end() -> None:
    class NeverClean(FakeHost):
        def step(self) -> Step:
            return super().step().__class__(self.index, 1, 1, {}, 1, 8, False)

    found = compete(Contest({"as_is": AS_IS, "arm": FAST}, 0.0), NeverClean())
    assert found.pairs == {}


def test_epochs_that_begin_do_not_take_the_time_of_many_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr("outpace.measure.arms.perf_counter", lambda: now)
    contest = Contest({"as_is": AS_IS, "arm": SAME}, 4.0, max_rounds=60)
    host, over = FakeHost(), []

    def program():  # type: ignore[no-untyped-def]
        over.append((yield contest))

    scheduler = Scheduler(host, program())  # type: ignore[arg-type]
    while not scheduler.over:
        host.index += 1
        begins = host.index % 4 == 0
        now += 0.05 if begins else 0.001
        scheduler.on_step(Step(host.index, 1_000_000, 1_000_000, {}, 1, 8, not begins))
    assert now < 1.5 * contest.seconds, "a block of 120 steps takes 1.6 s with its epochs"
    assert contest.rounds >= 4


@pytest.mark.parametrize("clean", [3, 10], ids=["none of a block", "too few of a block"])
def test_steps_that_all_meet_something_else_end_a_contest(
    clean: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where short steps are noted in groups, and each group meets an epoch's start."""
    now = 0.0
    monkeypatch.setattr("outpace.measure.arms.perf_counter", lambda: now)
    over: list[Contest] = []

    def program():  # type: ignore[no-untyped-def]
        over.append((yield Contest({"as_is": AS_IS, "arm": SAME}, 1.0)))

    scheduler = Scheduler(FakeHost(), program())  # type: ignore[arg-type]
    for index in range(1000):
        now += 0.005
        scheduler.on_step(Step(index, 5_000_000, 5_000_000, {}, 1, 8, index < clean))
    assert scheduler.over
    assert over


@dataclass
class OnDevice(FakeHost):
    """A step is asked for in 8 ms and takes the device what its Setup says; so many may be waiting."""

    most_s: float = 0.24
    behind_s: float = 0.0

    def step(self) -> Step:
        work = super().step().wall / 1e9
        waits = self.setup == AS_IS  # it reads the loss
        seconds = 0.008
        self.behind_s += work - seconds
        if waits or self.behind_s > self.most_s:
            over = self.behind_s if waits else self.behind_s - self.most_s
            seconds, self.behind_s = seconds + over, self.behind_s - over
        wall = int(seconds * 1e9)
        return Step(self.index, wall, wall, {}, 1, 8, True)

    def settle(self) -> float:
        left_s, self.behind_s = self.behind_s, 0.0
        return left_s


def test_what_a_device_still_has_to_do_belongs_to_the_block() -> None:
    """Without a sync the host runs ahead: the training is no faster for that."""
    host, over = OnDevice(), []

    def program():  # type: ignore[no-untyped-def]
        over.append((yield contest(SAME, rounds=12)))

    scheduler = Scheduler(host, program(), settle=host.settle)  # type: ignore[arg-type]
    while not scheduler.over:
        scheduler.on_step(host.step())
    assert over[0].gain("arm").speedup == pytest.approx(1.0, abs=0.1)


def test_all_devices_that_a_model_is_on_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that is laid out over several; the current one is told by none."""
    waited: list[object] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    places = [SimpleNamespace(device=f"cuda:{n}", is_cuda=True) for n in (0, 1, 1)]
    model: Any = SimpleNamespace(parameters=lambda: places)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert settled(model) >= 0.0
    assert waited == [None]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    settled(model)
    assert waited[1] is None
    assert set(waited[2:]) == {"cuda:0", "cuda:1"}


def test_the_work_of_workers_that_are_replaced_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the next epoch begin at 0: the old ones' seconds would be taken from theirs."""
    host, over = FakeHost(), []
    anew = lambda: [int(host.setup == AS_IS and host.index % 3 == 0)]  # noqa: E731
    monkeypatch.setattr("outpace.measure.arms.cpu_ns", lambda pid: pid * 10**11)

    def program():  # type: ignore[no-untyped-def]
        over.append((yield contest(SAME, rounds=12)))

    scheduler = Scheduler(host, program(), workers=anew)  # type: ignore[arg-type]
    while not scheduler.over:
        scheduler.on_step(host.step())
    assert over[0].cpu_gain("arm").speedup == pytest.approx(1.0, abs=0.2)
    assert over[0].results()[0].cpu_seconds == pytest.approx(0.1, rel=0.2)


def test_groups_count_by_their_steps() -> None:
    """As on a GPU, where the host's clock tells little of a single one."""
    contest = Contest({"as_is": AS_IS, "fast": FAST}, 1e9, "test", max_rounds=6)
    found = compete(contest, Launched())
    assert found.gain("fast").speedup == pytest.approx(0.1 / 0.08, rel=0.02)


@pytest.mark.parametrize(
    ("setup", "steps", "told"),
    [(SLOWEST, 20, True), (SAME, 20, False), (SAME, 400, True), (SLOWEST, 6, False)],
    ids=["clear early", "unclear", "rounds enough", "hardly begun"],
)
def test_a_contest_that_the_target_ends_in(setup: Setup, steps: int, told: bool) -> None:
    """What is clear by then is over; what is not is given back, for the next run of the target."""
    contest, host, seen = Contest({"base": AS_IS, "arm": setup}, 1000.0), FakeHost(), []

    def program():  # type: ignore[no-untyped-def]
        seen.append((yield contest))
        yield Contest({"base": AS_IS}, 1.0)

    contest.narrow = 1e-9
    scheduler = Scheduler(host, program())  # type: ignore[arg-type]
    for _ in range(steps):
        scheduler.on_step(host.step())
    left = scheduler.cut_short()
    assert (seen, left) == (([contest], None) if told else ([], contest))
    scheduler.on_step(host.step())
    assert scheduler.cut_short() is None


@dataclass
class Played(FakeHost):
    """One step in sixteen has an episode in it, which takes as long as twenty steps."""

    def step(self) -> Step:
        self.index += 1
        seconds = 0.05 if self.chance.random() < 1 / 16 else 0.0025
        wall = int(seconds * SECONDS[self.setup] / 0.1 * 1e9)
        return Step(self.index, wall, wall, {}, 1, 8, True)


def test_steps_that_now_and_then_take_long_are_met_by_all_arms() -> None:
    """Blocks that are as short as one such step is long would hardly have one."""
    misled = 0
    for seed in range(40):
        wanted = Contest({"as_is": AS_IS, "same": SAME}, 1e9, min_rounds=12, max_rounds=12)
        gain = compete(wanted, Played(chance=random.Random(seed))).gain("same")
        misled += not gain.low < 1.0 < gain.high
    assert misled <= 4


def test_an_arm_that_may_be_much_faster_or_much_slower_tells_nothing() -> None:
    wanted = Contest({"as_is": AS_IS, "wild": SAME, "fast": FAST, "slow": SLOW}, 1e9)
    steady = [(0.2, 0.1, 0.2, 0.1), (0.21, 0.1, 0.21, 0.1), (0.19, 0.1, 0.19, 0.1)] * 4
    wanted.pairs = {
        "wild": [(0.6, 0.01, 0.6, 0.01), (0.01, 0.02, 0.01, 0.02)],
        "fast": steady,
        "slow": [(wall / 4, other, cpu / 4, other) for wall, other, cpu, _ in steady],
    }
    failed = {arm.name: arm.failed for arm in wanted.results()}
    assert failed == {"wild": TOO_FEW, "fast": None, "slow": None}


class Unfit(FakeHost):
    """Turns out not to bear one of the arms, at its first step."""

    def step(self) -> Step:
        if self.setup.fused:
            self.unfit = {"fused": "the model does not bear it"}
            self.setup = replace(self.setup, fused=None)
        return super().step()


def test_an_arm_that_the_target_does_not_bear_is_told_and_the_others_go_on() -> None:
    arms = {"as_is": AS_IS, "fast": FAST, "slow": SLOW, "both": replace(FAST, threads=1)}
    wanted = Contest(arms, 1e9, min_rounds=8, max_rounds=8)
    results = {arm.name: arm for arm in compete(wanted, Unfit()).results()}
    assert results["fast"].failed == results["both"].failed == "the model does not bear it"
    assert results["slow"].failed is None
    assert results["slow"].gain.speedup == pytest.approx(0.8, rel=0.1)
