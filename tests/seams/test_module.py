"""The model's call, watched: torch's own tools and any argument get through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.conftest import with_entry

PROFILED = """
    import torch
    from torch.profiler import ProfilerActivity, profile

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, module, original):
            return self.layer(module) + original

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiler:
        for _ in range(8):
            optimizer.zero_grad()
            net(original=1.0, module=torch.ones(2, 4)).sum().backward()
            optimizer.step()
    print(sum("Linear" in event.name for event in profiler.events()) > 0)
"""


def test_a_profiler_that_looks_for_modules_in_their_frames(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    code, printed = with_entry(script(PROFILED), tmp_path / "session")
    assert code == 0, printed
    assert "True" in printed
