"""A training in a thread of its own is watched there."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.conftest import evidence_of, outpace, plainly, with_entry
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.epoch import Epoch
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.loss import LossSeam
from outpace.seams.optimizer import OptimizerSeam


def train(steps: int = 8) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(TensorDataset(torch.randn(2 * steps, 4)), batch_size=2)
    for (x,) in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def in_thread(work: Callable[[], None]) -> int:
    idents: list[int] = []

    def run() -> None:
        idents.append(threading.get_ident())
        work()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return idents[0]


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    for seam in (LoaderSeam(host), LossSeam(host), OptimizerSeam(host)):
        host.add(seam)
    host.install()
    yield host
    host.remove()
    assert host.broken == {}


def test_the_thread_that_steps_is_the_one_that_trains(host: Host) -> None:
    """The epoch that had begun by then is known from its second batch on."""
    here, learnt_from = host.phases.owner, []
    host.listeners.append(lambda _: learnt_from.append(host.drawn.learnt_from))
    ident = in_thread(train)
    assert host.phases.owner == ident != here
    assert (host.steps, host.backwards, host.phases.stack) == (8, 7, [])
    record = learnt_from[-1]
    assert record is not None
    assert (record.trains, record.epochs, record.given) == (True, 1, 8)


def test_a_thread_that_draws_of_a_feed_leaves_the_phases_alone(host: Host) -> None:
    """While it drew, the model was called as inside of a data set, by chance."""
    seam = host.seam(LoaderSeam)
    assert seam is not None
    loader: DataLoader[Any] = DataLoader([0, 1])  # type: ignore[arg-type]
    drawn: list[Any] = []
    epoch = Epoch(seam, seam.record_of(loader), loader, lambda: iter([1, 2]))
    seam.draw = lambda *_: pytest.fail("its phase was told")  # type: ignore[method-assign]
    in_thread(lambda: drawn.extend(epoch))
    assert drawn == [1, 2]


def test_a_thread_beside_a_training_is_not(host: Host) -> None:
    here = host.phases.owner
    train()
    in_thread(train)
    assert (host.phases.owner, host.steps) == (here, 8)


def test_one_that_makes_its_first_step_while_another_trains_is_not(host: Host) -> None:
    first, over = threading.Event(), threading.Event()

    def holds() -> None:
        train(2)
        first.set()
        over.wait(60)

    thread = threading.Thread(target=holds)
    thread.start()
    first.wait(60)
    in_thread(train)
    train()
    assert host.steps == 2
    over.set()
    thread.join()
    train()
    assert (host.phases.owner, host.steps) == (threading.get_ident(), 10)


def test_a_thread_that_only_draws_leaves_it_to_the_one_that_steps(host: Host) -> None:
    """As one that draws batches ahead does."""

    def draw() -> None:
        for _ in DataLoader(torch.zeros(4, 1)):
            pass

    in_thread(draw)
    train()
    assert (host.phases.owner, host.steps) == (threading.get_ident(), 8)


SCRIPT = """
    import threading, time
    import torch
    from torch.utils.data import DataLoader, Dataset
    torch.manual_seed(0)

    class Slow(Dataset):
        def __len__(self):
            return LENGTH
        def __getitem__(self, index):
            time.sleep(0.002)
            return torch.full((4,), float(index))

    def main():
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 1e-9)
        for x in DataLoader(Slow(), batch_size=8):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            print(repr(loss.item()))

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    """


def test_it_is_watched_as_it_is(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script(SCRIPT.replace("LENGTH", "160"))
    plain = plainly(path)
    code, printed = with_entry(path, tmp_path / "session")
    assert (code, printed) == (0, plain.stdout)
    evidence = evidence_of(tmp_path / "session")
    assert (evidence.steps.count, evidence.run.total_steps) == (20, 20)
    assert evidence.input.batches == 20
    places = [place for place, _ in evidence.input.places]
    assert any(place.endswith("train.py:11") for place in places), places


@pytest.mark.slow
def test_its_bound_is_found(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script(SCRIPT.replace("LENGTH", "10**7"))
    done = outpace("diagnose", "--json", "--time", "8s", str(path), cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["outcome"], found["bound"]) == ("done", "io"), done.stderr
    assert found["findings"][0]["gain"]["speedup"] > 2
