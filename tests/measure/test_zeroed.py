"""Gradients that are zeroed before any step."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure.zeroed import MOST_STEPS, Zeroed, zeroed
from outpace.seams.host import Host


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    # The tests' own modules name gradients.
    monkeypatch.setattr("outpace.measure.zeroed.named_in_script", lambda: False)
    with hosted(switching=True) as host:
        yield host


class Gan:
    """Two models, each with its optimizer."""

    def __init__(self) -> None:
        self.generator, self.discriminator = nn.Linear(4, 4), nn.Linear(4, 1)
        self.ours = torch.optim.SGD(self.generator.parameters(), 0.01)
        self.theirs = torch.optim.SGD(self.discriminator.parameters(), 0.01)

    def discriminate(self, fake: torch.Tensor) -> None:
        self.theirs.zero_grad()
        real = self.discriminator(torch.randn(3, 4)).mean()
        (real - self.discriminator(fake).mean()).backward()
        self.theirs.step()

    def generate(self, *, set_to_none: bool = True) -> None:
        self.ours.zero_grad(set_to_none=set_to_none)
        self.discriminator(self.generator(torch.randn(3, 4))).mean().backward()
        self.ours.step()


def with_graph(gan: Gan) -> None:
    gan.discriminate(gan.generator(torch.randn(3, 4)))  # here
    gan.generate()


def with_graph_and_zeros(gan: Gan) -> None:
    gan.discriminate(gan.generator(torch.randn(3, 4)))  # here
    gan.generate(set_to_none=False)


def generator_first(gan: Gan) -> None:
    gan.generate()
    gan.discriminate(gan.generator(torch.randn(3, 4)))  # here


def several_critic_steps(gan: Gan) -> None:
    """Zeroed together, once the generator learns; by a function that it calls too."""
    for _ in range(3):
        gan.discriminate(sampled(gan))  # here
    gan.ours.zero_grad()
    gan.discriminator(sampled(gan)).mean().backward()
    gan.ours.step()


def sampled(gan: Gan) -> torch.Tensor:
    fake: torch.Tensor = gan.generator(torch.randn(3, 4))
    return fake


def detached(gan: Gan) -> None:
    gan.discriminate(gan.generator(torch.randn(3, 4)).detach())
    gan.generate()


def without_gradients(gan: Gan) -> None:
    with torch.no_grad():
        fake = gan.generator(torch.randn(3, 4))
    gan.discriminate(fake)
    gan.generate()


def one_loss_for_both(gan: Gan) -> None:
    gan.ours.zero_grad()
    gan.theirs.zero_grad()
    gan.discriminator(gan.generator(torch.randn(3, 4))).mean().backward()
    gan.ours.step()
    gan.theirs.step()


def accumulated(gan: Gan) -> None:
    """What the discriminator's loss gives the generator is stepped with the rest."""
    fake = gan.generator(torch.randn(3, 4))
    gan.theirs.zero_grad()
    gan.discriminator(fake).mean().backward(retain_graph=True)
    gan.theirs.step()
    gan.generator(torch.randn(3, 4)).mean().backward()
    gan.ours.step()
    gan.ours.zero_grad()


def by_a_step_of_their_own(gan: Gan) -> None:
    """As sharpness-aware minimisation has it: the first gradients move the weights for the second."""
    gan.ours.zero_grad()
    gan.generator(torch.randn(3, 4)).mean().backward()
    with torch.no_grad():
        for weight in gan.generator.parameters():
            assert weight.grad is not None
            weight.add_(weight.grad, alpha=0.05)
    gan.generate()
    gan.discriminate(torch.randn(3, 4))


def looked(host: Host, step: Callable[[Gan], None]) -> Zeroed | None:
    """What is found of a training."""
    gan, looking = Gan(), None
    backward = torch.autograd.backward
    for steps in range(2 + MOST_STEPS + 1):
        if steps == 2:
            looking = zeroed(host)
        if looking is not None:
            try:
                next(looking)
            except StopIteration as end:
                assert torch.autograd.backward is backward
                assert not any(p._post_accumulate_grad_hooks for p in gan.generator.parameters())
                return end.value
        step(gan)
    raise AssertionError("it looks on")


@pytest.mark.parametrize(
    "step", [with_graph, with_graph_and_zeros, generator_first, several_critic_steps]
)
def test_gradients_of_another_models_loss(host: Host, step: Callable[[Gan], None]) -> None:
    found = looked(host, step)
    assert found is not None
    assert found.seconds > 0
    assert found.model == "Linear"
    with open(__file__, encoding="utf-8") as file:
        lines = file.readlines()
    assert found.where is not None
    assert "# here" in lines[int(found.where.rpartition(":")[2]) - 1]


@pytest.mark.parametrize(
    "step",
    [detached, without_gradients, one_loss_for_both, accumulated, by_a_step_of_their_own],
)
def test_gradients_that_come_to_something(host: Host, step: Callable[[Gan], None]) -> None:
    assert looked(host, step) is None


def test_a_model_alone_is_not_looked_at(host: Host) -> None:
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for _ in range(3):
        model(torch.ones(2, 4)).mean().backward()
        optimizer.step()
    with pytest.raises(StopIteration) as end:
        next(zeroed(host))
    assert end.value.value is None
