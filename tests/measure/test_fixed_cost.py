"""What a model costs whatever its batch, and that the script does not see that it was asked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure import fixed_cost as module
from outpace.measure.again import last_call
from outpace.measure.fixed_cost import called_by_rows, fixed_cost
from outpace.seams.host import Host


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(module, "graphs_compiled", lambda: 0)  # by other tests
    with hosted(switching=True) as made:
        made.on_backward = lambda _loss: None  # inputs are noted while somebody looks at losses
        yield made


class Clocked(nn.Module):
    """Takes 3 s on a clock of its own, and 0.1 for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout())
        self.now = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.now += 3.0 + 0.1 * len(x)
        return torch.as_tensor(self.layer(x))


def step(model: nn.Module, x: torch.Tensor) -> None:
    model(x).sum().backward()


def test_the_cost_that_no_batch_changes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Clocked(), torch.randn(32, 4)
    monkeypatch.setattr(module, "perf_counter", lambda: model.now)
    step(model, x)
    found = fixed_cost(host)
    assert found is not None
    assert found.intercept == pytest.approx(3.0)
    assert found.slope == pytest.approx(3.2), "of all rows"


def test_the_script_does_not_see_it(host: Host) -> None:
    model, x = Clocked(), torch.randn(32, 4)
    step(model, x)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    random = torch.random.get_rng_state()
    assert fixed_cost(host) is not None
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    for weight, gradient in zip(model.parameters(), gradients, strict=True):
        assert weight.grad is not None
        assert torch.equal(weight.grad, gradient)
    assert torch.equal(torch.random.get_rng_state(), random)


class RowByRow(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.layer(row) for row in x])


def test_calls_for_each_row(host: Host) -> None:
    x = torch.randn(32, 4)
    assert called_by_rows(host) == 0.0
    for model, least, most in ((Clocked(), 0.0, 0.01), (RowByRow(), 0.9, 1.0)):
        step(model, x)
        assert least <= called_by_rows(host) <= most
    step(RowByRow(), x[:4])
    assert called_by_rows(host) == 0.0, "too few rows to tell"


class OfOneSize(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.layer(x.view(32, 4)))


def test_a_model_of_one_batch_size_is_left_alone(host: Host) -> None:
    model, x = OfOneSize(), torch.randn(32, 4)
    step(model, x)
    assert last_call(host) is not None
    assert fixed_cost(host) is None


def test_few_rows_tell_nothing(host: Host) -> None:
    model, x = Clocked(), torch.randn(4, 4)
    step(model, x)
    assert last_call(host) is not None
    assert fixed_cost(host) is None


def test_the_model_is_called_in_the_precision_of_the_script(host: Host) -> None:
    seen: list[torch.dtype] = []

    class Noting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layer(x)
            seen.append(out.dtype)
            return out

    model, x = Noting(), torch.randn(32, 4)
    with torch.autocast("cpu", torch.bfloat16):
        step(model, x)
    assert fixed_cost(host) is not None
    assert len(seen) > 3
    assert set(seen) == {torch.bfloat16}


def test_a_compiled_model_is_not_compiled_for_other_shapes(host: Host) -> None:
    model, x = torch.compile(nn.Linear(4, 4), backend="eager"), torch.randn(32, 4)
    step(model, x)
    assert last_call(host) is not None
    assert fixed_cost(host) is None


def test_a_model_whose_first_dimension_is_time_is_left_alone(host: Host) -> None:
    class Rows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.stack([self.layer(row) for row in x])

    model, x = Rows(), torch.randn(16, 4)
    step(model, x)
    assert called_by_rows(host) > 0.5
    host.fed, host.batch_size = True, 4  # with batches of another size
    assert called_by_rows(host) == 0.0
