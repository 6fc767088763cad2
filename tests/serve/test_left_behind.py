"""What a sample leaves behind for the next one, a second thread would change in between."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, TensorDataset

from outpace.seams.setup import Feed
from outpace.serve.feeds import make_feed
from outpace.serve.left_behind import left_behind
from outpace.serve.loader import Loader

LAST: Any = None
OWN = threading.local()


class Rows(Dataset[Any]):
    def __init__(self, transform: Any = None) -> None:
        self.files = np.arange(40.0).reshape(4, 10)
        self.at, self.rows = -1, self.files[0]
        self.buffer, self.tensor = np.zeros(3), torch.zeros(3)
        self.seen: list[int] = []
        self.transform = transform
        self.own = threading.local()
        self.frame = pd.DataFrame({"x": range(40)})

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return torch.as_tensor(self.files.ravel()[index])


class OneShard(Rows):
    """As a shard is usually kept."""

    def __getitem__(self, index: int) -> Any:
        shard, row = divmod(index, 10)
        if self.at != shard:
            self.rows = self.files[shard]
            self.at = shard
        return torch.as_tensor(self.rows[row])


class ByMethod(OneShard):
    def __getitem__(self, index: int) -> Any:
        return self.read(index)

    def read(self, index: int) -> Any:
        self.rows = self.files[index // 10]
        return torch.as_tensor(self.rows[index % 10])


class Together(Rows):
    def __getitems__(self, indices: list[int]) -> Any:
        self.at = indices[0]
        return [self[index] for index in indices]


class Filled(Rows):
    def __getitem__(self, index: int) -> Any:
        self.buffer[:] = index
        return torch.from_numpy(self.buffer.copy())


class FilledByName(Rows):
    def __getitem__(self, index: int) -> Any:
        buffer = self.buffer
        buffer[0] += index
        return torch.from_numpy(buffer.copy())


class Out(Rows):
    def __getitem__(self, index: int) -> Any:
        np.add(self.files[0, :3], index, out=self.buffer)
        return torch.from_numpy(self.buffer.copy())


class Copied(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.tensor.copy_(torch.full((3,), index)).clone()


class Appended(Rows):
    def __getitem__(self, index: int) -> Any:
        self.seen.append(index)
        return torch.tensor(len(self.seen))


class BySetattr(Rows):
    def __getitem__(self, index: int) -> Any:
        setattr(self, "at", index)  # noqa: B010
        return torch.tensor(self.at)


class OfAModule(Rows):
    def __getitem__(self, index: int) -> Any:
        global LAST
        LAST = index
        return torch.tensor(LAST)


WORD = "before"
SHARD: dict[str, Any] = {}
BUFFER = np.zeros(3)


def rows_of(shard: int) -> Any:
    if SHARD.get("at") != shard:
        SHARD["rows"], SHARD["at"] = np.arange(10.0) + 10 * shard, shard
    return SHARD["rows"]


class InADict(Rows):
    def __getitem__(self, index: int) -> Any:
        return torch.as_tensor(rows_of(index // 10)[index % 10])


class InAnArray(Rows):
    def __getitem__(self, index: int) -> Any:
        BUFFER[:] = index
        return torch.from_numpy(BUFFER.copy())


class OfTheClass(Rows):
    last: Any = 0

    def __getitem__(self, index: int) -> Any:
        OfTheClass.last = index
        return torch.tensor(OfTheClass.last)


def enclosed() -> Any:
    seen: list[int] = []

    def transform(sample: Any) -> Any:
        seen.append(int(sample))
        return sample + len(seen)

    return transform


class Last:
    """A transform that keeps the one before."""

    def __init__(self) -> None:
        self.before: Any = 0

    def __call__(self, sample: Any) -> Any:
        self.before = sample
        return self.before


class Transformed(Rows):
    def __getitem__(self, index: int) -> Any:
        return self.transform(super().__getitem__(index))


LEFT: dict[str, Any] = {
    kind.__name__: kind()
    for kind in (OneShard, ByMethod, Together, Filled, FilledByName, Out, Copied, Appended)
}
LEFT |= {
    "BySetattr": BySetattr(),
    "OfAModule": OfAModule(),
    "Transformed": Transformed(Last()),
    "InADict": InADict(),
    "InAnArray": InAnArray(),
    "OfTheClass": OfTheClass(),
    "Enclosed": Transformed(enclosed()),
    "Subset": Subset(Subset(Together(), range(9)), range(5)),
    "Concat": ConcatDataset([Rows(), OneShard()]),
}


@pytest.mark.parametrize("name", sorted(LEFT))
def test_what_is_left_behind_leaves_threads_out(name: str) -> None:
    told = left_behind(LEFT[name])
    assert told is not None
    assert "test_left_behind.py:" in told
    with pytest.raises(NotImplementedError, match=r"changes \w+, which threads would share"):
        make_feed(DataLoader(LEFT[name], batch_size=4), Feed(executor="threads", workers=2))


class Local(Rows):
    """Changes nothing but what is the sample's own, or the thread's."""

    def __getitem__(self, index: int) -> Any:
        self.own.at = index
        row = self.files[index // 10].copy()
        row[0] = self.own.at
        row = row + self.frame.iloc[index]["x"]
        found = {"row": torch.from_numpy(row)}
        found["row"].add_(1)
        import copy as made_anew

        seen = made_anew.copy(self.seen)
        seen.append(index)
        nn.init.zeros_(torch.empty(3))
        np.random.default_rng(index).shuffle(seen)
        OWN.at = index
        np.copyto(row, BUFFER[0])
        setattr(found_first := Last(), WORD, next(iter(seen), BUFFER))
        assert found_first is not None
        total = 0
        for each in self.files[0]:
            total += each
        return found["row"] + total


class InModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return x * self.scale


KEPT: dict[str, Any] = {
    "plain": Rows(),
    "local": Local(),
    "tensors": TensorDataset(torch.zeros(4)),
    "subset": Subset(Local(), range(5)),
    "concat": ConcatDataset([Rows(), Local()]),
    "module": Transformed(InModule()),
    "lambda": Transformed(lambda x: x + 1),
    "a list": [torch.zeros(1)] * 3,
}


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_is_a_samples_own_is_not_left_behind(name: str) -> None:
    assert left_behind(KEPT[name]) is None


def test_what_cannot_be_read_is_not_trusted() -> None:
    held: dict[str, Any] = {"Rows": Rows, "__name__": __name__}
    exec("class Unread(Rows):\n    def __getitem__(self, i):\n        return i", held)  # noqa: S102
    assert "cannot be read" in str(left_behind(held["Unread"]()))


def test_the_loader_leaves_threads_out_unless_they_are_asked_for() -> None:
    loader = Loader(OneShard(), 8, workers=1)
    rows = torch.cat(list(loader))
    loader.close()
    assert sorted(rows.tolist()) == list(range(40))
    assert loader.choice is not None
    assert loader.choice.kind == "processes"
    assert loader.notes[0].startswith("threads are left out: ")
    assert "changes" in loader.notes[0]
    asked = Loader(OneShard(), 8, executor="threads", workers=1)
    assert len(list(asked)) == 5
    asked.close()
