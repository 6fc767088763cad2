"""Gradients that nobody uses: found, spared while that is asked, and there again after."""

from __future__ import annotations

import copy
import io
from dataclasses import replace

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.checkpoint import checkpoint

from outpace.seams.setup import AS_IS, Setup
from outpace.seams.unused import Following, unused
from outpace.tune.assemble import assemble

SPARED = replace(AS_IS, no_unused_gradients=True)


class Distilled:
    """A student that learns from a teacher whose graph is kept."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.teacher, self.student = nn.Linear(4, 2), nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.student.parameters(), 0.1)
        self.asked: dict[nn.Module, list[bool]] = {}
        """which parameters asked for a gradient in each model's newest call"""
        for model in (self.teacher, self.student):
            model.register_forward_pre_hook(
                lambda model, _: self.asked.update({model: asking(model)})
            )

    def step(self) -> None:
        x = torch.ones(3, 4)
        self.optimizer.zero_grad()
        nn.functional.mse_loss(self.student(x), self.teacher(x)).backward()
        self.optimizer.step()
        assert all(asking(self.teacher) + asking(self.student)), "but for the calls"


def trained(setup: Setup, steps: int = 6) -> Distilled:
    with hosted() as host:
        one = Distilled()
        host.switch(setup)
        for _ in range(steps):
            one.step()
    return one


def asking(model: nn.Module) -> list[bool]:
    return [parameter.requires_grad for parameter in model.parameters()]


def test_a_teacher_asks_for_none_while_that_is_wanted() -> None:
    with hosted() as host:
        one = Distilled()
        for _ in range(2):
            one.step()
        assert len(list(unused(host))) == 2
        host.switch(SPARED)
        before = [p.grad.clone() for p in one.teacher.parameters() if p.grad is not None]
        one.step()
        assert one.asked == {one.teacher: [False, False], one.student: [True, True]}
        for parameter, gradient in zip(one.teacher.parameters(), before, strict=True):
            assert parameter.grad is not None
            assert torch.equal(parameter.grad, gradient), "as it was when it was spared"
        host.switch(AS_IS)
        one.step()
        assert one.asked[one.teacher] == [True, True]
        host.switch(SPARED)
    one.step()
    assert one.asked[one.teacher] == [True, True], "the seam has gone"


def test_from_the_first_step_on_and_with_the_same_bits() -> None:
    plain, spared = trained(AS_IS), trained(SPARED)
    for one, other in zip(plain.student.parameters(), spared.student.parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_teacher_in_evaluation_mode_is_one_too() -> None:
    with hosted() as host:
        one = Distilled()
        one.teacher.eval()
        for _ in range(8):
            one.step()
        assert {id(p) for _, p in unused(host)} == {id(p) for p in one.teacher.parameters()}
        host.switch(SPARED)
        one.step()
        assert not any(one.asked[one.teacher])


@pytest.mark.parametrize("before_the_step", [False, True])
@pytest.mark.parametrize("decay", [0.5, 0.999])
def test_a_mean_teacher_is_one_too(decay: float, before_the_step: bool) -> None:
    """Its weights are changed at each step, towards the student's."""

    def average() -> None:
        with torch.no_grad():
            pairs = zip(one.teacher.parameters(), one.student.parameters(), strict=True)
            for mean, weight in pairs:
                mean.mul_(decay).add_(weight, alpha=1 - decay)

    with hosted(SPARED) as host:
        one = Distilled()
        for _ in range(6):
            one.step()
            average()
        assert {id(p) for _, p in unused(host)} == {id(p) for p in one.teacher.parameters()}
        assert not any(one.asked[one.teacher])


@pytest.mark.parametrize("warm_up", [0, 6])
def test_a_mean_teacher_is_seen_at_small_rates(warm_up: int) -> None:
    """Weights of a norm move by no more than rounding, and so do all while the rate rises from 0."""
    with hosted(switching=True) as host:
        torch.manual_seed(0)
        student = nn.Sequential(nn.Linear(16, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 4))
        teacher = copy.deepcopy(student)
        optimizer = torch.optim.AdamW(student.parameters(), 1e-4)
        for index in range(24):
            optimizer.param_groups[0]["lr"] = 1e-4 if index >= warm_up else 0.0
            x = torch.randn(8, 16)
            optimizer.zero_grad()
            nn.functional.mse_loss(student(x), teacher(x + 0.1)).backward()
            optimizer.step()
            with torch.no_grad():
                for mean, weight in zip(teacher.parameters(), student.parameters(), strict=True):
                    mean.lerp_(weight, 0.001)
        assert {id(p) for _, p in unused(host)} == {id(p) for p in teacher.parameters()}


def test_an_average_is_held_against_weights_of_its_device_alone() -> None:
    following = Following()
    weight, trained = nn.Parameter(torch.zeros(16)), torch.ones(16)
    elsewhere = torch.ones(16, device="meta")
    following.look(1, [[weight]], [elsewhere, trained])
    with torch.no_grad():
        weight.add_(0.1)
    following.look(2, [[weight]], [elsewhere, trained])
    assert following.found == {id(weight)}


def test_a_weight_that_is_changed_later_is_no_average_for_that() -> None:
    following = Following()
    weight, late = nn.Parameter(torch.zeros(16)), nn.Parameter(torch.ones(16))
    trained = torch.ones(16)
    following.look(1, [[weight]], [trained])
    with torch.no_grad():
        weight.add_(0.1)
        late.sub_(torch.rand(16))
    following.look(2, [[weight, late]], [trained])
    assert following.found == {id(weight)}


@pytest.mark.parametrize("way", ["by its gradient", "at random", "beyond"])
def test_what_the_script_learns_itself_is_used(way: str) -> None:
    with hosted(SPARED) as host:
        one = Distilled()
        for _ in range(6):
            one.step()
            pairs = zip(one.teacher.parameters(), one.student.parameters(), strict=True)
            with torch.no_grad():
                for weight, trained in pairs:
                    if way == "by its gradient":
                        weight.sub_(0.1 * weight.grad)
                    elif way == "at random":
                        weight.add_(0.1 * torch.randn_like(weight))
                    else:
                        weight.add_(1.5 * (trained - weight))
        assert not list(unused(host))
        assert all(one.asked[one.teacher])


def test_where_no_optimizer_has_any_none_are_unused() -> None:
    with hosted() as host:
        one = Distilled()
        for _ in range(3):
            nn.functional.mse_loss(one.student(torch.ones(3, 4)), torch.ones(3, 2)).backward()
        assert not list(unused(host))


def test_an_optimizer_that_begins_late_has_its_parameters() -> None:
    """It is made before the first step, and stepped epochs after it."""
    with hosted(SPARED) as host:
        one = Distilled()
        late = torch.optim.SGD(one.teacher.parameters(), 0.1)
        for _ in range(6):
            one.step()
        assert not list(unused(host))
        assert one.asked[one.teacher] == [True, True]
        assert late.param_groups[0]["params"][0].grad is not None


@pytest.mark.parametrize("group", [False, True])
def test_what_an_optimizer_is_given_later_asks_again(group: bool) -> None:
    with hosted(SPARED) as host:
        one = Distilled()
        for _ in range(6):
            one.step()
        assert one.asked[one.teacher] == [False, False]
        given = [one.teacher.weight]
        if group:
            one.optimizer.add_param_group({"params": given})
        else:
            late = torch.optim.SGD(given, 0.1)
            assert late.param_groups
        before = one.teacher.weight.clone()
        one.step()
        assert one.asked[one.teacher] == [True, False]
        assert torch.equal(one.teacher.weight, before) is not group
        host.switch(AS_IS)
        one.step()
        assert one.asked[one.teacher] == [True, True]


def test_the_seam_leaves_no_trace() -> None:
    plain = torch.optim.Optimizer.add_param_group
    with hosted():
        assert torch.optim.Optimizer.add_param_group is not plain
    assert torch.optim.Optimizer.add_param_group is plain


class Net(nn.Module):
    """A backbone and a head, of which a script may train the head alone at first."""

    def __init__(self, reentrant: bool | None = None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 4)
        self.backbone, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
        self.reentrant = reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embedding(x)
        if self.reentrant is None:
            return self.head(self.backbone(x))
        x = checkpoint(self.backbone, x, use_reentrant=self.reentrant)
        return self.head(x)


def train(model: nn.Module, learnt: list[nn.Parameter], steps: int = 6) -> None:
    optimizer = torch.optim.SGD(learnt, 0.1)
    for _ in range(steps):
        model.zero_grad()
        model(torch.arange(5)).square().mean().backward()
        optimizer.step()


def test_a_copy_and_a_saved_model_are_learnt_as_a_whole() -> None:
    torch.manual_seed(0)
    model = Net()
    with hosted(SPARED):
        train(model, [*model.head.parameters()])
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for other in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            before = other.backbone.weight.detach().clone()
            train(other, [p for p in other.parameters() if p.requires_grad])
            assert not torch.equal(before, other.backbone.weight)


def test_what_the_script_freezes_stays_frozen() -> None:
    with hosted(SPARED):
        one = Distilled()
        for _ in range(6):
            one.step()
        one.teacher.weight.requires_grad_(False)
        nn.functional.mse_loss(
            one.student(torch.ones(3, 4)), one.teacher(torch.ones(3, 4))
        ).backward()
        assert asking(one.teacher) == [False, True]


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("watched", [False, True], ids=["by itself", "beside the seam that looks"])
def test_where_activations_are_computed_again_all_ask(reentrant: bool, watched: bool) -> None:
    """What comes behind a spared part would get no gradient, or be computed otherwise than before."""

    def weights(setup: Setup) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Net(reentrant)
        learnt = [*model.backbone.parameters(), *model.head.parameters()]
        host = assemble()
        if not watched:
            del host.seams["recompute"]
        host.install()
        try:
            host.switch(setup)
            train(model, learnt)
            assert not host.broken
        finally:
            host.remove()
        return learnt

    plain, spared = weights(AS_IS), weights(SPARED)
    assert all(map(torch.equal, plain, spared))
    assert torch.utils.checkpoint.CheckpointFunction.apply.__qualname__.startswith("Function.")


def test_parameters_made_in_inference_mode() -> None:
    """Torch counts no changes of theirs, and says so with an error."""
    plain = torch.optim.Optimizer.add_param_group
    with hosted(SPARED) as host:
        with torch.inference_mode():
            judge = nn.Linear(4, 2)
            judge(torch.ones(3, 4))
        one = Distilled()
        for _ in range(6):
            one.step()
        assert one.asked[one.teacher] == [False, False]
        assert not host.broken
        host.listeners.clear()  # as where a step fails
    assert torch.optim.Optimizer.add_param_group is plain


def test_a_group_that_is_added_by_its_name() -> None:
    with hosted(SPARED):
        one = Distilled()
        one.optimizer.add_param_group(param_group={"params": one.teacher.parameters()})
        assert len(one.optimizer.param_groups) == 2


def test_an_argument_of_the_models_that_is_called_module() -> None:
    class Named(nn.Linear):
        def forward(self, x: torch.Tensor, module: str = "") -> torch.Tensor:
            return super().forward(x) if module == "first" else x

    with hosted(SPARED):
        assert Named(4, 2)(torch.ones(3, 4), module="first").shape == (3, 2)
