"""Several ranks: when the arms begin and end, and what they tell."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from outpace.seams.collective import CollectiveSeam
from outpace.seams.host import Host
from outpace.tune.ranks import DECIDED_AT, exchange_arms, schedule

SCRIPT = """
    import sys, time
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, Dataset

    class Rows(Dataset):
        def __len__(self):
            return 64

        def __getitems__(self, indices):
            if dist.get_rank() == 1:
                time.sleep(0.04)
            return [(torch.full((16,), index / 64), index % 4) for index in indices]

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = DistributedDataParallel(nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for epoch in range(int(sys.argv[1])):
        for x, y in DataLoader(Rows(), batch_size=8):
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print("weights", float(model.module.weight.sum()))
    dist.destroy_process_group()
    """


@given(st.floats(1e-4, 100.0), st.floats(2.0, 600.0))
def test_a_schedule_has_blocks_that_count(step_s: float, seconds: float) -> None:
    found = schedule(step_s, seconds)
    assert found.begin > DECIDED_AT
    assert found.block >= 3
    assert 3 <= found.rounds <= 24
    if found.rounds > 3:
        spent = (found.begin + 2 * found.block * found.rounds) * step_s
        assert spent <= seconds + (2 * DECIDED_AT + 2) * step_s


def test_an_exchange_of_the_script_itself_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda *a, **k: calls.append(a))
    host = Host()
    seam = CollectiveSeam(host)
    seam.install()
    try:
        torch.distributed.all_reduce(torch.ones(1))
        seam.reconcile(exchange_arms()["communication_free"])
        assert torch.distributed.all_reduce(torch.ones(1)) is None
        work = torch.distributed.all_reduce(torch.ones(1), async_op=True)
        assert work is not None
        assert work.wait()
        assert len(calls) == 1
        seam.reconcile(exchange_arms()["as_is"])
        torch.distributed.all_reduce(torch.ones(1))
        assert len(calls) == 2
        assert seam.where is not None
        assert "test_ranks.py" in seam.where
    finally:
        seam.remove()
    assert len(calls) == 2


LAUNCHER = """
    import json, subprocess, sys

    code = (
        "import sys; from outpace.tune.ranks import beside; sys.stdin.readline(); "
        "print(beside(), flush=True); sys.stdin.readline()"
    )
    command = [sys.executable, "-c", code]
    ranks = [subprocess.Popen(command, stdin=-1, stdout=-1, text=True) for _ in range(2)]
    # None ends before all have told.
    for rank in ranks:
        print("go", file=rank.stdin, flush=True)
    told = [json.loads(rank.stdout.readline()) for rank in ranks]
    print(json.dumps([[rank.pid for rank in ranks], told]))
    """


def test_other_ranks_are_no_other_programs(script: Callable[..., Path]) -> None:
    done = subprocess.run(
        [sys.executable, str(script(LAUNCHER))], capture_output=True, text=True, check=True
    )
    (one, two), (beside_one, beside_two) = json.loads(done.stdout)
    assert (beside_one, beside_two) == ([two], [one])


def told_of_ranks(torchrun: list[str], path: Path, *words: str) -> dict[str, Any]:
    """What a command of outpace tells of `SCRIPT` on two ranks."""
    done = subprocess.run(
        [sys.executable, "-m", "outpace", *words, "--json", "--", *torchrun, str(path), "200"],
        cwd=path.parent, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert [rank["rank"] for rank in found["evidence"]["ranks"]] == [0, 1], found["notes"]
    return found


@pytest.mark.slow
def test_a_straggler_is_told(script: Callable[..., Path], torchrun: list[str]) -> None:
    path = script(SCRIPT)
    first = told_of_ranks(torchrun, path, "diagnose", "--time", "6s")["findings"][0]
    assert (first["bound"], first["cause"]) == ("communication", "straggler")
    sleeps = [i for i, text in enumerate(path.read_text().splitlines(), 1) if "sleep" in text]
    assert first["where"].endswith(f":{sleeps[0]}")


@pytest.mark.slow
def test_remedies_are_tried_on_ranks_too(script: Callable[..., Path], torchrun: list[str]) -> None:
    """To an end that all of them reach."""
    zeros = SCRIPT.replace("zero_grad()", "zero_grad(set_to_none=False)")
    found = told_of_ranks(torchrun, script(zeros), "tune", "--time", "90s", "--only", "set_to_none")
    tried = {trial["remedy"]: trial for trial in found["trials"]}
    assert tried["set_to_none"]["measured"] is not None, tried["set_to_none"]["reason"]
