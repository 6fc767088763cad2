"""Evidence about the input: how many epochs a run has, and who draws from a data set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.conftest import evidence_of, with_entry
from tests.remedies.trainings import hosted
from torch.utils.data import DataLoader, Subset, TensorDataset

from outpace.measure.collect_input import _epochs, _made_by_lines, _shared
from outpace.measure.length import Loop
from outpace.measure.sampler import Line


@pytest.mark.parametrize(
    ("loops", "total", "epochs"),
    [
        ([Loop(200, True)], 200, 10),  # a library's loop, or one around next()
        ([Loop(20, True), Loop(10, True)], 200, 10),
        ([Loop(200, True)], 210, 11),
        ([Loop(None, False), Loop(5, True)], 100, 5),
        ([Loop(None, False), Loop(50, True)], 100, 5),  # a count ends it before
        ([Loop(None, False, loader=True)], None, 1),
        ([Loop(None, False)], None, None),  # over cycle(loader), say
        ([Loop(None, False)], 100, 5),
        ([Loop(None, False, while_=True)], 100, 5),  # around next()
        ([Loop(200, True)], None, None),
        ([], None, None),
    ],
)
def test_epochs_by_the_loops_and_by_the_steps(
    loops: list[Loop], total: int | None, epochs: int | None
) -> None:
    course = SimpleNamespace(loops=loops)
    watcher: Any = SimpleNamespace(course=course, total_steps=lambda micro_steps: total)
    assert _epochs(watcher, 20.0, 1) == epochs


def test_epochs_of_unknown_length_are_not_counted() -> None:
    course = SimpleNamespace(loops=[Loop(200, True)])
    watcher: Any = SimpleNamespace(course=course, total_steps=lambda micro_steps: 200)
    assert _epochs(watcher, None, 1) is None


def test_lines_that_make_the_input_are_told_from_others_beside_the_seams() -> None:
    """A batch is made over at line 5, which calls line 2; line 6 makes a loss, line 7 prints."""

    def at(*frames: tuple[str, int], phase: str = "elsewhere") -> Line:
        return Line(phase, "train.py", "f", tuple(("train.py", name, n) for name, n in frames))

    samples = Counter(
        {
            at(("augment", 2), ("main", 5)): 30,
            at(("main", 6)): 15,
            at(("main", 7)): 15,
            at(("main", 5), phase="input"): 40,
        }
    )
    lines = {("train.py", "main", 5), ("train.py", "main", 6)}
    made, share = _made_by_lines(samples, lines, {("train.py", "main", 6)})
    assert (made.total(), share) == (30, 0.5)
    assert _made_by_lines(Counter(), lines, set()) == (Counter(), 0.0)


@pytest.mark.parametrize("whole", [True, False])
def test_parts_of_one_data_set_are_shared(whole: bool) -> None:
    """As by `random_split`: what the script sets of the whole is set for both."""
    data = TensorDataset(torch.arange(8.0))
    with hosted() as host:
        train = DataLoader(Subset(data, range(6)), batch_size=2)
        other = data if whole else TensorDataset(torch.arange(2.0))
        valid = DataLoader(Subset(Subset(other, range(2)), [0]))
        assert not _shared(host, train), "nothing is drawn yet"
        assert list(train)
        assert list(valid)
        assert _shared(host, train) is whole


COLLATES = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset, default_collate

    class Collate:
        def __init__(self, **options):
            self.__dict__["options"] = options

        def __getattr__(self, name):
            return self.options[name]

        def __call__(self, samples):
            return default_collate(samples)

    loader = DataLoader(TensorDataset(torch.randn(64, 4)), 8, collate_fn=Collate(pad=0))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(2):
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
    """


def test_a_collate_function_that_raises_for_a_name(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    code, printed = with_entry(script(COLLATES), tmp_path / "session")
    assert code == 0, printed
    assert evidence_of(tmp_path / "session").input.kind == "loader"


SLOW_FIRST = """
    import time

    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Model(torch.nn.Linear):
        waits = False

        def forward(self, x):
            time.sleep(0.25 if self.waits else 0.0)
            self.waits = False
            return super().forward(x)

    model = Model(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.randn(48, 8)), batch_size=8, num_workers=WORKERS)
    for epoch in range(5):
        model.waits = True
        for (x,) in loader:
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
"""


@pytest.mark.parametrize("workers", [pytest.param(0, marks=pytest.mark.slow), 1])
def test_what_an_epochs_first_step_computes_longer_is_of_the_workers_start(
    script: Callable[[str], Path], tmp_path: Path, workers: int
) -> None:
    """Memory that a forked worker shares is copied there, page by page: here it sleeps instead."""
    path, session = script(SLOW_FIRST.replace("WORKERS", str(workers))), tmp_path / "session"
    code, said = with_entry(path, session)
    assert code == 0, said
    evidence = evidence_of(session)
    if workers:
        assert evidence.input.forked_s == pytest.approx(0.25, abs=0.1)
        assert evidence.input.epoch_start_s > evidence.input.forked_s
        assert evidence.run.starts_s > 5 * evidence.input.forked_s
    else:
        assert evidence.input.forked_s == 0.0
