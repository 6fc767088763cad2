"""What fits in memory: told before it is taken, and tried where it harms nothing."""

from __future__ import annotations

import os
import resource
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import nn

from outpace.measure.growth import heap_free_bytes
from outpace.serve.loader import Loader
from outpace.train import fits
from outpace.train.fits import Fits, measured, memory_law, survives
from outpace.train.progress import Telling
from outpace.train.strategies import BatchSize, Constant
from outpace.train.twin import Twin, sized
from tests.train.launching import printed_by
from tests.train.toys import Size, convolutional, fit, images, points, ready, trainer

MB = 1 << 20


class Waves(nn.Module):
    """Keeps 64 kB of activations for each sample, of next to no weights and arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 2048), nn.Linear(2048, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for _ in range(7):
            x = torch.sin(x)
        found: torch.Tensor = self.last(x)
        return found


def twin(**given: Any) -> Twin:
    return Twin(trainer(**given).put_together(Telling(quiet=True)))


def wide() -> nn.Module:
    """Weights take more than what a small batch leaves behind."""
    return nn.Sequential(
        nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 3)
    )


@pytest.mark.parametrize(
    ("make", "batches"), [(wide, ready), (Waves, ready), (convolutional, images)]
)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_lines_through_small_batches_hold_for_large_ones(
    make: Callable[[], nn.Module], batches: Callable[[], Any], kind: Any
) -> None:
    net = make()
    copy = twin(model=net, train=batches(), optimizer=kind(net.parameters(), 0.01))
    batch = batches()[0]
    law = memory_law(copy, batch, 2048)
    for size in (1024, 4096):
        seen = measured(copy, sized(batch, size))
        assert law.peak(size) == pytest.approx(seen.lasting + seen.above, rel=0.03)


def test_small_batches_are_enough() -> None:
    """What is measured in place takes little of the room."""
    copy = twin(model=Waves())
    sizes: list[int] = []
    step = copy.step

    def stepped(batch: Any, *, alone: bool = False) -> None:
        sizes.append(len(batch[0]))
        step(batch, alone=alone)

    copy.step = stepped  # type: ignore[method-assign]
    memory_law(copy, ready()[0], 1_000_000)
    assert max(sizes) <= 32


@pytest.mark.parametrize(("seconds", "sizes"), [(100.0, [2, 8]), (700.0, [2, 8, 32]), (1e9, None)])
def test_no_step_is_measured_for_which_there_is_no_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, sizes: list[int] | None
) -> None:
    """A model whose step takes a second a sample, and most of its memory whatever the batch."""
    now, tried = [0.0], []

    def seen(_: Twin, batch: Any) -> fits.Seen:
        size = len(batch[0])
        tried.append(size)
        now[0] += 5.0 * size
        return fits.Seen(size, 0, 1_000_000 + size, 0, 0)

    monkeypatch.setattr(fits, "measured", seen)
    monkeypatch.setattr(fits.time, "monotonic", lambda: now[0])
    memory_law(twin(), ready()[0], 5000, seconds)
    assert tried == (sizes or [2, 8, 32, 128, 512, 2048])


def state() -> Any:
    """What a fork must not change."""
    children = {child.pid for child in psutil.Process().children()}
    return resource.getrlimit(resource.RLIMIT_AS), torch.get_num_threads(), children


def raises() -> None:
    raise ValueError


@pytest.mark.parametrize(
    ("act", "room", "good"),
    [
        (lambda: torch.ones(16 * MB), 100 * MB, True),
        (lambda: torch.ones(16 * MB + heap_free_bytes() // 4), 50 * MB, False),
        (lambda: None, 50 * MB, True),
        (raises, 50 * MB, False),
        (lambda: sys.exit(0), 50 * MB, False),
        (lambda: os.kill(os.getpid(), 9), 50 * MB, False),
        (lambda: time.sleep(60), 50 * MB, False),
    ],
)
def test_a_fork_tells_how_it_went(act: Callable[[], None], room: int, good: bool) -> None:
    before = state()
    room += 2 * heap_free_bytes() if good else 0
    assert bool(survives(act, room, 2.0 if good else 0.5)) == good
    assert state() == before


def test_a_fork_that_is_waited_for_in_vain_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    sleep, before = time.sleep, state()
    monkeypatch.setattr(fits.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        survives(lambda: sleep(60), 50 * MB, 60.0)
    assert state() == before


@pytest.mark.parametrize("forks", [True, False])
@pytest.mark.parametrize("wrong", [1.0, 0.4])
def test_what_is_said_to_fit_does(
    monkeypatch: pytest.MonkeyPatch, forks: bool, wrong: float
) -> None:
    """Also where the prediction is wrong, as a fork tells; nothing larger is ever tried in place."""
    room = 64 * MB + heap_free_bytes()
    monkeypatch.setattr(fits, "free_bytes", lambda device: room)
    if not forks:
        monkeypatch.delattr(os, "fork")
    copy = twin(model=Waves())
    if wrong < 1.0 and forks:
        law = fits.memory_law

        def too_low(*given: Any) -> Any:
            found = law(*given)
            line = fits.Line(found.learning.fixed, wrong * found.learning.slope)
            return fits.StepLaw(found.lasting, line, found.optimizer, found.data)

        monkeypatch.setattr(fits, "memory_law", too_low)
    asked = Fits(copy, ready()[0], 100_000)
    assert asked.forks == forks
    size = asked.largest(asked.predicted)
    above = measured(copy, sized(ready()[0], size)).above
    assert above <= room
    assert above > 0.2 * room  # what is free comes in pieces
    assert asked(size)
    assert not asked(4 * size)
    assert asked.tried == size


def test_never_more_than_there_are_samples() -> None:
    asked = Fits(twin(), ready()[0], 240)
    assert asked.predicted == 240
    assert asked.largest(240) == 240


def test_where_even_little_does_not_fit_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fits, "free_bytes", lambda device: 1000)
    asked = Fits(twin(), ready()[0], 240)
    assert asked.predicted == asked.largest(asked.predicted) == 0


def test_training_takes_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that the user asked for, and that has no room, is made smaller."""
    monkeypatch.setattr(fits, "free_bytes", lambda device: 8 * MB)
    train = Loader(torch.utils.data.TensorDataset(*points(4000)), 2000, executor="none")
    result = fit(model=Waves(), train=train, epochs=30, steps=65, valid=None, metric=None,
                 callbacks=[at_end := Size()],
                 strategies=[BatchSize(), Constant(rate=0.001)])  # fmt: skip
    assert at_end.samples < 150
    assert "memory has no room for 2,000" in result.notes[0]


SCRIPT = """
import resource
from pathlib import Path
import torch
from outpace.serve.loader import Loader
from outpace.train.strategies import BatchSize, Constant
from tests.train.test_fits import Waves
from tests.train.toys import points, trainer
torch.set_num_threads(1)
torch.optim.AdamW([torch.zeros(1, requires_grad=True)])
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + (200 << 20),) * 2)
data = torch.utils.data.TensorDataset(*points(20_000))
train = Loader(data, 64, executor="none")


class Stop:
    def step_end(self, run):
        global size
        size = train.batch_size
        if run.step == 2:
            run.stop("enough")


trainer(model=Waves(), train=train, steps=60, valid=None, metric=None,
        strategies=[BatchSize("largest"), Constant(rate=0.001)], callbacks=[Stop()]).fit()
x, y = points(20_000)
net = Waves()
try:
    torch.nn.functional.cross_entropy(net(x[:2 * size]), y[:2 * size]).backward()
    print(size, "and twice as many")
except RuntimeError:
    print(size)
"""


@pytest.mark.slow
def test_a_planted_limit_is_found_and_never_met(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(textwrap.dedent(SCRIPT))
    assert 500 < int(printed_by([sys.executable, script])) < 4000


def test_a_try_that_takes_too_long_is_not_taken_for_one_without_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[float] = []

    def slow(act: Any, room: int, patience_s: float) -> bool | None:
        if not tried and patience_s == fits.FIRST_PATIENCE_S:
            return True
        tried.append(patience_s)
        return None

    monkeypatch.setattr(fits, "survives", slow)
    monkeypatch.setattr(fits, "SAFE", 0.0)
    given = Fits(twin(model=Waves()), ready()[0], 64, 30.0)
    assert given.largest(64) == 0
    assert given.late
    assert len(tried) == 1
