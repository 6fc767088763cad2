"""A data set that has changed is told from one that has not."""

from __future__ import annotations

import importlib
import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Subset

from outpace.seams.setup import Feed
from outpace.serve.changes import state_of
from outpace.serve.feeds import make_feed
from outpace.serve.loader import Loader
from outpace.serve.tables import Table

KNOBS = {"size": 1}
OPTIONS = SimpleNamespace(sizes=[1])
UNNAMED = {"size": 1}


def sized(sample: Any) -> Any:
    return next(each * KNOBS["size"] for each in [sample])


class Shift:
    by = 0.0


class Transform:
    strength = 0.0

    def __init__(self) -> None:
        self.on = True


class Data:
    epoch = 0
    shared = 0

    def __init__(self) -> None:
        self.table, self.array = torch.zeros(3), np.zeros(3)
        self.transforms = [Transform(), Transform()]

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return sized(torch.tensor(100.0 * self.epoch + index)) + Shift.by

    @property
    def sizes(self) -> list[int]:
        return list(OPTIONS.sizes)


@pytest.fixture(autouse=True)
def knobs_put_back() -> Iterator[None]:
    yield
    KNOBS["size"] = UNNAMED["size"] = 1
    OPTIONS.sizes, Data.shared, Transform.strength, Shift.by = [1], 0, 0.0, 0.0


def set_strength(data: Data) -> None:
    data.transforms[1].strength = 0.5


class Slotted:
    __slots__ = ("label",)

    def __init__(self, label: Any) -> None:
        self.label = label


MANY = 1000
LABELS: dict[str, Callable[[], Any]] = {
    "array": lambda: np.zeros(MANY, np.int64),
    "part of an array": lambda: np.zeros((MANY, 2))[:, 0],
    "array of objects": lambda: np.array([0] * MANY, object),
    "view of an array": lambda: np.zeros(MANY).view(),
    "dates": lambda: np.zeros(MANY, "datetime64[D]"),
    "tensor": lambda: torch.zeros(MANY),
    "list": lambda: [0] * MANY,
    "numbers of numpy": lambda: list(np.zeros(MANY)),
    "deque": lambda: deque([0] * MANY),
    "bytes": lambda: bytearray(MANY),
    "dict": lambda: dict.fromkeys(range(MANY), 0),
}


@pytest.mark.parametrize("labels", LABELS)
def test_one_label_of_many_is_seen(labels: str) -> None:
    data: Any = Data()
    data.labels = LABELS[labels]()
    before = state_of(data)
    assert before is not None
    assert state_of(data) == before
    data.labels[700] = 1
    assert state_of(data) not in (before, None)


@pytest.mark.parametrize("as_is", [np.array, list])
def test_labels_that_change_places_are_seen(as_is: Any) -> None:
    data: Any = Data()
    data.labels = as_is([-1, -2] * 500)
    before = state_of(data)
    data.labels[:] = as_is([-2, -1] * 500)
    assert state_of(data) not in (before, None)


class Split(str):
    """As data sets of Hugging Face name theirs."""

    __slots__ = ()


@pytest.mark.parametrize("key", [Split("train"), Decimal(1), (Split("train"), 1), int])
def test_dicts_whose_keys_are_no_plain_words_are_looked_at(key: Any) -> None:
    """The loader's seam failed at them, as under a Trainer of Hugging Face."""
    holder = SimpleNamespace(parts=[{key: [1, 2]}, {"plain": 3}])
    before = state_of(holder)
    assert before is not None
    holder.parts[0][key][1] = 5
    assert state_of(holder) != before


def test_what_numpy_writes_to_a_tensor_is_seen() -> None:
    data = Data()
    before = state_of(data)
    data.table.numpy()[1] = 1
    assert state_of(data) != before


@pytest.mark.parametrize(
    ("rows", "change"),
    [
        ([{"path": str(i), "label": 0} for i in range(MANY)], lambda row: row.update(label=1)),
        ([{"at": Slotted(0)} for _ in range(MANY)], lambda row: setattr(row["at"], "label", 1)),
        ([Slotted([0]) for _ in range(MANY)], lambda row: row.label.append(1)),
    ],
)
def test_a_change_of_one_row_of_many_is_seen(rows: list[Any], change: Any) -> None:
    data: Any = Data()
    data.rows = rows
    before = state_of(data)
    assert before is not None
    change(rows[700])
    assert state_of(data) not in (before, None)


def test_a_change_of_one_cell_of_a_frame_is_seen() -> None:
    pandas = pytest.importorskip("pandas")
    data: Any = Data()
    data.frame = pandas.DataFrame({"label": range(MANY), "path": [str(i) for i in range(MANY)]})
    for column, value in (("label", -1), ("path", "other")):
        before = state_of(data)
        assert before is not None
        assert state_of(data) == before
        data.frame.loc[700, column] = value
        assert state_of(data) not in (before, None)


def test_of_too_much_it_is_not_told() -> None:
    data: Any = Data()
    data.rows = np.zeros(2**31, np.uint8)  # of which no page is touched
    assert state_of(data) is None
    data.rows.flags.writeable = False
    assert state_of(data) is not None


class Labelled:
    """Labels of which a script changes one between epochs; ``more`` is too much to look at."""

    def __init__(self, labels: Any, more: Any = None) -> None:
        self.labels, self.more = labels, more

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Any:
        return int(self.labels[index])


LABELLED = [
    lambda: Labelled(np.zeros(96, np.int64)),
    lambda: Labelled([0] * 96),
    lambda: Labelled([0] * 96, np.zeros(2**31, np.uint8)),
]


@pytest.mark.parametrize("make", LABELLED)
def test_a_loaders_processes_have_the_labels_as_they_are(make: Any) -> None:
    data = make()
    loader = Loader(data, 32, executor="processes", workers=1, shuffle=False)
    try:
        for epoch in range(3):
            data.labels[80] = epoch
            assert [int(batch.sum()) for batch in loader] == [0, 0, epoch]
    finally:
        loader.close()


@pytest.mark.parametrize("make", LABELLED)
@pytest.mark.parametrize("own", [0, 1])
def test_workers_that_a_remedy_lets_last_have_the_labels_as_they_are(make: Any, own: int) -> None:
    data = make()
    loader: Any = DataLoader(data, 32, num_workers=own)
    feed = make_feed(loader, Feed(executor="processes", workers=1, persistent=True))
    try:
        for epoch in range(3):
            data.labels[80] = epoch
            assert [int(batch.sum()) for batch in feed.epoch()] == [0, 0, epoch]
    finally:
        feed.close()


def test_samples_that_a_remedy_keeps_are_those_of_the_labels_as_they_are() -> None:
    data: Any = Labelled([0] * 96)
    loader: Any = DataLoader(data, 32)
    feed = make_feed(loader, Feed(executor="inline", fetch="cache", cache_bytes=2**20))
    for epoch in range(3):
        data.labels[80] = epoch
        assert [int(batch.sum()) for batch in feed.epoch()] == [0, 0, epoch]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: setattr(data, "epoch", 1),
        lambda data: setattr(data.transforms[0], "on", False),
        set_strength,
        lambda data: data.transforms.pop(),
        lambda data: data.table.add_(1.0),
        lambda data: setattr(data, "array", np.ones(3)),
        lambda _: setattr(Data, "shared", 1),
        lambda _: setattr(Shift, "by", 1.0),
        lambda _: setattr(Transform, "strength", Transform.strength + 1),
        lambda _: KNOBS.update(size=KNOBS["size"] + 1),
        lambda _: setattr(OPTIONS, "sizes", [*OPTIONS.sizes, 3]),
    ],
)
def test_a_change_is_seen(change: Any) -> None:
    data = Data()
    of: Any = Subset(data, [0, 1])  # type: ignore[arg-type]
    before = state_of(of)
    assert state_of(of) == before
    change(data)
    assert state_of(of) != before


settings: Any = None
FOLDER: Any = None


def by_settings(sample: Any) -> Any:
    return settings.SIZE * sample, settings.scaled(sample), str(FOLDER)


@pytest.mark.parametrize("value", [Path("a"), re.compile("a"), Decimal(1)])
def test_a_name_that_stands_for_another_thing_is_seen(
    monkeypatch: pytest.MonkeyPatch, value: Any
) -> None:
    monkeypatch.setattr(sys.modules[__name__], "FOLDER", value)
    before = state_of(by_settings)
    assert state_of(by_settings) == before
    monkeypatch.setattr(sys.modules[__name__], "FOLDER", type(Path())("b"))
    assert state_of(by_settings) != before


def test_what_a_module_of_the_scripts_says_is_seen(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"settings_{abs(hash(tmp_path))}"
    (tmp_path / name).mkdir()
    (tmp_path / name / "of_data.py").write_text(
        "SIZE, FACTOR, OTHER = 1, 1, 1\ndef scaled(sample): return FACTOR * sample\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module(f"{name}.of_data")
    monkeypatch.setattr(sys.modules[__name__], "settings", module)
    seen = {state_of(by_settings)}
    module.OTHER = 2  # no function of the data set names it
    assert state_of(by_settings) in seen
    for knob in ("SIZE", "FACTOR"):
        setattr(module, knob, 2)
        assert state_of(by_settings) not in seen
        seen.add(state_of(by_settings))
    package = sys.modules[name]  # a folder without a file of its own
    monkeypatch.setattr(sys.modules[__name__], "settings", package)

    def named() -> Any:
        return settings.of_data.SIZE

    before = state_of(named)
    module.SIZE = 3
    assert state_of(named) != before


def test_a_loaders_processes_have_what_another_module_says_now(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"knobs_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "settings", importlib.import_module(name))
    loader = Loader(
        list(range(8)), 4, transform=lambda sample: settings.SIZE * sample, shuffle=False,
        executor="processes", workers=1,
    )  # fmt: skip
    try:
        for settings.SIZE in (1, 2, 3):
            assert [int(batch[1]) for batch in loader] == [settings.SIZE, 5 * settings.SIZE]
    finally:
        loader.close()


def test_what_no_function_of_the_data_set_names_is_not_its_own() -> None:
    data = Data()
    before = state_of(data)
    UNNAMED["size"] += 1
    assert state_of(data) == before


def test_what_leads_back_to_itself_comes_to_an_end() -> None:
    data: Any = Data()
    data.itself = [data, {"again": data}]
    assert state_of(data) == state_of(data)


def test_a_loaders_processes_have_the_data_set_as_it_is() -> None:
    data = Data()
    loader = Loader(data, 4, executor="processes", workers=1, shuffle=False)
    try:
        for data.epoch in range(3):
            assert [float(batch[0]) for batch in loader] == [100.0 * data.epoch + i for i in (0, 4)]
    finally:
        loader.close()


def test_a_loaders_processes_have_what_the_module_says_now() -> None:
    loader = Loader(Data(), 4, executor="processes", workers=1, shuffle=False)
    try:
        for size in (1, 2, 3):
            KNOBS["size"] = size
            assert [float(batch[1]) for batch in loader] == [size * i for i in (1, 5)]
    finally:
        loader.close()


class Rows(Data):
    def __init__(self) -> None:
        super().__init__()
        self.rows = [[[0] * 64] * 64] * 64
        self.transforms = [Transform()]


def test_a_large_source_hides_no_change() -> None:
    data, transform = Rows(), Transform()
    before = state_of(data, transform)
    transform.strength = 0.5
    changed = state_of(data, transform)
    assert changed != before
    data.transforms[0].on = False
    assert state_of(data, transform) != changed


class Scaled:
    def __init__(self) -> None:
        self.factor = 1.0

    def scale(self, sample: Any) -> Any:
        return self.factor * sample


def in_closure(scaled: Scaled) -> Any:
    return lambda sample: scaled.factor * sample


@pytest.mark.parametrize(
    "function",
    [
        lambda scaled: scaled.scale,
        lambda scaled: partial(Scaled.scale, scaled),
        lambda scaled: partial(np.multiply, out={"of": scaled}),
        in_closure,
    ],
    ids=["method", "argument", "keyword", "closure"],
)
def test_a_change_of_what_a_function_has_is_seen(function: Any) -> None:
    scaled = Scaled()
    transform = function(scaled)
    before = state_of(transform)
    assert state_of(transform) == before
    scaled.factor = 2.0
    assert state_of(transform) != before


def test_a_loaders_processes_have_collate_as_it_is() -> None:
    scaled = Scaled()

    def collate(samples: list[Any]) -> Any:
        return scaled.factor * torch.stack(samples)

    loader = Loader(Data(), 4, collate=collate, executor="processes", workers=1, shuffle=False)
    try:
        for scaled.factor in (1.0, 2.0):
            assert [float(batch[1]) for batch in loader] == [scaled.factor, 5 * scaled.factor]
    finally:
        loader.close()


def test_what_our_own_sources_keep_of_reading_is_no_change(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "\n".join(f"{i},{i / 7}" for i in range(200)))
    table = Table(path)
    before = state_of(table)
    assert before is not None
    table.batch(np.arange(8))
    assert state_of(table) == before
