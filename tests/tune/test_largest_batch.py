"""The largest batch that is told to fit on a GPU was run there."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from outpace.adapters.target import parse_target
from outpace.adapters.work import working
from outpace.api import sizes
from outpace.api.sizing import tried
from outpace.plan.room import law_of, memory_plan
from outpace.records.plan import Sizes

SCRIPT = """\
import torch
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("{device}")
if device.type == "cuda":
    share = 512 * 2**20 / torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(share)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 4096), torch.nn.Linear(4096, 2)

    def forward(self, x):
        if len(x) > {most}:
            raise torch.OutOfMemoryError("scratch memory")
        return self.b(self.a(x).relu())

model = Net().to(device)
optimizer = torch.optim.Adam(model.parameters())
data = TensorDataset(torch.randn(640, 8), torch.randint(2, (640,)))
for epoch in range(20):
    for x, y in DataLoader(data, batch_size=16):
        try:
            loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        except torch.OutOfMemoryError:
            {then}
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def written(script: Callable[..., Path], device: str, most: int, then: str = "raise") -> Path:
    return script(SCRIPT.format(device=device, most=most, then=then))


def known(path: Path, told: int) -> tuple[Sizes, Sizes]:
    """Before any try and after, as if the CPU were a GPU with room for so many samples."""
    target, session = parse_target([str(path)]), path.parent / "session"
    found = sizes(target, session=session)
    assert not found.may_try
    found = replace(found, may_try=True, limit=law_of(found).needs(told))
    with working(target, session, "stderr", None) as work:
        return found, tried(work, found)


def test_the_batch_that_is_told_is_tried(script: Callable[..., Path]) -> None:
    """And it is followed, so that one that takes less than was told leads to a larger one."""
    before, after = known(written(script, "cpu", 100_000), 600)
    assert memory_plan(before, None, None, 1).largest_batch == 600
    assert (after.fitted, after.failed) == (600, None)
    assert [step.batch for step in after.steps] == [16, 32, 600]
    assert after.steps[-1].peak == pytest.approx(law_of(before).peak(600), rel=0.02)
    assert memory_plan(after, None, None, 1).largest_tried


@pytest.mark.slow
def test_batches_of_other_sizes_are_as_large_as_any(script: Callable[..., Path]) -> None:
    """Where no batch of a run need have as many samples as the largest of another."""
    path = written(script, "cpu", 599)
    text = path.read_text().replace(
        "DataLoader(data, batch_size=16)", "DataLoader(data, batch_sampler=uneven)"
    )
    uneven = "uneven = [range(n, n + 9 + n % 7) for n in range(0, 600, 5)]\nfor epoch"
    path.write_text(text.replace("for epoch", uneven))
    _, after = known(path, 600)
    assert after.failed == 600
    assert after.fitted is None or after.fitted < 600


@pytest.mark.slow
@pytest.mark.parametrize("then", ["raise", "continue"])
def test_less_is_tried_where_one_does_not_fit(script: Callable[..., Path], then: str) -> None:
    """Whatever the script makes of that."""
    _, after = known(written(script, "cpu", 560, then), 600)
    assert (after.fitted, after.failed) == (540, 600)
    plan = memory_plan(after, None, None, 1)
    assert (plan.largest_batch, plan.largest_tried) == (540, True)


def memory_of(path: Path) -> dict[str, Any]:
    line = [sys.executable, "-m", "outpace", "plan", "--memory", "--json", "--quiet", str(path)]
    done = subprocess.run(line, cwd=path.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return dict(json.loads(done.stdout)["memory"])


@pytest.mark.gpu
def test_the_largest_batch_of_a_gpu_runs_there(script: Callable[..., Path]) -> None:
    path = written(script, "cuda", 100_000)
    memory = memory_of(path)
    assert memory["largest_tried"]
    path.write_text(
        path.read_text()
        .replace("batch_size=16", f"batch_size={memory['largest_batch']}")
        .replace("640", str(memory["largest_batch"]))
    )
    subprocess.run([sys.executable, path], check=True)


@pytest.mark.gpu
def test_less_is_tried_on_a_gpu(script: Callable[..., Path]) -> None:
    memory = memory_of(written(script, "cuda", 9000))
    assert 7000 < memory["largest_batch"] <= 9000
    assert memory["largest_tried"]
