"""Training until the time is up, on a clock that the test moves."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import outpace
from outpace.errors import UsageError
from outpace.plan.countdown import since_boot
from outpace.plan.schedule import Schedule, rate
from outpace.plan.until import until

SCHEDULES: tuple[Schedule, ...] = ("linear", "cosine", "one-cycle", "plateau")


class Clock:
    """Time that stands still but for steps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def sgd(lr: float = 0.4) -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedules_end_at_zero(schedule: Schedule) -> None:
    assert rate(schedule, 1.0) == pytest.approx(0.0)
    assert max(rate(schedule, i / 1000) for i in range(1001)) == pytest.approx(1.0)
    assert all(0.0 <= rate(schedule, i / 1000) <= 1.0 for i in range(-100, 1200))


@given(st.floats(0.02, 2.0), st.sampled_from(SCHEDULES))
def test_it_lands_just_before_the_time_is_up(step_s: float, schedule: Schedule) -> None:
    clock, optimizer, last = Clock(), sgd(), 0.4
    for _ in until(100.0, [1, 2, 3], optimizer=optimizer, schedule=schedule, clock=clock):
        clock.now += step_s
        last = optimizer.param_groups[0]["lr"]
    used = clock.now - 100.0
    assert 100.0 - 1.01 * step_s <= used <= 100.0 + 1e-6
    assert last < 0.4 * 3.1 * step_s / 100 + 1e-9


@pytest.mark.parametrize("leaves", [False, True])
def test_the_script_has_its_own_rates_again_after_the_loop(leaves: bool) -> None:
    """A second phase, or the next day's training, began at a rate of 0."""
    clock, optimizer = Clock(), sgd(0.4)
    for _ in until(100.0, [1], optimizer=optimizer, clock=clock):
        clock.now += 1.0
        if leaves and clock.now > 150.0:
            break
    assert optimizer.param_groups[0]["lr"] == 0.4
    for _ in until(10.0, [1], optimizer=optimizer, clock=clock):
        clock.now += 1.0


def test_a_machine_that_slows_down_trains_for_fewer_steps() -> None:
    clock, optimizer, rates = Clock(), sgd(), []
    for index, _ in enumerate(until("100s", [1], optimizer=optimizer, clock=clock)):
        rates.append(optimizer.param_groups[0]["lr"])
        clock.now += 0.5 if index < 100 else 1.0
    assert 99.0 <= clock.now - 100.0 <= 100.0
    assert len(rates) == pytest.approx(150, abs=2)
    assert rates[0] == pytest.approx(0.4)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.02 * 0.4


def test_a_pause_is_no_reason_to_end() -> None:
    """A process that was stopped for half a minute goes on for the rest of its time."""
    clock = Clock()
    for index, _ in enumerate(until(100.0, [1], clock=clock)):
        clock.now += 30.0 if index == 20 else 0.5
    assert 99.0 <= clock.now - 100.0 <= 100.0


def test_a_reserve_is_left() -> None:
    clock = Clock()
    for _ in until("2m", [1], reserve="30s", clock=clock):
        clock.now += 0.1
    assert clock.now - 100.0 == pytest.approx(90.0, abs=0.2)


def test_groups_keep_their_own_rates() -> None:
    clock = Clock()
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizer = torch.optim.SGD(
        [{"params": [parameters[0]], "lr": 1.0}, {"params": [parameters[1]]}], 0.1
    )
    for index, _ in enumerate(until(10.0, [1], optimizer=optimizer, clock=clock)):
        clock.now += 0.1
        if index == 50:
            first, second = (group["lr"] for group in optimizer.param_groups)
            assert first == pytest.approx(10 * second)


def test_groups_that_join_and_states_that_are_loaded() -> None:
    clock, optimizer, seen = Clock(), sgd(0.4), []
    for index, _ in enumerate(until(10.0, [1], optimizer=optimizer, clock=clock)):
        clock.now += 0.1
        if index == 20:
            late = torch.nn.Parameter(torch.zeros(1))
            optimizer.add_param_group({"params": [late], "lr": 0.1})
        elif index == 40:
            optimizer.load_state_dict(optimizer.state_dict())
        elif index in (30, 60):
            seen.append([group["lr"] for group in optimizer.param_groups])
    assert [first for first, _ in seen] == [
        pytest.approx(0.4 * s, rel=0.01) for s in (0.687, 0.384)
    ]
    assert [second for _, second in seen] == [
        pytest.approx(0.1 * s, rel=0.01) for s in (0.687, 0.384)
    ]


def test_a_group_that_is_taken_out_leaves_the_others_their_rates() -> None:
    clock, optimizer, seen = Clock(), sgd(1.0), []
    late = torch.nn.Parameter(torch.zeros(1))
    optimizer.add_param_group({"params": [late], "lr": 0.1})
    for index, _ in enumerate(until(10.0, [1], optimizer=optimizer, clock=clock)):
        clock.now += 0.1
        if index == 20:
            optimizer.param_groups.pop(0)
        elif index == 30:
            seen = [group["lr"] for group in optimizer.param_groups]
    assert seen == [pytest.approx(0.0687, rel=0.01)]


def test_the_time_goes_on_while_the_machine_sleeps() -> None:
    assert inspect.signature(until).parameters["clock"].default is since_boot


def test_a_rate_in_a_tensor_stays_there() -> None:
    clock = Clock()
    optimizer = torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))], torch.tensor(0.4))
    kept, last = optimizer.param_groups[0]["lr"], 0.4
    for _ in until(10.0, [1], optimizer=optimizer, clock=clock):
        clock.now += 1.0
        last = float(kept)
    assert optimizer.param_groups[0]["lr"] is kept
    assert last < 0.05
    assert float(kept) == pytest.approx(0.4)


def test_every_epoch_is_shuffled_anew() -> None:
    clock = Clock()
    data = TensorDataset(torch.arange(6))
    loader = DataLoader(data, sampler=DistributedSampler(data, num_replicas=1, rank=0, seed=0))
    seen = []
    for (x,) in until(17.5, loader, clock=clock):
        clock.now += 1.0
        seen.append(int(x))
    assert sorted(seen[:6]) == sorted(seen[6:12]) == list(range(6))
    assert seen[:6] != seen[6:12]


@pytest.mark.parametrize(
    ("budget", "more"),
    [
        ("soon", {}),
        (0.0, {}),
        ("1h", {"reserve": "1h"}),
        ("1h", {"reserve": "soon"}),
        ("1h", {"schedule": "sawtooth"}),
    ],
)
def test_what_cannot_be_kept(budget: str | float, more: dict[str, str]) -> None:
    with pytest.raises(UsageError):
        until(budget, [1], **more)  # type: ignore[arg-type]


def test_a_loader_without_batches() -> None:
    with pytest.raises(UsageError, match="no batch") as told:
        list(until(10.0, []))
    assert "used once" in (told.value.hint or "")


def test_it_is_public() -> None:
    assert outpace.until is until


def test_several_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    with pytest.raises(UsageError, match="several train together"):
        until(10.0, [1])


def test_an_iterator_that_is_used_up_ends_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    """What the script saves after it was lost, as an error came out of the loop."""
    clock = Clock()

    def once() -> Iterator[int]:
        for index in (1, 2):
            yield index
            clock.now += 1200.0

    batches = until("2h", once(), clock=clock)
    assert [next(batches), next(batches)] == [1, 2]
    assert list(batches) == []
    told = capsys.readouterr().err
    assert "used up after 40m of 2h: training ends here" in told
    assert "used once" in told


def test_a_slow_first_step_is_no_reason_to_end() -> None:
    """It compiles: of the next one, which takes a second, it tells nothing."""
    clock = Clock()
    for index, _ in enumerate(until(100.0, [1], clock=clock)):
        clock.now += 51.0 if index == 0 else 1.0
    assert 98.0 <= clock.now - 100.0 <= 100.0


def test_an_optimizer_that_finds_its_rate_itself() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    optimizer.param_groups[0]["lr"] = None
    with pytest.raises(UsageError, match="SGD finds its rate itself"):
        until(10.0, [1], optimizer=optimizer)


def test_a_rate_that_would_stay_zero_is_refused() -> None:
    """As a schedule leaves it that warms up from there: it is taken for the largest."""
    optimizer = sgd()
    torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 10)
    with pytest.raises(UsageError, match="rate is 0 at the first batch"):
        next(iter(until(10.0, [1], optimizer=optimizer, clock=Clock())))
