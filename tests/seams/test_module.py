"""The model's call, watched: torch's own tools and any argument get through."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import with_entry
from tests.remedies.trainings import hosted
from torch import nn
from torch.optim import optimizer as optimizers

from outpace.seams.module import ModuleSeam
from outpace.seams.setup import AS_IS, Setup

PROFILED = """
    import torch
    from torch.profiler import ProfilerActivity, profile

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, module, original):
            return self.layer(module) + original

    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    # torch imports a module at the first step, and its profiler keeps the name of that module's
    # frame without the code it lies in: read later, it was no text in one run of six.
    optimizer.step()
    with profile(activities=[ProfilerActivity.CPU], with_stack=True, with_modules=True) as profiler:
        for _ in range(8):
            optimizer.zero_grad()
            net(original=1.0, module=torch.ones(2, 4)).sum().backward()
            optimizer.step()
    print(sum("Linear" in event.name for event in profiler.events()) > 0)
"""


def test_a_profiler_that_looks_for_modules_in_their_frames(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    code, printed = with_entry(script(PROFILED), tmp_path / "session")
    assert code == 0, printed
    assert "True" in printed


class Router(nn.Module):
    """Notes an auxiliary loss in a list, and what it has seen in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(3, 2, 1)

    def forward(
        self, images: list[torch.Tensor], losses: list[torch.Tensor], seen: dict[str, int]
    ) -> torch.Tensor:
        out = self.layer(images[0])
        losses.append(out.square().mean())
        seen["calls"] = seen.get("calls", 0) + 1
        return out


@pytest.mark.parametrize(
    "setup",
    [Setup(channels_last=True), Setup(autocast="float32")],
    ids=["channels_last", "float32"],
)
def test_what_a_model_writes_to_its_arguments_reaches_the_script(setup: Setup) -> None:
    images = [torch.randn(2, 3, 4, 4).bfloat16()]
    losses, seen = list[torch.Tensor](), dict[str, int]()
    given = images[0]
    with hosted(setup) as host, torch.autocast("cpu", torch.bfloat16):
        model = Router()
        for _ in range(3):
            out = model(images, losses, seen)
            (out.mean() + losses[-1]).backward()
        assert not host.broken
    assert len(losses) == 3
    assert seen == {"calls": 3}
    assert images[0] is given


def test_the_input_of_every_model_that_learns_is_looked_for() -> None:
    """One whose input is made in its call has no name for it, and says nothing of another's."""
    with hosted() as host:
        actor, critic = nn.Linear(4, 4), nn.Linear(8, 1)
        for _ in range(2):
            seen = torch.randn(2, 4)
            critic(torch.cat([seen, actor(seen)], 1)).sum().backward()
        module = host.seams["module"]
        assert isinstance(module, ModuleSeam)
        assert [names for *_, names in module.callers()] == [("seen",)]


@pytest.mark.parametrize("way", ["left", "put_back", "attacked", "plain"])
def test_a_model_that_learns_on_in_evaluation_mode(way: str) -> None:
    """An attack by gradients of the input, in evaluation mode, comes before a step in training mode."""
    with hosted() as host:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0 if way == "plain" else 0.5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(30):
            x = torch.randn(2, 4, requires_grad=True)
            if way == "attacked":
                model.eval()(x).sum().backward()
                model.train()
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            if step == 11:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train(mode=way == "put_back")
        module = host.seams["module"]
        assert isinstance(module, ModuleSeam)
        since, where = module.left_in_evaluation()
        assert not host.broken
    assert (since, where is not None) == ((19, True) if way == "left" else (0, False))
    assert module.evaluations().with_grad == 0 or way == "attacked"


@pytest.mark.parametrize("learns", [False, True])
def test_an_image_that_is_learnt_through_a_trained_model(learns: bool) -> None:
    """The model learns too where the optimizer that steps now has it, as one for fine-tuning."""
    with hosted() as host:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        image = torch.randn(2, 4, requires_grad=True)
        for step in range(60):
            if step == 15:
                model.eval()
                seen = [image, *model.parameters()] if learns else [image]
                optimizer = torch.optim.SGD(seen, 0.1)
            optimizer.zero_grad()
            model(image if step >= 15 else torch.randn(2, 4)).sum().backward()
            optimizer.step()
        module = host.seams["module"]
        assert isinstance(module, ModuleSeam)
        assert (module.left_in_evaluation()[0] > 0) is learns
        assert not host.broken


def test_the_seam_is_taken_out_and_put_in_where_a_step_ends() -> None:
    before = dict(optimizers._global_optimizer_pre_hooks)
    with hosted() as host:
        host.listeners.append(lambda _: host.switch(replace(AS_IS, watched=not host.setup.watched)))
        model = nn.Linear(4, 4)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(6):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
        assert host.steps >= 6
        assert not host.broken
    assert optimizers._global_optimizer_pre_hooks == before


def test_a_model_left_in_evaluation_mode_whose_gradients_are_added_up() -> None:
    with hosted() as host:
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(30):
            model.train(step < 12)
            for _ in range(3):
                model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        module = host.seams["module"]
        assert isinstance(module, ModuleSeam)
        assert module.left_in_evaluation()[0] > 0
        assert module.evaluations().with_grad == 0


def test_a_call_that_is_learnt_from_is_told_from_those_that_act() -> None:
    """A network that acts on one state, with gradients recorded, for long before it learns from a batch."""
    net = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def act() -> torch.Tensor:
        return net(torch.randn(1, 4))  # acts

    with hosted() as host:
        for step in range(30):
            act()
            if step > 10:
                states = torch.randn(32, 4)
                net(states).sum().backward()  # learns
                optimizer.step()
                optimizer.zero_grad()
        facts = host.roots[net]
        assert host.batch_size == 32
        assert facts.where is not None
        line = int(facts.where.rpartition(":")[2])
        assert "# learns" in Path(__file__).read_text().splitlines()[line - 1]
        assert any("states" in names for *_, names in facts.callers)


class Flattened(nn.Module):
    """As many that were written before reshape()."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 36, 2)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer(images).view(-1, 4 * 36))


def test_a_layout_that_a_model_does_not_bear_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    net, images = Flattened(), torch.randn(2, 3, 8, 8)
    wanted = net(images)
    with hosted(replace(AS_IS, channels_last=True)) as host:
        for _ in range(2):
            assert torch.equal(net(images), wanted)
        assert list(host.unfit) == ["channels_last"]
        assert not host.broken
    assert net.layer.weight.is_contiguous()
    assert capsys.readouterr().err.count("channels_last is left out") == 1


def test_other_errors_of_a_model_are_its_own() -> None:
    with hosted(replace(AS_IS, channels_last=True)) as host:
        with pytest.raises(RuntimeError, match=r"shapes cannot be multiplied|invalid for input"):
            Flattened()(torch.randn(2, 3, 9, 9))
        assert not host.unfit


class Counts(nn.Module):
    """As a metric of torchmetrics: another key after each call."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __hash__(self) -> int:
        return hash(self.calls)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x


def test_a_module_that_is_another_key_each_time_is_one() -> None:
    metric = Counts()
    with hosted() as host:
        before = len(host.roots)
        for _ in range(5):
            metric(torch.ones(2))
        assert len(host.roots) - before <= 1


def test_the_model_is_the_one_that_learns() -> None:
    """Not a larger one that is frozen and never set to evaluate, as for a loss of style."""
    frozen, model = nn.Linear(50, 50).requires_grad_(False), nn.Linear(4, 50)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with hosted() as host:
        for _ in range(3):
            frozen(model(torch.ones(2, 4))).sum().backward()
            optimizer.step()
        rooted = host.main_root()
        assert rooted is not None
        assert rooted[0] is model


class Asleep(nn.Module):
    """Without parameters, and slow."""

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.01)
        return batch * 0.5


def test_a_module_that_no_gradient_comes_through_is_no_part_of_the_model() -> None:
    phases = []
    with hosted(AS_IS) as host:
        model, beside, loss = nn.Linear(4, 1), Asleep(), Asleep()
        optimizer = torch.optim.SGD(model.parameters(), 0.01)
        host.listeners.append(lambda step: phases.append(step.phases))
        for _ in range(4):
            optimizer.zero_grad()
            loss(model(beside(torch.ones(2, 4)))).sum().backward()
            optimizer.step()
        assert not host.broken
    for totals in phases[2:]:
        assert totals["elsewhere"] >= 1e7, "what came before the model"
        assert totals["forward"] >= 1e7, "what came of it"
        assert totals["forward"] + totals["elsewhere"] >= 2e7
