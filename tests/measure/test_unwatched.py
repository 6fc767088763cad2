"""A training that is not watched is told of as such."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.conftest import outpace

BY_HAND = """
    import threading
    import torch
    def train():
        weight = torch.ones(4, requires_grad=True)
        for step in range(30):
            (weight * torch.randn(4)).sum().backward()
            weight.data -= 0.1 * weight.grad
            weight.grad = None
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    """

SPAWNED = """
    import torch
    import torch.multiprocessing as mp
    def main(rank):
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(30):
            model(torch.randn(8, 4)).sum().backward()
            optimizer.step()
    if __name__ == "__main__":
        mp.spawn(main, nprocs=1)
    """


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BY_HAND, "30 backward passes came there"),
        (SPAWNED, "a training in one of them is not watched"),
    ],
)
def test_another_thread_or_process(
    text: str, said: str, script: Callable[[str], Path], tmp_path: Path
) -> None:
    done = outpace("diagnose", "--json", str(script(text)), cwd=tmp_path)
    found = json.loads(done.stdout)
    assert found["outcome"] == "no training", done.stderr
    assert said in " ".join(found["notes"])
