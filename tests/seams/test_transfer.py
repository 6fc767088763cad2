"""Copies and reads of values: which of them count, and steps that do without them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from outpace.seams import transfer as module
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS
from outpace.seams.transfer import Skipped, TransferSeam


@pytest.fixture
def seam() -> Iterator[TransferSeam]:
    host = Host()
    host.mode = "train"
    made = TransferSeam(host)
    host.seams = {"transfer": made}
    made.install()
    yield made
    made.remove()


def test_a_model_on_its_way_to_the_device_is_not_of_the_steps(seam: TransferSeam) -> None:
    seam.host.mode = "startup"
    torch.nn.Linear(2, 2).to("meta")
    assert not seam.counts["to"]
    seam.host.mode = "train"
    torch.ones(2).to("meta")
    assert seam.counts["to"] == 1


def test_reads_in_a_forward_pass_count_on_a_gpu(
    seam: TransferSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    phases = seam.host.phases
    for started, counted in ((False, 0), (True, 1)):
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda started=started: started)
        phases.push("forward")
        torch.ones(()).item()
        phases.pop()
        assert seam.counts["item"] == counted
    phases.push("backward")
    torch.ones(()).item()
    phases.pop()
    assert seam.counts["item"] == 1, "what autograd calls is its own"


def test_functions_of_the_device_are_watched_and_given_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: called.append("empty_cache"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: called.append("synchronize"))
    plain = torch.cuda.empty_cache, torch.cuda.synchronize
    host = Host()
    host.mode = "train"
    seam = TransferSeam(host)
    seam.install()
    torch.cuda.empty_cache()
    torch.cuda.synchronize()
    assert called == ["empty_cache", "synchronize"]
    assert seam.counts["cuda.empty_cache"] == seam.counts["cuda.synchronize"] == 1
    seam.reconcile(replace(AS_IS, free_sync=True))
    torch.cuda.empty_cache()
    assert len(called) == 2, "a step without it"
    seam.remove()
    assert (torch.cuda.empty_cache, torch.cuda.synchronize) == plain


def freed(seam: TransferSeam, *calls: Any) -> list[Any]:
    """A step, in which these are called."""
    seam.host.steps += 1
    return [call() for call in calls]


def test_a_copy_to_another_device_is_given_again(seam: TransferSeam) -> None:
    """By its place in the step: two that look alike are two."""
    seam.reconcile(replace(AS_IS, free_transfer=True))
    one, other = torch.ones(2), torch.ones(2)
    first = freed(seam, lambda: one.to("meta"), lambda: other.to("meta"))
    again = freed(seam, lambda: one.to("meta"), lambda: other.to("meta"))
    assert first[0] is not first[1]
    assert again[0]._base is None
    assert [a is b for a, b in zip(again, seam.recent.values(), strict=True)] == [True, True]
    seam.reconcile(AS_IS)
    assert not seam.recent


def test_another_dtype_is_no_copy_to_another_device(seam: TransferSeam) -> None:
    seam.reconcile(replace(AS_IS, free_transfer=True))
    for value in (1.0, 2.0):
        (made,) = freed(seam, lambda value=value: torch.tensor(value).to(torch.float64))
        assert made == value
    assert not seam.recent


def test_values_on_the_cpu_are_read_in_any_case(seam: TransferSeam) -> None:
    seam.reconcile(replace(AS_IS, free_sync=True))
    for value in (1.0, 2.0):
        assert freed(seam, lambda value=value: torch.tensor(value).item()) == [value]


def test_a_copy_that_is_given_again_passes_zeros_back() -> None:
    source = torch.ones(3, requires_grad=True)
    for _ in range(2):
        made = Skipped.apply(source * 2, torch.full((3,), 5.0))
        assert made.tolist() == [5.0] * 3
        made.sum().backward()
    assert source.grad is not None
    assert source.grad.tolist() == [0.0] * 3


def test_a_loop_that_waits_for_a_value_ends(
    seam: TransferSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is given again does not change: after so many calls in a step the true values come."""
    monkeypatch.setattr(module, "MOST_FREED", 10)
    seam.reconcile(replace(AS_IS, free_transfer=True))
    seam.host.steps += 1
    asked = 0
    while torch.full((1,), asked).to("meta") is not None and asked < 20:
        asked += 1
    assert seam.asked == 21
    assert len(seam.recent) == 10


def test_a_look_of_ours_that_fails_is_not_the_scripts(
    seam: TransferSeam, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "caller", lambda: 1 / 0)
    assert torch.ones(()).item() == 1.0
    assert set(seam.host.broken) == {"transfer"}
    assert "the target goes on" in capsys.readouterr().err


def test_what_a_scaler_reads_is_none_of_the_scripts(seam: TransferSeam) -> None:
    weight = torch.nn.Parameter(torch.ones(()))
    optimizer = torch.optim.SGD([weight], 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(weight * 1.0).backward()
    scaler.step(optimizer)
    scaler.update()
    assert not seam.counts["item"]
    assert seam.seconds["item"], "but the host may wait in it"
    torch.Tensor.item(torch.ones(()))
    torch.ones(()).item()
    assert seam.counts["item"] == 2


def test_what_a_step_calls_again_and_again_is_given_back(seam: TransferSeam) -> None:
    """To time each takes longer than it does."""
    plain = torch.Tensor.item.__wrapped__  # type: ignore[attr-defined]
    values = torch.ones(3)
    for step in range(4):
        seam.host.steps = step
        for _ in range(module.MANY // 2):
            values[0].item()
    assert seam.counts["item"] == 2 * module.MANY
    assert torch.Tensor.item is not plain, "few in each step"
    seam.host.steps = 9
    for _ in range(3 * module.MANY):
        values[0].item()
    assert torch.Tensor.item is plain
    assert seam.counts["item"] == 4 * module.MANY
    assert seam.left_at == {"item": 9}
    seam.remove()
    assert torch.Tensor.item is plain
    seam.install()
    assert torch.Tensor.item is not plain


def test_what_the_script_puts_in_the_place_of_ours_stays(
    seam: TransferSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, called = torch.Tensor.item, 0

    @functools.wraps(ours)
    def theirs(tensor: torch.Tensor) -> Any:
        nonlocal called
        called += 1
        return ours(tensor)

    monkeypatch.setattr(torch.Tensor, "item", theirs)
    values = torch.ones(3)
    for _ in range(3 * module.MANY):
        values[0].item()
    assert torch.Tensor.item is theirs
    assert called == 3 * module.MANY
    seam.remove()
    assert torch.Tensor.item is theirs


def test_on_a_gpu_calls_are_timed_however_many_they_are(
    seam: TransferSeam, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    values = torch.ones(3)
    for _ in range(5 * module.MANY):
        values[0].item()
    assert seam.counts["item"] == 5 * module.MANY
