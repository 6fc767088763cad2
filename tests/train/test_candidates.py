"""What speaks for a strategy that "auto" tries, and what does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from outpace.plan.safety import random_states
from outpace.train import candidates
from outpace.train.data import Batches
from outpace.train.facts import Facts, facts_of, told_apart
from outpace.train.objective import Objective
from outpace.train.strategies import STRATEGIES
from tests.train.test_choose import deep, unequal
from tests.train.toys import (
    Reader,
    accuracy,
    convolutional,
    images,
    model,
    own_loss,
    ready,
    same,
    token_loss,
    tokens,
)

CPU = torch.device("cpu")


def facts(given: Any, batches: list[Any], loss: Any = F.cross_entropy, metric: Any = None) -> Facts:
    return facts_of(given, Objective(loss, metric), Batches(batches, CPU), batches)


def names(found: Facts, *, steps: bool = False) -> list[str]:
    """Of what speaks for something else, or for other ways to compute a step."""
    told = [each for each in candidates.CANDIDATES if each.why(found)]
    return [each.name for each in told if (each.by == "the time of a step") == steps]


def recall(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of the classes that are there, on average."""
    right = outputs.argmax(1) == targets
    return torch.stack([right[targets == c].float().mean() for c in targets.unique()]).mean()


def test_facts_speak_for_what_they_should() -> None:
    plain = facts(model(), ready())
    assert sum(plain.classes) == pytest.approx(1.0)
    assert names(plain) == []
    assert names(facts(deep(), ready())) == ["lsuv"]
    assert names(facts(model(), unequal()["train"])) == ["class_prior"]
    seen = facts(convolutional(), images())
    assert (seen.side, names(seen)) == ((32, 32), [])
    assert names(seen._replace(timed=True)) == ["progressive_resizing"]
    assert names(seen._replace(timed=True, input=2.0)) == []
    read = facts(Reader(), tokens(), token_loss)
    assert read.length == 64
    assert "sequence_length" in names(read._replace(timed=True, classes=()))
    assert names(plain._replace(falls=False)) == ["schedule_free", "ema"]
    assert names(plain._replace(falls=False, batch_norm=True)) == ["ema"]


def test_other_ways_to_compute_a_step() -> None:
    coloured = [(torch.cat([x, x], 1), y) for x, y in images()]
    net = nn.Sequential(nn.Conv2d(2, 4, 3), *convolutional()[1:])
    linear, conv = facts(model(), ready()), facts(net, coloured)
    assert names(conv._replace(halves=True), steps=True) == ["bf16", "channels_last"]
    assert names(linear._replace(halves=True), steps=True) == ["bf16"]
    assert names(linear._replace(halves=False, scaled=True), steps=True) == ["fp16"]
    assert not names(linear._replace(halves=False), steps=True)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    assert not facts(net, coloured).turned
    assert not facts(model().double(), [(x.double(), y) for x, y in ready()]).halves
    with torch.autocast("cpu", torch.bfloat16):
        assert not facts(model(), ready()).halves


def test_rare_classes_are_looked_after_where_the_metric_is_more_than_accuracy() -> None:
    seen = {
        metric: facts(model(), unequal()["train"], metric=metric)
        for metric in (recall, accuracy, None)
    }
    rare = [each._replace(classes=(0.97, 0.02, 0.01), samples=True) for each in seen.values()]
    assert [names(each)[1:] for each in rare] == [["repeat_factor", "class_weights"], [], []]
    assert [each.accuracy for each in rare] == [False, True, False]
    by_class = rare[0]
    assert by_class.alone
    assert names(by_class._replace(samples=False))[1:] == ["class_weights"]
    assert names(by_class._replace(alone=False))[1:] == ["class_weights"]
    assert names(by_class._replace(told=False))[1:] == ["repeat_factor"]
    assert not facts(model(), ready(), own_loss).told
    assert not facts(Reader(), tokens(), token_loss, accuracy).alone


def test_a_metric_that_wants_more_of_its_outputs_is_taken_for_more_than_accuracy() -> None:
    def probabilities(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        raise ValueError("these do not sum up to 1")

    assert not facts(model(), ready(), metric=probabilities).accuracy


def test_dropout_is_thought_too_much_in_few_epochs_alone() -> None:
    seen = facts(model(dropout=0.3), ready())
    assert seen.dropout == pytest.approx(0.3)
    assert names(seen) == []
    assert names(seen._replace(epochs=1.0)) == ["dropout_off"]
    assert names(seen._replace(epochs=3.0)) == []
    assert names(facts(model(), ready())._replace(epochs=1.0)) == []


def test_muon_is_thought_of_where_matrices_are_many_and_small_beside_batches() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))
    x, y = torch.randn(400, 8), torch.randint(3, (400,))
    seen = facts(net, [(x, y)])
    weights = sum(weight.numel() for weight in net.parameters())
    assert seen.hidden == pytest.approx(256 / weights)
    multiplied = 6 * 400 * (8 * 16 + 16 * 16 + 16 * 3)
    assert seen.muon == pytest.approx(5 * 6 * 16**3 / multiplied)
    large = seen._replace(hidden=0.6)
    assert names(large) == ["muon"]
    assert names(large._replace(hidden=0.4)) == []
    assert names(large._replace(muon=0.4)) == []
    assert facts(model(), ready()).hidden == 0.0


def test_looking_leaves_all_as_it_was() -> None:
    net, state = model(dropout=0.3, norm=True), random_states()
    before = copy.deepcopy(net.state_dict())
    facts(net, ready(), metric=recall)
    assert same(dict(net.state_dict()), dict(before))
    assert same(random_states(), state)
    assert net.training


def test_each_candidate_is_a_strategy() -> None:
    for each in candidates.CANDIDATES:
        assert each.name in STRATEGIES
        assert each.by == "trials" or not each.own_rate


def test_signals_of_one_sample_say_nothing() -> None:
    x, y = ready()[0]
    assert names(facts(deep(), [(x[:1], y[:1])])) == []


def test_a_loss_may_say_that_it_leaves_no_class_out() -> None:
    class Dice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ignore_index = None

        def forward(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return own_loss(outputs, targets)

    assert facts(model(), ready(), Dice()).classes == facts(model(), ready()).classes


def test_classes_may_be_told_in_bytes() -> None:
    """Class 156 is none that is left out, though -100 is the same byte."""
    some = [(x, torch.where(y == 0, 156, y)) for x, y in ready()]
    wide = nn.Linear(8, 157)
    as_bytes = facts(wide, [(x, y.byte()) for x, y in some])
    assert as_bytes.classes == facts(wide, some).classes


@pytest.mark.parametrize(
    ("target", "spread", "kind", "apart"),
    [
        (1990.0, 10.0, torch.bfloat16, False),
        (1990.0, 1000.0, torch.bfloat16, True),
        (1990.0, 30.0, torch.float16, True),
        (0.0, 1.0, torch.bfloat16, True),
    ],
)
def test_targets_that_a_short_precision_does_not_tell_apart(
    target: float, spread: float, kind: torch.dtype, apart: bool
) -> None:
    y = target + spread * torch.randn(64, 1, generator=torch.Generator().manual_seed(0))
    assert told_apart([(torch.zeros(64, 2), y)], kind) is apart


def test_classes_are_always_told_apart() -> None:
    assert told_apart(ready(), torch.bfloat16)
    assert told_apart([{"x": torch.zeros(3)}], torch.bfloat16)
