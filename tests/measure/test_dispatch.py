"""A watch sees every operator once, changes no bit, and leaves torch as it found it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from outpace.measure.dispatch import OperatorWatch


class Names(OperatorWatch):
    """Notes the operators' names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def see(self, operator: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        self.names.append(str(operator))


class Failing(OperatorWatch):
    """Fails at the third operator."""

    seen = 0

    def see(self, operator: Any, args: Any, kwargs: Mapping[str, Any], out: Any) -> None:
        self.seen += 1
        if self.seen == 3:
            raise RuntimeError("a mistake of ours")


class Foreign(TorchDispatchMode):
    """A mode that the script uses."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.fixture(autouse=True)
def _torch_is_left_as_it_was() -> Iterator[None]:
    yield
    assert torch._C._len_torch_dispatch_stack() == 0
    assert (torch.ones(2) + 1).tolist() == [2.0, 2.0]


def train(watch: OperatorWatch | None = None, *, at: int = 2, **how: Any) -> list[Any]:
    """Losses and final weights of a small training, watched in one step."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten()
    )
    head = nn.Linear(4 * 36, 5)
    run = torch.compile(model) if how.get("compiled") else model
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], 1e-2)
    found: list[Any] = []
    for step in range(5):
        if watch is not None and step == at:
            watch.__enter__()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=how.get("autocast", False)):
            images = torch.randn(8, 3, 8, 8)
            hidden = (
                checkpoint(run, images, use_reentrant=False) if how.get("again") else run(images)
            )
            loss = nn.functional.cross_entropy(head(hidden), torch.randint(0, 5, (8,)))
        loss.backward()
        optimizer.step()
        found.append(loss.item())
        if watch is not None and step == at:
            watch.__exit__(None, None, None)
    return found + [weight.tolist() for weight in model.parameters()]


@pytest.mark.parametrize("how", [{}, {"autocast": True}, {"again": True}])
def test_watching_changes_no_bit(how: dict[str, bool]) -> None:
    watch = Names()
    assert train(watch, **how) == train(**how)
    assert watch.failure is None
    assert "aten.convolution_backward.default" in watch.names


@pytest.mark.slow
def test_a_compiled_model_stays_compiled_and_its_products_are_seen() -> None:
    plain = train(compiled=True)
    torch._dynamo.reset()
    watch = Names()
    assert train(watch, compiled=True) == plain
    assert "aten.convolution.default" in watch.names
    assert "aten.native_batch_norm.default" not in watch.names
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_a_mistake_of_ours_ends_the_watching_and_not_the_training() -> None:
    watch = Failing()
    assert train(watch) == train()
    assert watch.seen == 3
    assert watch.failure is not None
    assert "a mistake of ours" in watch.failure


def test_a_mistake_of_the_script_reaches_the_script() -> None:
    with Names() as watch, pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert watch.failure is None


def test_a_boundary_inside_inference_mode_is_refused_or_waited_out() -> None:
    refused = Names()
    with torch.inference_mode():
        refused.__enter__()
        torch.ones(2)
        refused.__exit__(None, None, None)
    assert refused.failure is not None
    assert "inference_mode" in refused.failure
    assert refused.names == []

    waiting = Names()
    waiting.__enter__()
    with torch.inference_mode():
        waiting.__exit__(None, None, None)
        torch.ones(2)
    torch.zeros(2)
    assert waiting.on_stack
    assert waiting.names == []
    assert waiting.remove()


def test_a_boundary_inside_a_backward_pass_is_refused_or_waited_out() -> None:
    weight = torch.ones(3, requires_grad=True)
    refused, waiting = Names(), Names()
    waiting.__enter__()

    def boundary(_: torch.Tensor) -> None:
        refused.__enter__()
        waiting.__exit__(None, None, None)

    weight.register_hook(boundary)
    (weight * 2).sum().backward()
    assert refused.failure is not None
    assert "backward" in refused.failure
    assert waiting.remove()
    assert "aten.mul.Tensor" in waiting.names


def test_a_mode_of_the_script_is_left_in_its_place() -> None:
    beneath = Foreign()
    with beneath:
        watch = Names()
        watch.__enter__()
        assert watch.failure == "another dispatch mode is active"
        watch.__exit__(None, None, None)
        assert torch._C._get_dispatch_stack_at(0) is beneath

    watch = Names()
    watch.__enter__()
    with Foreign():
        torch.ones(2)
        watch.__exit__(None, None, None)
        assert not watch.remove()
    assert watch.remove()
    assert watch.names == ["aten.ones.default"]


def test_transforms_of_functions_work_while_watched() -> None:
    with Names() as watch:
        gradient = torch.func.vmap(torch.func.grad(lambda x: (x**2).sum()))(torch.ones(3, 2))
    assert gradient.tolist() == [[2.0, 2.0]] * 3
    assert watch.failure is None


def test_data_of_a_parameter_can_be_changed_while_watched() -> None:
    """Parameter is a subclass of Tensor, with no dispatch of its own."""
    parameter = torch.nn.Parameter(torch.ones(3))
    with Names() as watch:
        parameter.data -= 0.5 * torch.ones(3)
    assert watch.failure is None
    assert parameter.tolist() == [0.5, 0.5, 0.5]


def test_operators_beneath_a_tensor_subclass_are_seen() -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
    layer = nn.Linear(4, 2)
    expected = layer(nested).values()
    with Names() as watch:
        found = layer(nested).values()
    assert torch.equal(expected, found)
    assert watch.failure is None
    assert any("linear" in name or "mm" in name for name in watch.names)
