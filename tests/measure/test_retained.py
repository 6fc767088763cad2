"""What keeps tensors is named, with the line that adds to it."""

from __future__ import annotations

import functools
import inspect
import math
import sys
from collections import defaultdict, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from outpace.measure.added import is_limited, where_added
from outpace.measure.retained import carries_graph, fills_up, find_retained, look

History: list[Any] = []


def a_loss(layer: nn.Module | None = None) -> torch.Tensor:
    return (layer or nn.Linear(4, 4))(torch.randn(2, 4)).square().mean()


class Net(nn.Module):
    """Keeps what passes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.maps: deque[Any] = deque()

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(rows)
        self.maps.append(out)  # grows: module
        return out


class Trainer:
    """Keeps losses in several ways."""

    def __init__(self) -> None:
        self.net = Net()
        self.losses: list[Any] = []
        self.history: dict[str, list[Any]] = defaultdict(list)
        self.total: Any = 0.0

    def step(self, how: str) -> None:
        loss = a_loss()
        if how == "attribute":
            self.losses.append((how, loss))  # grows: attribute
        elif how == "nested":
            self.history["loss"].append(loss)  # grows: nested
        elif how == "total":
            self.total += loss  # grows: total
        elif how == "module":
            a_loss(self.net)


def by_attribute(how: str) -> tuple[str, str] | None:
    trainer, before = Trainer(), None
    for step in range(30):
        trainer.step(how)
        if step == 15:
            before = look()
    return find_retained(before)


def by_list(_: str) -> tuple[str, str] | None:
    losses, names, before = [], [], None
    for step in range(30):
        losses.append(a_loss())  # grows: list
        names.append(f"step {step}")
        if step == 15:
            before = look()
    return find_retained(before)


def by_dict(_: str) -> tuple[str, str] | None:
    cache, before = {}, None
    for step in range(30):
        cache[step] = torch.ones(3)  # grows: dict
        if step == 15:
            before = look()
    return find_retained(before)


def by_sum(_: str) -> tuple[str, str] | None:
    mean, before = torch.zeros(()), None
    for step in range(30):
        mean = 0.9 * mean + 0.1 * a_loss()  # grows: sum
        if step == 15:
            before = look()
    return find_retained(before)


def by_global(_: str) -> tuple[str, str] | None:
    History.clear()
    before = look()
    for _step in range(30):
        History.extend([a_loss()])  # grows: global
    found = find_retained(before)
    History.clear()
    return found


@pytest.mark.parametrize(
    ("run", "how", "name"),
    [
        (by_list, "list", "losses"),
        (by_dict, "dict", "cache"),
        (by_sum, "sum", "mean"),
        (by_global, "global", "History"),
        pytest.param(by_attribute, "attribute", "trainer.losses", marks=pytest.mark.slow),
        (by_attribute, "nested", "trainer.history['loss']"),
        pytest.param(by_attribute, "total", "trainer.total", marks=pytest.mark.slow),
        (by_attribute, "module", "trainer.net.maps"),
    ],
)
def test_the_holder_and_its_line(
    run: Callable[[str], tuple[str, str] | None], how: str, name: str
) -> None:
    found = run(how)
    assert found is not None
    assert found[0] == name
    lines = inspect.getsource(sys.modules[__name__]).splitlines()
    line = next(i for i, text in enumerate(lines, 1) if text.endswith(f"# grows: {how}"))
    assert found[1].endswith(f"test_retained.py:{line}")


def test_a_sound_training_keeps_nothing() -> None:
    losses, data = [0.0], [torch.ones(3) for _ in range(50)]
    before = look()
    losses.extend(a_loss().item() for _ in range(30))
    assert find_retained(before) is None
    assert find_retained() is None
    del data


@pytest.mark.parametrize("graphs", [True, False])
def test_whether_what_is_kept_has_graphs(*, graphs: bool) -> None:
    outputs: list[torch.Tensor] = []
    before = look()
    earlier = find_retained(before)
    assert earlier is None or earlier.graphs
    outputs.extend(a_loss() if graphs else a_loss().detach() for _ in range(30))
    found = find_retained(before)
    assert found is not None
    assert found[0] == "outputs"
    assert found.graphs is graphs


def test_without_an_earlier_look_only_graphs_are_suspect() -> None:
    data = [torch.ones(3) for _ in range(50)]
    kept = [a_loss() for _ in range(10)]
    found = find_retained()
    assert found is not None
    assert found[0] == "kept"
    del data, kept


def test_looking_keeps_nothing_alive() -> None:
    import weakref

    def held() -> weakref.ref[Any]:
        tensor = a_loss()
        gone = weakref.ref(tensor)
        look()
        del tensor
        assert gone() is None
        return gone

    held()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (3, None),
        ([], None),
        ([1.0, "text"], None),
        ([torch.ones(2)], False),
        ({"a": [(1, torch.ones(2))]}, False),
        ([b"x" * 5000], False),
        ((torch.ones(2), torch.ones(2, requires_grad=True) * 2), True),
        ({1: {2: torch.ones(2, requires_grad=True) * 2}}, True),
    ],
)
def test_carries_graph(value: Any, expected: bool | None) -> None:
    assert carries_graph(value) is expected


@pytest.mark.slow
def test_a_variable_that_nothing_adds_to_is_placed_where_it_is_defined() -> None:
    only_defined = [1]
    place = where_added("only_defined", sys._getframe())
    line = inspect.getsource(sys.modules[__name__]).splitlines().index("    only_defined = [1]") + 1
    assert place.endswith(f"test_retained.py:{line}")
    assert where_added("no_such_name", sys._getframe()).endswith(f":{sys._getframe().f_lineno}")
    del only_defined


def test_a_class_that_answers_to_few_names_is_passed_over() -> None:
    class Config:
        def __init__(self, values: dict[str, Any]) -> None:
            self.__dict__["values"] = values

        def __getattr__(self, name: str) -> Any:
            return self.values[name]

    config, losses = Config({"rate": 0.1}), [torch.ones(2)]
    before = look()
    losses += [torch.ones(2, requires_grad=True) * 2 for _ in range(20)]
    assert find_retained(before) is not None
    assert config.rate == 0.1


def test_what_is_bounded_is_no_leak() -> None:
    """A buffer of the last so many is filled, and then grows no more."""
    bounded: deque[torch.Tensor] = deque(maxlen=1000)
    unbounded: deque[torch.Tensor] = deque()
    before = look()
    bounded.extend(torch.zeros(4) for _ in range(100))
    assert find_retained(before) is None
    assert fills_up(before), "it will be full one day"
    unbounded.extend(torch.zeros(4) for _ in range(20))
    named = find_retained(before)
    assert named is not None
    assert named[0] == "unbounded"
    bounded.extend(torch.zeros(4) for _ in range(1000))
    assert not fills_up(before)


@functools.cache
def squared(x: torch.Tensor) -> torch.Tensor:
    return x * x


@functools.lru_cache(maxsize=200)
def cubed(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


def test_a_cache_that_tensors_are_the_keys_of() -> None:
    before = look()
    for _ in range(100):
        cubed(torch.zeros(4))
    assert find_retained(before) is None
    for _ in range(20):
        squared(torch.zeros(4))
    line = inspect.getsourcelines(squared.__wrapped__)[1]
    named = find_retained(before)
    assert named is not None
    assert named[0] == "squared"
    assert named[1].endswith(f"test_retained.py:{line}")


@pytest.mark.parametrize(
    ("adding", "limited"),
    [
        ("if len(self.data) < self.most:\n            self.data.append(item)", True),
        ("self.data.append(item)\n        if len(self.data) > 9: self.data.pop(0)", True),
        ("self.data.append(item)\n        if len(self.data) > 9: del self.data[:3]", True),
        ("self.data.append(item)\n        if len(self.data) > 9: learn()", False),
        ("self.data.append(item)\n        if len(other) > 9: other.pop()", False),
    ],
)
def test_a_memory_that_has_a_limit(
    adding: str, limited: bool, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outpace.measure.syntax._started", lambda: math.inf)  # the file is newer
    text = (
        f"class Memory:\n    def push(self, item):\n        {adding}\n\nframe = sys._getframe()\n"
    )
    path = script("import sys\n" + text)
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
    assert is_limited("memory.data", names["frame"]) is limited


@pytest.mark.parametrize(("declared", "limited"), [("global memory", True), ("memory = []", False)])
def test_a_memory_of_a_module_that_a_function_limits(
    declared: str, limited: bool, script: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another function than the one that runs; a variable of that one's own is another."""
    monkeypatch.setattr("outpace.measure.syntax._started", lambda: math.inf)  # the file is newer
    path = script(
        "import sys\nmemory = []\n"
        "def push(item):\n    memory.append(item)\n    if len(memory) > 9: memory.pop(0)\n"
        f"def train():\n    {declared}\n    memory.append(1)\n    return sys._getframe()\n"
        "frame = train()\n"
    )
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
    assert is_limited("memory", names["frame"]) is limited
