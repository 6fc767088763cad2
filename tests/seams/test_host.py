"""Very short steps: one group in a few is looked into, and nothing else goes by unseen."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.conftest import evidence_of, plainly, with_entry

import outpace.seams.host
from outpace.seams.host import MIXED_AFTER, TAKES_OVER_AFTER, Host, Step
from outpace.seams.root import RootFacts
from outpace.seams.setup import AS_IS

SHORT = """
    import time
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(6400, 4), torch.randn(6400, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for epoch in range(4):
        model.train()
        for x, y in DataLoader(data, batch_size=8, shuffle=True):
            loss = torch.nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        for part in range(4):
            with torch.no_grad():
                model(data.tensors[0])
            time.sleep(0.05)
    print(repr(loss.item()))
    """


def training(*, rests: bool = False) -> tuple[Host, list[Step]]:
    """A host whose first step begins, and what it will have told."""
    host, seen = Host(rests=rests), []
    host.listeners.append(seen.append)
    host.saw_training()
    return host, seen


def test_a_sample_of_short_steps_is_looked_into() -> None:
    host, seen = training(rests=True)
    resting = 0
    for _ in range(20_000):
        host.boundary = "optimizer"
        resting += host.phases.resting
        host.end_step()
    assert 0.6 < resting / 20_000 < 0.85
    assert sum(step.count for step in seen) >= 20_000 - host.group
    looked = [step for step in seen if step.clean]
    assert 0.15 < len(looked) / len(seen) < 0.4


def test_a_listener_that_fails_takes_none_of_the_others_with_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One of them may have the target to end."""
    host, seen = Host(), []

    def failing(step: Step) -> None:
        raise KeyError("rate")

    host.listeners += [failing, seen.append]
    host.saw_training()
    for _ in range(3):
        host.boundary = "optimizer"
        host.end_step()
    assert len(seen) == 3
    assert capfd.readouterr().err.count("KeyError") == 1


def test_what_is_not_a_step_wakes_it() -> None:
    host = Host(rests=True)
    host.saw_training()
    host.boundary = "optimizer"
    while not host.phases.resting:
        host.end_step()
    host.wake()
    assert not host.phases.resting
    for _ in range(4 * host.group):
        host.end_step()
        assert not host.phases.resting


class Stepped:
    """Stands for an optimizer."""


def test_an_optimizer_that_goes_on_alone_makes_the_steps() -> None:
    host, head, whole = Host(), Stepped(), Stepped()
    for _ in range(50):
        host.saw_optimizer_step(head)
    for _ in range(50):
        host.saw_optimizer_step(whole)
    assert host.steps == 100 - (TAKES_OVER_AFTER - 1)
    host.saw_optimizer_step(head)
    assert host.steps == 100 - (TAKES_OVER_AFTER - 1)


def test_optimizers_side_by_side_make_one_step() -> None:
    host = Host()
    generator, critic = Stepped(), Stepped()
    layers = [Stepped() for _ in range(2 * TAKES_OVER_AFTER)]
    for _ in range(20):
        host.saw_optimizer_step(generator)
        for _ in range(5):
            host.saw_optimizer_step(critic)
        for layer in layers:
            host.saw_optimizer_step(layer)
    assert host.steps == 20


def test_validation_is_seen_between_short_steps(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(SHORT)
    plain = plainly(path)
    code, printed = with_entry(path, tmp_path / "session")
    assert code == 0, printed
    assert printed == plain.stdout, "the same numbers, looked into or not"
    evidence = evidence_of(tmp_path / "session")
    assert evidence.steps.count == 3200
    spent = sum(row.seconds for row in evidence.ledger if row.name == "validation")
    assert 0.15 * 4 <= spent <= 2.0, "three sleeps of an epoch come before another validation call"


@pytest.mark.parametrize("watched", [True, False])
def test_groups_as_long_as_an_epoch_become_smaller(watched: bool) -> None:
    host, seen = training()
    host.setup = replace(AS_IS, watched=watched)
    for step in range(2000):
        host.dirty = host.dirty or step % 32 == 0  # an epoch begins
        host.end_step()
    assert not host.mingled
    assert host.group == 16
    assert sum(step.clean for step in seen[-20:]) == 10


def test_groups_of_short_steps_end_where_input_is_no_longer_free() -> None:
    host, _ = training()
    host.switch(replace(AS_IS, free_input=True))
    for _ in range(100):
        host.end_step()
    assert host.group > 1
    host.switch(replace(AS_IS, free_input=True, watched=False))
    assert host.group > 1
    host.switch(AS_IS)
    assert host.group == 1


def test_what_is_in_every_step_belongs_to_it() -> None:
    host, seen = training()
    for _ in range(100):
        host.saw_validation()
        host.saw_training()
        host.end_step()
    assert host.mingled
    assert [step.clean for step in seen] == [False] * (MIXED_AFTER - 1) + [True] * (
        101 - MIXED_AFTER
    )
    assert {step.count for step in seen} == {1}
    host.setup = replace(AS_IS, watched=False)
    host.end_step()
    assert host.mingled, "what is in every step is not seen then"
    host.setup = AS_IS
    host.end_step()
    assert not host.mingled


def test_phases_take_no_longer_than_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a process may rest between two looks at the clock."""

    def cpu() -> int:
        time.sleep(0.05)
        return 0

    monkeypatch.setattr(outpace.seams.host, "process_time_ns", cpu)
    host, seen = training()
    for _ in range(3):
        host.end_step()
    assert all(sum(step.phases.values()) <= step.wall for step in seen)


ACCUMULATED = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(640, 4), torch.randn(640, 1))
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for index, (x, y) in enumerate(DataLoader(data, batch_size=2)):
        torch.nn.functional.mse_loss(model(x), y).backward()
        if index % 16 == 15:
            optimizer.step()
            optimizer.zero_grad()
    """


def test_a_first_step_after_many_backward_passes(
    script: Callable[[str], Path], tmp_path: Path
) -> None:
    """As an optimizer was made, weights are not taken to be stepped by hand before it begins."""
    code, text = with_entry(script(ACCUMULATED), tmp_path / "session")
    assert code == 0, text
    steps = evidence_of(tmp_path / "session").steps
    assert (steps.count, steps.micro_steps, steps.boundary) == (20, 16, "optimizer")


def test_of_models_of_one_size_the_newest_is_the_one_that_is_trained() -> None:
    host = Host()
    models = [torch.nn.Linear(n, 1) for n in (9, 4, 9, 9)]
    for model in models[:3]:
        host.roots[model] = RootFacts(has_parameters=True, training_calls=1)
    host.roots[models[3]] = RootFacts(has_parameters=True)
    found = host.main_root()
    assert found is not None
    assert found[0] is models[2]


def test_a_larger_model_that_no_step_has_learnt_from_is_another_trainings() -> None:
    host = Host()
    first, second = torch.nn.Linear(4, 1), torch.nn.Linear(9, 1)
    host.steps = 30
    host.roots[first] = RootFacts(has_parameters=True, training_calls=30)
    host.roots[second] = RootFacts(has_parameters=True, training_calls=1, since=30)
    found = host.main_root()
    assert found is not None
    assert found[0] is first
    host.steps = 31
    found = host.main_root()
    assert found is not None
    assert found[0] is second


def test_a_larger_model_that_no_optimizer_has_judges_the_one_that_learns() -> None:
    """As a network whose features are compared, that was left in training mode."""
    host = Host()
    learns, compares = torch.nn.Linear(4, 1), torch.nn.Linear(90, 9)
    for model in (learns, compares):
        host.roots[model] = RootFacts(has_parameters=True, training_calls=3)
    found = host.main_root()
    assert found is not None
    assert found[0] is compares, "nothing has stepped"
    optimizer = torch.optim.SGD(learns.parameters(), 0.1)
    host.optimizers.add(optimizer)
    found = host.main_root()
    assert found is not None
    assert found[0] is learns


def test_a_stderr_that_nobody_takes_ends_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("sys.stderr", Gone())

    def fails(step: Step) -> None:
        raise ZeroDivisionError

    host, seen = training()
    host.listeners.insert(0, fails)
    host.boundary = "optimizer"
    host.end_step()
    assert len(seen) == 1
    assert "step" in host.broken
