"""Remedies do what they say: batches come from where they should, and no remedy stands idle."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from outpace.remedies.catalog import remedy
from outpace.seams.setup import AS_IS
from tests.conftest import with_entry
from tests.remedies.some_evidence import ALL
from tests.remedies.trainings import Pictures, Result, Rows, hosted, train, trained


@dataclass
class Draws:
    """Who drew samples in this process."""

    count: int = 0
    slices: int = 0
    threads: Counter[int] = field(default_factory=Counter)


TRIED = 8
"""samples that are drawn here where a file lies open, to see that none moves its place"""


class ByThread(threading.local):
    """Leads to them: what a thread has by itself keeps threads from no data set."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws


@contextmanager
def counted() -> Iterator[Draws]:
    draws = Draws()
    here = ByThread(draws)
    with pytest.MonkeyPatch.context() as patch:
        for kind in (Rows, Pictures):
            original = kind.__getitem__

            def getitem(dataset: Any, index: Any, original: Any = original) -> Any:
                here.draws.count += 1
                here.draws.slices += isinstance(index, list)
                here.draws.threads[threading.get_ident()] += 1
                return original(dataset, index)

            patch.setattr(kind, "__getitem__", getitem)
        yield draws


def draws_under(names: list[str], kind: str, folder: Path) -> Draws:
    setup = AS_IS
    for name in names:
        one = remedy(name)
        setup = one.setup(setup, one.settings(ALL[kind]))
    with counted() as draws:
        trained(kind, folder, setup)
    return draws


def test_as_it_is(pictures: Path) -> None:
    draws = draws_under([], "rows", pictures)
    assert draws.count == 2 * (186 + 40)
    assert draws.threads.keys() == {threading.get_ident()}


def test_slices_are_drawn(pictures: Path) -> None:
    draws = draws_under(["slice_batches"], "rows", pictures)
    assert draws.slices >= 8
    assert draws.count < 0.7 * 2 * (186 + 40)


def test_kept_samples_are_not_drawn_again(pictures: Path) -> None:
    plainly = draws_under([], "rows", pictures).count
    assert draws_under(["cache_samples"], "rows", pictures).count < 0.95 * plainly


def test_a_thread_works_ahead(pictures: Path) -> None:
    draws = draws_under(["prefetch"], "images", pictures)
    assert draws.threads[threading.get_ident()] <= TRIED


def test_threads_draw(pictures: Path) -> None:
    draws = draws_under(["fetch_threads"], "rows", pictures)
    assert draws.threads[threading.get_ident()] <= TRIED
    assert len(draws.threads) > 2


def test_slices_are_drawn_ahead(pictures: Path) -> None:
    draws = draws_under(["prefetch", "slice_batches"], "rows", pictures)
    assert draws.slices >= 8
    assert draws.threads[threading.get_ident()] <= TRIED


def test_workers_draw(pictures: Path) -> None:
    draws = draws_under(["loader_workers"], "rows", pictures)
    assert draws.count <= 2 * 40, "only validation draws in this process, if anything"


def test_workers_are_the_same_in_both_epochs(pictures: Path) -> None:
    from outpace.seams.loader import LoaderSeam

    one = remedy("persistent_workers")
    pids: list[set[int]] = []
    with hosted(one.setup(AS_IS, one.settings(ALL["workers"]))) as host:
        seam = host.seams["loader"]
        assert isinstance(seam, LoaderSeam)

        def on_step(step: int, *_: Any) -> None:
            runners: list[Any] = [
                r
                for record in seam.records.values()
                if record.trains
                for r in record.runners.values()
            ]
            pids.append({pid for r in runners for pid in r.pids()})

        train("workers", pictures, on_step)
    assert pids[0] == pids[-1]
    assert pids[0]
    assert os.getpid() not in pids[0]


def test_images_are_decoded_by_simplejpeg(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simplejpeg = pytest.importorskip("simplejpeg")
    calls = []
    original = simplejpeg.decode_jpeg

    def decode(*args: Any, **kwargs: Any) -> Any:
        calls.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(simplejpeg, "decode_jpeg", decode)
    draws_under(["decode_jpeg"], "images", pictures)
    assert len(calls) == 2 * (27 + 9)
    calls.clear()
    draws_under(["decode_jpeg", "cache_decoded"], "images", pictures)
    assert len(calls) == 27, "each image is decoded once"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bf16", "images"),
        ("channels_last", "images"),
        ("fused_optimizer", "images"),
        ("fused_optimizer", "rows"),
        pytest.param("compile_model", "rows", marks=pytest.mark.slow),
    ],
)
def test_rounding_differs(name: str, kind: str, pictures: Path, plain: dict[str, Result]) -> None:
    one = remedy(name)
    result = trained(kind, pictures, one.setup(AS_IS, one.settings(ALL[kind])))
    assert not result.equals(plain[kind])


def test_switches_are_set(pictures: Path) -> None:
    setup = AS_IS
    for name in ("threads", "flush_denormals", "set_to_none", "fused_optimizer"):
        one = remedy(name)
        setup = one.setup(setup, one.settings(ALL["rows"]))
    seen: list[Any] = []

    def on_step(step: int, model: Any, optimizer: Any) -> None:
        tiny = float(torch.tensor(1e-39) * torch.tensor(0.5))
        seen.append((torch.get_num_threads(), tiny, optimizer.param_groups[0]["fused"]))
        optimizer.zero_grad(set_to_none=False)
        seen.append([p.grad is None for p in model.parameters()])

    trained("rows", pictures, setup, on_step)
    assert seen[-2] == (setup.threads, 0.0, True)
    assert all(seen[-1])


def test_blocks_are_computed_again(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.remedies.trainings import Block

    calls = 0
    original = Block.forward

    def forward(block: Block, x: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return original(block, x)

    monkeypatch.setattr(Block, "forward", forward)
    trained("fixed_images", pictures, AS_IS)
    plainly, calls = calls, 0
    one = remedy("checkpoint_activations")
    trained("fixed_images", pictures, one.setup(AS_IS, {}))
    assert calls > 1.5 * plainly


def test_lists_within_a_block_are_computed_again_as_they_were(tmp_path: Path) -> None:
    """What a block calls while it is computed again is no model of the script's own."""
    path = tmp_path / "train.py"
    path.write_text(
        "import torch\n"
        "from torch import nn\n"
        "class Block(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 8))\n"
        "    def forward(self, x):\n"
        "        return x + self.inner(x)\n"
        "torch.manual_seed(0)\n"
        "model = nn.Sequential(*[Block() for _ in range(4)])\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for _ in range(5):\n"
        "    model(torch.randn(4, 8)).square().mean().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "print(sum(p.double().sum().item() for p in model.parameters()))\n"
        "import copy, io\n"
        "averaged, file = copy.deepcopy(model), io.BytesIO()\n"
        "torch.save(model, file)\n"
        "torch.nn.init.zeros_(model[0].inner[0].weight)\n"
        "x = torch.ones(2, 8)\n"
        "print((averaged(x) - model(x)).abs().max().item() > 0, 'forward' in vars(averaged[0]))\n"
        "print(len(torch.load(io.BytesIO(file.getvalue()), weights_only=False)))\n"
    )
    applied = [{"name": "checkpoint_activations", "settings": {}}]
    printed = []
    for remedies in ([], applied):
        code, log = with_entry(
            path, tmp_path / "session", "outpace.tune.apply:begin", remedies=remedies
        )
        assert code == 0, log
        printed.append(log)
    assert printed[0] == printed[1]
    assert printed[0].splitlines()[1:] == ["True False", "4"]
