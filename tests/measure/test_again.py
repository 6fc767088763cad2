"""A model that is called again for us is as it was, and so is a graph of the script's that waits."""

from __future__ import annotations

import random
from contextlib import redirect_stdout
from threading import Thread

import numpy as np
import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.autograd import grad_mode

from outpace.measure.again import Hushed, last_call, last_calls, unseen


class Moving(nn.Module):
    """Has a scale that it moves where it is, a mean that it makes anew, and one that it leaves alone."""

    scale: torch.Tensor
    mean: torch.Tensor
    fixed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        for name in ("scale", "mean", "fixed"):
            self.register_buffer(name, torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.scale.mul_(0.9)
        self.mean = 0.9 * self.mean + random.random() + np.random.rand()
        return self.norm(self.layer(x)) * self.scale * self.fixed + self.mean


def called_again(model: nn.Module, x: torch.Tensor) -> None:
    with hosted(switching=True) as host, unseen(host, model), torch.no_grad():
        model(x)


def test_a_graph_that_waits_goes_backward() -> None:
    model, x = Moving(), torch.randn(8, 4)
    out = model(x)
    before = {name: (buffer, buffer.clone()) for name, buffer in model.named_buffers()}
    draws = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # type: ignore[union-attr, index]
    called_again(model, x)
    for name, buffer in model.named_buffers():
        own, value = before[name]
        assert buffer is own, name
        assert torch.equal(buffer, value), name
    assert random.getstate() == draws[0]
    assert np.random.get_state()[1].tolist() == draws[1]  # type: ignore[union-attr, index]
    assert torch.equal(torch.get_rng_state(), draws[2])
    out.sum().backward()


def test_where_torch_cannot_leave_its_count_a_buffer_that_stays_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(grad_mode, "_unsafe_preserve_version_counter")
    model, x = Moving(), torch.randn(8, 4)
    out = model(x).sum() + (model.layer(x) * model.fixed).sum()
    versions = model.fixed._version
    called_again(model, x)
    assert model.fixed._version == versions
    del out


def test_buffers_made_in_inference_mode() -> None:
    with torch.inference_mode():
        model = nn.BatchNorm1d(4).eval()
    called_again(model, torch.randn(8, 4))


class Counting(nn.Module):
    """Keeps count, and what it has seen, and prints."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.calls, self.seen = nn.Linear(4, 4), 0, list[torch.Tensor]()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen.append(x)
        self.newest = x
        print("called")
        return torch.as_tensor(self.layer(x))


def test_what_a_model_keeps_is_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    model, seen = Counting(), None
    seen = model.seen
    called_again(model, torch.randn(2, 4))
    assert (model.calls, model.seen, hasattr(model, "newest")) == (0, [], False)
    assert model.seen is seen
    assert capsys.readouterr().out == ""


def test_other_threads_print_meanwhile(capsys: pytest.CaptureFixture[str]) -> None:
    with redirect_stdout(Hushed()):
        print("ours")
        thread = Thread(target=print, args=("theirs",))
        thread.start()
        thread.join()
    assert capsys.readouterr().out == "theirs\n"


def test_the_calls_of_a_step_are_those_of_each_model() -> None:
    first, second, x = nn.Linear(4, 4), nn.Linear(4, 4), torch.randn(8, 4)
    with hosted(switching=True) as host:
        host.on_backward = lambda _loss: None
        first(x)
        hidden = first(x)
        second(hidden).sum().backward()
        calls = last_calls(host)
        assert [(call.module, call.times) for call in calls] == [(first, 2), (second, 1)]
        assert last_call(host) is None, "which of the two would be asked?"
        second(x).sum().backward()
        assert last_call(host) is not None
        second.register_forward_hook(lambda *_: None)
        assert last_call(host) is None, "who knows what that does"
