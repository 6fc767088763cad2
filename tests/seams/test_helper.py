"""Models that are asked in each step without learning: their calls are no validation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.conftest import evidence_of, with_entry
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.seams.helper import EACH
from outpace.seams.host import Step
from outpace.seams.module import ModuleSeam


def trained(train: Callable[[nn.Module, nn.Module], None]) -> tuple[list[Step], ModuleSeam]:
    student, teacher = nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 2), nn.Dropout()).eval()
    steps: list[Step] = []
    with hosted() as host:
        host.listeners.append(steps.append)
        train(student, teacher)
        seam = host.seams["module"]
        assert isinstance(seam, ModuleSeam)
        seam.evaluated = seam.evaluations()  # type: ignore[attr-defined]
        return steps, seam


def validations(steps: list[Step]) -> list[int]:
    return [step.index for step in steps if step.phases["validation"]]


def loader(batches: int = 8) -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(torch.randn(2 * batches, 4)), batch_size=2)


def with_a_teacher(student: nn.Module, teacher: nn.Module) -> None:
    optimizer, held_out = torch.optim.SGD(student.parameters(), 0.01), loader(2)
    batches = loader()
    for _ in range(2):
        for (x,) in batches:
            with torch.no_grad():
                wanted = teacher(x)
            (student(x) - wanted).square().mean().backward()
            optimizer.step()
        with torch.no_grad():
            for (x,) in held_out:
                student(x) - teacher(x)


def with_a_network_as_loss(student: nn.Module, network: nn.Module) -> None:
    optimizer, batches = torch.optim.SGD(student.parameters(), 0.01), loader(16)
    for (x,) in batches:
        network(student(x).repeat(1, 2)).square().mean().backward()
        optimizer.step()


def with_its_own_guesses(student: nn.Module, _: nn.Module) -> None:
    optimizer, batches = torch.optim.SGD(student.parameters(), 0.01), loader(16)
    for (x,) in batches:
        with torch.no_grad():
            wanted = student(x + 1)
        (student(x) - wanted).square().mean().backward()
        optimizer.step()


def without_a_loader(student: nn.Module, teacher: nn.Module) -> None:
    optimizer = torch.optim.SGD(student.parameters(), 0.01)
    teacher.train()(torch.zeros(2, 4))  # it is tried out, so that its layers take their sizes
    for _ in range(16):
        x = torch.randn(2, 4)
        with torch.no_grad():
            wanted = teacher(x)
        (student(x) - wanted).square().mean().backward()
        optimizer.step()


def with_samples_for_another(student: nn.Module, teacher: nn.Module) -> None:
    """As a generator makes them, of which a critic learns to tell them from true ones."""
    critic, batches = teacher.train(), torch.randn(16, 8, 4)
    ours = torch.optim.SGD(student.parameters(), 0.01)
    its = torch.optim.SGD(critic.parameters(), 0.01)
    for x in batches:
        with torch.no_grad():
            made = student(torch.randn(8, 4)).repeat(1, 2)
        (critic(made).mean() - critic(x).mean()).backward()
        its.step()
        ours.zero_grad()
        critic(student(torch.randn(8, 4)).repeat(1, 2)).mean().backward()
        ours.step()


def by_acting(student: nn.Module, _: nn.Module) -> None:
    """As a policy does, but when it explores: one observation at a time, now and then several."""
    optimizer = torch.optim.SGD(student.parameters(), 0.01)
    student(torch.zeros(1, 4))  # as one whose layers take their sizes from the first input
    for step in range(16):
        for _ in range(step % 3):
            with torch.no_grad():
                student(torch.randn(1, 4))
        student(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


def by_which_action_is_best(student: nn.Module, _: nn.Module) -> None:
    """As of two networks: the one that learns chooses, the other one judges (double Q-learning)."""
    slow = nn.Linear(4, 2).requires_grad_(False)
    optimizer = torch.optim.SGD(student.parameters(), 0.01)
    for _ in range(16):
        x, later = torch.randn(2, 8, 4)
        with torch.no_grad():
            best = student(later).argmax(1, keepdim=True)
            wanted = slow(later).gather(1, best)
        (student(x) - wanted).square().mean().backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("train", "later"),
    [
        (by_acting, []),
        (by_which_action_is_best, []),
        (with_samples_for_another, []),
        (with_a_teacher, [8]),
        (with_a_network_as_loss, []),
        (with_its_own_guesses, []),
        (without_a_loader, []),
    ],
)
def test_a_call_in_each_step_belongs_to_it(
    train: Callable[[nn.Module, nn.Module], None], later: list[int]
) -> None:
    steps, seam = trained(train)
    assert len(steps) == 16
    assert [index for index in validations(steps) if index > EACH] == later
    assert all(step.clean for step in steps[EACH + 1 :] if step.index != 8)
    assert seam.evaluated.with_grad == 0  # type: ignore[attr-defined]


def test_a_validation_in_each_step_stays_one() -> None:
    def by_whole_batches(student: nn.Module, _: nn.Module) -> None:
        optimizer, x = torch.optim.SGD(student.parameters(), 0.01), torch.randn(8, 4)
        for _ in range(16):
            student(x).square().mean().backward()
            optimizer.step()
            with torch.no_grad():
                student(x)

    steps, _ = trained(by_whole_batches)
    assert validations(steps) == list(range(1, 16))


@pytest.mark.parametrize(
    ("loaders", "told"),
    [("gone", []), ("kept", [2]), ("one", [2, 4, 6, 8, 10, 12, 14])],
)
def test_a_policy_acts_before_a_loader_gives_what_came_of_it(loaders: str, told: list[int]) -> None:
    """One that the script holds until the next is known when another was made; beside a loader that stays
    a model is tried out, as on a text to go on with.
    """

    def by_rounds(student: nn.Module, _: nn.Module) -> None:
        optimizer, batches = torch.optim.SGD(student.parameters(), 0.01), None
        for _ in range(8):
            for _ in range(3):
                with torch.no_grad():
                    student(torch.randn(2, 4))
            if loaders != "one" or batches is None:
                batches = DataLoader(TensorDataset(torch.randn(16, 4)), batch_size=8)
            for (x,) in batches:
                student(x).square().mean().backward()
                optimizer.step()
            if loaders == "gone":
                batches = None

    steps, _ = trained(by_rounds)
    assert len(steps) == 16
    assert validations(steps) == told


def test_a_distillation_is_forecast_without_validations(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    path = script(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.randn(400, 64)), batch_size=4)
        teacher = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 64)).eval()
        student = nn.Linear(64, 64)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)
        for epoch in range(50):
            for (x,) in loader:
                with torch.no_grad():
                    wanted = teacher(x)
                optimizer.zero_grad()
                (student(x) - wanted).square().mean().backward()
                optimizer.step()
        """
    )
    code, text = with_entry(
        path, tmp_path / "session", "outpace.tune.experiment:begin", time_s=20.0, steps=90
    )
    assert code == 0, text
    found = evidence_of(tmp_path / "session")
    assert "validation" not in {row.name for row in found.ledger}
    came = [one.name for one in found.run.recurring]
    assert [name for name in came if name != "epoch_end"] == ["input"]
