"""Page-locked batches: what is asked of torch, without a GPU; and with one, the same bits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from outpace.remedies.pin_memory import PinMemory
from outpace.seams.setup import AS_IS, Feed
from outpace.seams.transfer import TransferSeam
from tests.remedies.some_evidence import ALL, ON_GPU
from tests.remedies.trainings import Rows, hosted

PINNED = replace(AS_IS, feed=Feed(executor="ahead", pin=True))


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The seam that stands at copies, as with CUDA and page-locked tensors."""
    asked: list[dict[str, Any]] = []
    original = torch.Tensor.to

    def to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        asked.append(kwargs)
        return original(tensor, *args, **kwargs)

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: tensor.dim() > 0)
    with hosted() as host:
        seam = host.seams["transfer"]
        assert isinstance(seam, TransferSeam)
        host.mode = "train"
        yield seam, asked


def test_pinned_tensors_are_copied_without_waiting(copies: Any) -> None:
    seam, asked = copies
    tensor, number = torch.ones(3), torch.tensor(1.0)
    tensor.to("cpu")
    seam.pins = True
    tensor.to("cpu")
    seam.host.pinned = {tensor.untyped_storage().data_ptr(), number.untyped_storage().data_ptr()}
    tensor[1:].to("cpu")
    torch.ones(3).to("cpu")
    number.to("cpu")
    tensor.to("cpu", non_blocking=False)
    tensor.to("cpu", torch.float64, False)
    # A batch's own tensors, and not those that the script has put into such memory itself.
    assert asked == [{}, {}, {"non_blocking": True}, {}, {}, {"non_blocking": False}, {}]
    seam.reconcile(AS_IS)
    tensor.to("cpu")
    assert asked[-1] == {}


def test_it_keeps_who_makes_the_batches() -> None:
    remedy = PinMemory()
    settings = remedy.settings(ON_GPU)
    assert remedy.setup(AS_IS, settings).feed == Feed(
        executor="processes", workers=4, prefetch=2, pin=True
    )
    for executor in ("inline", "ahead", "threads"):
        base = replace(AS_IS, feed=Feed(fetch="slice", executor=executor, workers=3))  # type: ignore[arg-type]
        assert remedy.setup(base, settings).feed == replace(base.feed, pin=True)
    assert remedy.setup(AS_IS, remedy.settings(ALL["rows"])).feed.executor == "ahead"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batches_are_pinned_and_copied_whole() -> None:
    wanted = [x.sum().item() for x, _ in DataLoader(Rows(64), batch_size=8)]
    with hosted(PINNED) as host:
        got = []
        for x, _ in DataLoader(Rows(64), batch_size=8):
            assert x.is_pinned()
            got.append(x.to("cuda").sum().item())
        assert not host.broken
    assert got == pytest.approx(wanted, rel=1e-5)
