"""Calls in training mode without gradients: a mistake in a validation, none where statistics are taken."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.optim.swa_utils import update_bn
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.subjects import main_device
from outpace.seams.host import Host
from outpace.seams.module import ModuleSeam
from outpace.seams.setup import AS_IS

Loader = DataLoader[tuple[torch.Tensor, ...]]


def loader(batches: int) -> Loader:
    return DataLoader(TensorDataset(torch.randn(4 * batches, 4)), batch_size=4)


def statistics(model: nn.Module, train: Loader, valid: Loader) -> None:
    update_bn(train, model)


def whole(model: nn.Module, train: Loader, valid: Loader) -> None:
    with torch.no_grad():
        model(torch.randn(8, 4))


def by_batches(model: nn.Module, train: Loader, valid: Loader) -> None:
    with torch.no_grad():
        for (x,) in valid:
            model(x)


@pytest.mark.parametrize(
    ("after", "told"),
    [(statistics, 0), (whole, 2), (by_batches, 4)],
    ids=["bn", "whole", "batches"],
)
@pytest.mark.parametrize("accumulated", [1, 3])
def test_only_what_judges_is_a_validation_in_training_mode(
    after: Callable[[nn.Module, Loader, Loader], None], told: int, accumulated: int
) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    train, valid = loader(16), loader(2)
    with hosted() as host:
        for _ in range(2):
            for index, (x,) in enumerate(train):
                model(x).square().mean().backward()
                if (index + 1) % accumulated == 0:
                    optimizer.step()
                    optimizer.zero_grad()
            after(model, train, valid)
        seam = host.seams["module"]
        assert isinstance(seam, ModuleSeam)
        assert seam.evaluations().in_training == told


def test_a_model_in_evaluation_mode_learns_where_an_optimizer_steps_it() -> None:
    """As one that transformers has loaded, of a script that never asks for the other mode."""
    model, train, valid = nn.Linear(4, 4).eval(), loader(8), loader(2)
    frozen = nn.Linear(4, 4).eval()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    forward: list[bool] = []
    with hosted() as host:
        model.register_forward_hook(lambda *_: forward.append(host.phases.current() == "forward"))
        for _ in range(2):
            for (x,) in train:
                model(frozen(x)).square().mean().backward()
                optimizer.step()
            by_batches(model, train, valid)
        rooted, seam = host.main_root(), host.seams["module"]
        assert rooted is not None
        assert rooted[0] is model
        assert isinstance(seam, ModuleSeam)
        assert (seam.evaluations().calls, seam.evaluations().with_grad) == (4, 0)
        host.phases.resting = True
        model(torch.randn(4, 4))
        assert host.phases.resting, "steps that are not looked into have such calls"
        with torch.no_grad():
            model(torch.randn(4, 4))
        assert not host.phases.resting
    assert forward[:-2] == [False, *[True] * 7, *[False] * 2, *[True] * 8, *[False] * 2]


def test_gradients_that_a_validation_forgot_to_turn_off_are_told() -> None:
    model, train, valid = nn.Linear(4, 4), loader(8), loader(2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted() as host:
        for _ in range(3):
            model.train()
            for (x,) in train:
                model(x).square().mean().backward()
                optimizer.step()
            model.eval()
            for (x,) in valid:
                model(x)
        seam = host.seams["module"]
        assert isinstance(seam, ModuleSeam)
        assert (seam.evaluations().calls, seam.evaluations().with_grad) == (6, 6)


def test_the_device_of_a_training_without_a_model_is_its_optimizers() -> None:
    host = Host()
    assert main_device(host) == "cpu"
    optimizer = torch.optim.SGD([torch.zeros(2, device="meta", requires_grad=True)], 0.01)
    host.main_optimizer = weakref.ref(optimizer)
    assert main_device(host) == "meta"


def test_what_judges_a_model_keeps_its_precision() -> None:
    """Only learning is done in bfloat16: of one sample at a time casting the weights takes most."""
    torch.manual_seed(0)
    model, train = nn.Linear(64, 64), DataLoader(TensorDataset(torch.randn(16, 64)))
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    with hosted() as host:
        host.switch(replace(AS_IS, autocast="bfloat16"))
        for (x,) in train:
            out = model(x)
            plain = nn.functional.linear(x, model.weight, model.bias)
            assert not torch.equal(out, plain)
            assert torch.allclose(out, plain, atol=0.05)
            out.square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            x = torch.randn(1, 64)
            assert torch.equal(model(x), nn.functional.linear(x, model.weight, model.bias))


def test_a_model_is_compiled_for_learning_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mode and its batches are others in a validation, and each would take as long again."""
    called: list[bool] = []

    def compiled(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args: (called.append(torch.is_grad_enabled()), forward(*args))[1]

    monkeypatch.setattr(torch, "compile", compiled)
    model, valid = nn.Linear(4, 4), loader(3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with hosted() as host:
        host.switch(replace(AS_IS, compiled=True))
        for (x,) in loader(4):
            model(x).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for (x,) in valid:
                model(x)
    assert called == [True] * 4
