"""Ranks that land at the same step, at the same rates."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from outpace.plan.crew import NEVER, TRIES, Crew, Orders, steps_between

SCRIPT = """
import time
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

distributed.init_process_group("gloo")
torch.set_num_threads(1)
rank = distributed.get_rank()
torch.manual_seed(0)
x = torch.randn(400, 8)
data = TensorDataset(x, x.sum(1, keepdim=True))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=4, sampler=sampler)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
steps = 0
for epoch in range(100000):
    sampler.set_epoch(epoch)
    for a, b in loader:
        time.sleep(0.004 * (1 + rank))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(a), b).backward()
        optimizer.step()
        steps += 1
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
torch.save({"steps": steps, "weights": weights}, f"rank-{rank}.pt")
distributed.destroy_process_group()
"""


class Store:
    """What all ranks read and write."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.values[key] = value

    def get(self, key: str) -> str:
        return self.values[key]

    def check(self, keys: list[str]) -> bool:
        return all(key in self.values for key in keys)


class Failing(Store):
    """Some reads of it fail before one does not."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def get(self, key: str) -> str:
        self.fails -= 1
        if self.fails >= 0:
            raise RuntimeError("wait timeout")
        return super().get(key)


def test_the_others_do_as_the_first_says() -> None:
    store = Store()
    leader, follower = Crew(store, 0), Crew(store, 1)
    orders = Orders(step=8, then=20, share=0.25, slope=0.01, end=20)
    assert leader.meet(8, lambda: orders) == orders

    def never() -> Orders:
        raise AssertionError

    assert follower.meet(8, never) == orders


def test_orders_that_cannot_be_read_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("outpace.plan.crew.AGAIN_S", 0.0)
    for fails in (2, 3):
        store, orders = Failing(fails), Orders(step=8, then=20)
        Crew(store, 0).meet(8, lambda orders=orders: orders)
        if fails < TRIES:
            assert Crew(store, 1).meet(8, Orders) == orders
        else:
            with pytest.raises(RuntimeError, match="wait timeout"):
                Crew(store, 1).meet(8, Orders)


def test_where_one_gives_up_none_goes_on() -> None:
    store = Store()
    leader, follower = Crew(store, 0), Crew(store, 1)
    follower.give_up()
    assert leader.meet(8, lambda: Orders(8, 20, 0.5)) == Orders(8, NEVER)
    assert follower.meet(8, Orders) == Orders(8, NEVER)


def test_shares_between_meetings() -> None:
    orders = Orders(step=10, then=20, share=0.5, slope=0.1)
    assert orders.share_at(10) == 0.5
    assert orders.share_at(13) == pytest.approx(0.8)
    assert orders.share_at(19) == 1.0
    assert Orders().share_at(5) is None


@pytest.mark.parametrize(("step_s", "steps"), [(1e-9, 500), (0.1, 10), (7.0, 1)])
def test_they_meet_about_once_a_second(step_s: float, steps: int) -> None:
    assert steps_between(step_s) == steps


@pytest.mark.slow
def test_two_ranks_land(script: Callable[..., Path], torchrun: list[str]) -> None:
    path = script(SCRIPT)
    words = [*torchrun, str(path)]
    line = [sys.executable, "-m", "outpace", "run", "--deadline", "22s", "--land", "--", *words]
    done = subprocess.run(
        line, cwd=path.parent, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode in (0, 3), done.stderr  # a machine that stalls at the end is late
    found = [torch.load(path.with_name(f"rank-{rank}.pt")) for rank in (0, 1)]
    assert found[0]["steps"] == found[1]["steps"] > 50
    assert torch.equal(found[0]["weights"], found[1]["weights"])
    assert done.stderr.count("landing: the learning rate goes down") == 1
    assert done.stderr.count("the time is up after") == 1
    saved = torch.load(path.parent / ".outpace/last-run/safety.pt", weights_only=True)
    assert saved["steps"] == found[0]["steps"]
