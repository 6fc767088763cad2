"""A process that observes its target, and how that ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import evidence_of, with_entry

TRAINING = """
    import sys
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(20):
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
        if step == {at}:
            raise ValueError("broken")
    """


@pytest.mark.parametrize(("at", "finished"), [(12, False), (-1, True)])
def test_a_training_that_broke_off_was_not_seen_to_its_end(
    at: int, finished: bool, script: Callable[[str], Path], tmp_path: Path
) -> None:
    code, text = with_entry(script(TRAINING.format(at=at)), tmp_path / "session")
    assert (code == 0) == finished, text
    evidence = evidence_of(tmp_path / "session")
    assert evidence.run.finished == finished
    assert evidence.run.total_steps == 20
