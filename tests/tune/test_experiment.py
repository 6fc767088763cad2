"""``outpace diagnose`` of trainings in whose every step something else happens: it comes to an end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import evidence_of, outpace

TRAINING = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(256, 16), torch.randint(0, 4, (256,)))
    x, y = data.tensors
    model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(x, y):
        model.train()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    def validate():
        model.eval()
        with torch.no_grad():
            return (model(x).argmax(1) == y).float().mean()

    for epoch in range(1_000_000):
"""
BATCHES = """\
        for batch in DataLoader(data, batch_size={}):
            step(*batch)
"""
VALIDATED = """\
        step(x, y)
        validate()
"""
SAVED = """\
        step(x, y)
        torch.save(model.state_dict(), "last.pt")
"""


@pytest.mark.parametrize(
    ("epoch", "in_every_step"),
    [
        (BATCHES.format(256), True),
        (BATCHES.format(8), False),
        (VALIDATED, True),
        (SAVED, True),
    ],
    ids=["one batch", "as many batches as a group", "validated", "saved"],
)
def test_what_happens_in_every_step(
    script: Callable[..., Path], tmp_path: Path, epoch: str, in_every_step: bool
) -> None:
    path = script(TRAINING + epoch)
    session = tmp_path / "session"
    words = ("diagnose", "--json", "--quiet", "--time", "3s", "--session", str(session), str(path))
    done = outpace(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    evidence = evidence_of(session)
    assert evidence.steps.mingled == in_every_step
    assert evidence.arm("seams_off") is not None
