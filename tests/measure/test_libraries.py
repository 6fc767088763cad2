"""The length of trainings that libraries make; the libraries' own are in tests/tune/test_frameworks.py."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from outpace.measure.libraries import ask_to_end, judges_at_end, steps_of


def trainer(module: str, **facts: Any) -> Any:
    """One that a script has made a class of its own of."""
    library = type("Trainer", (), {"__module__": module})
    own = type("Mine", (library,), facts)
    return own()


BY_HAND = {
    "optimizers": ["of G", "of D"],
    "lightning_module": SimpleNamespace(automatic_optimization=False),
}
"""whose steps it counts one by one"""


@pytest.mark.parametrize(("resumed", "steps"), [(0, 500), (200, 300)])
def test_transformers(resumed: int, steps: int) -> None:
    state = SimpleNamespace(max_steps=500)
    found = trainer("transformers.trainer", state=state, _initial_global_step=resumed)
    assert steps_of(found) == steps


@pytest.mark.parametrize(
    ("facts", "steps"),
    [
        ({}, 4 * 25),
        ({"accumulate_grad_batches": 8}, 4 * 13),
        ({"max_steps": 30}, 30),
        ({"max_epochs": None, "max_steps": 30}, 30),
        ({"num_training_batches": math.inf, "max_steps": 30}, 30),
        ({"num_training_batches": math.inf}, None),
        ({"max_epochs": -1}, None),
        ({"global_step": 51}, 50),
        ({**BY_HAND, "max_steps": 60}, 30),
        ({**BY_HAND, "global_step": 102}, 50),
    ],
)
@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning(package: str, facts: dict[str, Any], steps: int | None) -> None:
    usual = {"max_epochs": 4, "max_steps": -1, "num_training_batches": 100}
    usual |= {"accumulate_grad_batches": 4, "global_step": 1}
    assert steps_of(trainer(f"{package}.trainer.trainer", **{**usual, **facts})) == steps


def test_an_older_transformers_that_goes_on() -> None:
    state = SimpleNamespace(max_steps=500, global_step=201)
    assert steps_of(trainer("transformers.trainer", state=state)) == 300


@pytest.mark.parametrize("when", ["no", "steps", "epoch"])
def test_whether_a_trainer_validates_at_its_end(when: str) -> None:
    args = SimpleNamespace(eval_strategy=SimpleNamespace(value=when))
    assert judges_at_end(trainer("transformers.trainer", args=args)) is (when != "no")
    for validates in (True, False):
        found = trainer("lightning.pytorch.trainer.trainer", enable_validation=validates)
        assert judges_at_end(found) is validates
    assert not judges_at_end(trainer("train", enable_validation=True))


def test_what_is_no_such_trainer_tells_nothing() -> None:
    assert steps_of(trainer("train", max_steps=7)) is None
    assert steps_of(trainer("transformers.trainer")) is None
    assert steps_of(None) is None


def test_trainers_are_asked_to_end_as_where_they_stop_early() -> None:
    control = SimpleNamespace(should_training_stop=False, should_save=False, should_evaluate=False)
    assert ask_to_end(trainer("transformers.trainer", control=control))
    assert vars(control) == {
        "should_training_stop": True,
        "should_save": False,
        "should_evaluate": False,
    }
    args = SimpleNamespace(eval_strategy="epoch", save_strategy=SimpleNamespace(value="steps"))
    assert ask_to_end(trainer("transformers.trainer", control=control, args=args))
    assert (control.should_save, control.should_evaluate) == (True, False)
    found = trainer("lightning.pytorch.trainer.trainer", should_stop=False)
    assert ask_to_end(found)
    assert found.should_stop
    least = SimpleNamespace(_can_stop_early=False)  # below its min_epochs
    found = trainer("lightning.pytorch.trainer.trainer", should_stop=False, fit_loop=least)
    assert not ask_to_end(found)
    assert found.should_stop  # it ends when it has come to them
    for other in (trainer("train", should_stop=False), trainer("transformers.trainer"), None):
        assert not ask_to_end(other)
