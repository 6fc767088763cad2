"""Which module made the first number that is not finite, where some are meant to be infinite."""

from __future__ import annotations

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn

from outpace.measure.not_finite import who_made_it

MASK = torch.tensor([0.0, -torch.inf, 0.0, 0.0])


class Hide(nn.Module):
    """Leaves half of the scores."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        return scores.masked_fill(torch.arange(4) < 2, -torch.inf)


class Root(nn.Module):
    """Of what is negative."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - 2).sqrt()


class Log(nn.Module):
    """Of what is 0 where it is hidden."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.log()


class Attention(nn.Module):
    """A layer on what two masks leave, one of its own and one of the batch's."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.scores, self.hide, self.layer = nn.Linear(8, 4), Hide(), layer

    def forward(self, x: torch.Tensor, mask: torch.Tensor = MASK) -> torch.Tensor:
        found: torch.Tensor = self.layer((self.hide(self.scores(x)) + mask).softmax(1))
        return found


class Named(nn.Module):
    """Spoils its numbers itself, and gives them to a layer by name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(input=(x - 100).sqrt())
        return found


def told(model: nn.Module, *batch: torch.Tensor) -> str | None:
    with hosted(switching=True) as host:
        host.on_backward = lambda _: None  # what a model is given is noted for those who listen
        (model(*batch).sum() * torch.nan).backward()
        return who_made_it(host)


@pytest.mark.parametrize(
    ("layer", "made"),
    [
        (nn.Identity(), "the model's output is finite: it was made after the model"),
        (Root(), "layer (Root) is the first module"),
        (Log(), "layer (Log) is the first module"),
        (nn.Sequential(Log(), nn.Linear(4, 4)), "layer.0 (Log) is the first module"),
    ],
)
def test_a_mask_is_no_fault(layer: nn.Module, made: str) -> None:
    assert made in (told(Attention(layer), torch.randn(16, 8), MASK) or "")
    assert made in (told(Attention(layer), torch.randn(16, 8)) or "")


class Scripted(nn.Module):
    """Two parts that TorchScript runs stand between plain ones."""

    def __init__(self, spoils: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 4), nn.Linear(4, 4)
        parts = nn.Sequential(nn.ReLU(), nn.Threshold(1e9, torch.inf) if spoils else nn.ReLU())
        self.middle = torch.jit.script(parts)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.middle(self.first(x)))
        return found


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    ("spoils", "made"),
    [(False, "the model's output is finite"), (True, "the model (Scripted) is the first module")],
)
def test_parts_that_torch_script_runs_take_no_hooks(spoils: bool, made: str) -> None:
    model = Scripted(spoils)
    assert made in (told(model, torch.randn(16, 8)) or "")
    assert not any(part._forward_hooks for part in (model, model.first, model.last))


def test_no_hook_stays_where_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("no hooks here")

    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU())
    monkeypatch.setattr(model[1], "register_forward_hook", refuse)
    with pytest.raises(RuntimeError, match="no hooks here"):
        told(model, torch.randn(16, 8))
    assert not any(part._forward_hooks for part in model.modules())


def test_what_a_module_is_given_by_name_may_be_spoilt() -> None:
    assert "the model (Named) is the first module" in (told(Named(), torch.randn(16, 8)) or "")


def test_of_two_models_the_first_one_that_made_it_is_told() -> None:
    first, second, x = nn.Sequential(nn.Linear(8, 8), Root()), nn.Linear(8, 1), torch.randn(4, 8)
    with hosted(switching=True) as host:
        host.on_backward = lambda _loss: None
        hidden = first(x)
        second(hidden).sum().backward()
        assert who_made_it(host) == "1 (Root) is the first module whose output is not"
        del hidden  # with what the second was given nothing is told of it
        assert who_made_it(host) == "1 (Root) is the first module whose output is not"


def test_nothing_is_told_of_calls_that_were_not_looked_at() -> None:
    model = nn.Linear(8, 1)
    with hosted(switching=True) as host:
        host.on_backward = lambda _loss: None
        spoilt, fine = torch.full((4, 8), torch.nan), torch.randn(4, 8)
        (model(spoilt) + model(fine)).sum().backward()
        assert who_made_it(host) is None
        model(fine).sum().backward()
        assert "the model's output is finite" in str(who_made_it(host))
        del fine
        assert who_made_it(host) is None
