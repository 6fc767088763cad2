"""Threads that work for another one do as it would."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from outpace.seams.setup import Feed, Setup
from outpace.serve import thread_state
from outpace.serve.batches import same_bits
from outpace.serve.executors import fetch_threads
from outpace.serve.loader import Loader
from outpace.serve.thread_state import AsHere
from tests.remedies.trainings import hosted


def told() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_default_device(),
    )


MODES: dict[str, Any] = {
    "none": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "device": lambda: torch.device("meta"),
}


@pytest.mark.parametrize("mode", sorted(MODES))
def test_a_thread_takes_on_what_is_in_force_where_it_is_asked(mode: str) -> None:
    pool = fetch_threads(1)
    try:
        plain = told()
        assert pool.submit(told).result() == plain
        with MODES[mode]():
            wanted, kept = told(), AsHere()
            assert pool.submit(told).result() == wanted
        assert pool.submit(told).result() == plain
        assert pool.submit(kept, told).result() == wanted
        assert told() == plain
    finally:
        pool.shutdown()


class Encoded(Dataset[Any]):
    """Samples out of an encoder that could be trained."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.x, self.encoder = torch.randn(24, 4), nn.Linear(4, 3)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        code = self.encoder(self.x[index])
        return code.detach(), code.requires_grad


@pytest.mark.parametrize("executor", ["inline", "ahead", "threads"])
def test_samples_without_gradients_have_none_in_a_thread(executor: Any) -> None:
    loader = DataLoader(Encoded(), batch_size=4)

    def epochs() -> list[Any]:
        found = [list(loader)]
        for _ in range(2):
            with torch.no_grad():
                found.append(list(loader))
            found.append(list(loader))
        return found

    wanted = epochs()
    assert [bool(epoch[0][1].any()) for epoch in wanted] == [True, False, True, False, True]
    with hosted(Setup(feed=Feed(executor=executor, workers=2))) as host:
        assert same_bits(epochs(), wanted)
        assert not host.broken


def test_the_loaders_threads_too() -> None:
    loader = Loader(Encoded(), 4, executor="threads", workers=2)
    for kept in (False, True, False):
        with torch.set_grad_enabled(kept):
            assert {bool(flag) for _, flags in loader for flag in flags} == {kept}
    loader.close()


def test_a_default_device_is_found_where_modes_are_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(thread_state, "modes", lambda: 1)
    assert thread_state.state().device == torch.device("cpu")
    with torch.device("meta"):
        assert thread_state.state().device == torch.device("meta")
