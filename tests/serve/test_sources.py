from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from outpace.errors import DataError, OutpaceError, UsageError
from outpace.serve.files import Files
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.packing import Journal
from outpace.serve.records import Records
from outpace.serve.sources import open_source
from outpace.serve.tars import Tars
from tests.serve.test_tars import tar

MODULE = """
from torch.utils.data import IterableDataset

class Squares:
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index ** 2

def make():
    return Squares()

class Outer:
    squares = Squares()

READY = Squares()
NUMBER = 3

class Stream(IterableDataset):
    def __iter__(self):
        return iter(())
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    name = f"sets_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    return name


@pytest.mark.parametrize("name", ["Squares", "make", "READY", "Outer.squares"])
def test_a_data_set_of_a_module(module: str, name: str) -> None:
    assert open_source(f"{module}:{name}")[3] == 9


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "AttributeError"),
        ("NUMBER", "not callable"),
        ("Stream", "__len__"),
    ],
)
def test_what_is_no_data_set(module: str, name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        open_source(f"{module}:{name}")


def test_folders_and_tars(tmp_path: Path) -> None:
    (tmp_path / "files/cat").mkdir(parents=True)
    (tmp_path / "files/cat/1.jpg").write_bytes(b"x")
    (tmp_path / "shards").mkdir()
    shard = tar(tmp_path / "shards/a.tar", {"1.jpg": b"x"})
    pack(tmp_path / "files", tmp_path / "packed")
    found: dict[type, list[Any]] = {
        Files: [tmp_path / "files", str(tmp_path / "files")],
        Tars: [shard, [shard, shard], tmp_path / "shards"],
        Records: [tmp_path / "packed"],
    }
    for kind, specs in found.items():
        assert all(type(open_source(spec)) is kind for spec in specs)
    data = [1, 2]
    assert open_source(data) is data
    loader: Any = DataLoader(open_source(tmp_path / "packed"), batch_size=1)  # type: ignore[arg-type]
    assert torch.equal(next(iter(loader))["cls"], torch.tensor([0]))


def test_what_lies_beside_shards_is_no_sample(tmp_path: Path) -> None:
    tar(tmp_path / "a.tar", {"1.jpg": b"x"})
    for name in ("sizes.json", "README.md", "train.idx", "_SUCCESS", ".hidden"):
        (tmp_path / name).write_text("x")
    found: Any = open_source(tmp_path)
    assert type(found) is Tars
    assert found.shards == [str(tmp_path / "a.tar")]
    (tmp_path / "1.jpg").write_bytes(b"x")
    assert type(open_source(tmp_path)) is Files


class Stream(IterableDataset[int]):
    """Knows its length, but cannot be asked for one of its samples."""

    def __len__(self) -> int:
        return 3

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    journal = Journal("records", "", {})
    journal.save(unfinished)
    wrong: list[tuple[Any, type[OutpaceError], str]] = [
        (tmp_path / "nowhere", DataError, "there is no .*nowhere"),
        (tmp_path / "no.csv", DataError, "there is no"),
        (tmp_path / "a.txt", DataError, "not a kind of file"),
        (unfinished, DataError, "not finished"),
        ("no_such_module:x", DataError, "ModuleNotFoundError"),
        (3, UsageError, "int is no data set"),
        (Stream(), UsageError, "Stream is no data set"),
        (f"{__name__}:Stream", DataError, "Stream without __getitem__"),
        ([tmp_path / "a.tar", tmp_path / "a.txt"], UsageError, r"a\.txt"),
    ]
    for spec, kind, message in wrong:
        with pytest.raises(kind, match=message):
            open_source(spec)


def test_a_pack_of_a_newer_version(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/1.jpg").write_bytes(b"x")
    pack(tmp_path / "files", tmp_path / "packed")
    meta = tmp_path / "packed/meta.json"
    meta.write_text(meta.read_text().replace('"outpace_pack": 1', '"outpace_pack": 2'))
    with pytest.raises(DataError, match="newer outpace"):
        open_source(tmp_path / "packed")


def test_texts_that_are_samples_are_told_how_they_go() -> None:
    with pytest.raises(UsageError, match="several sources are to be tars") as told:
        open_source(["a cat", "a dog"])
    assert told.value.hint is not None
    assert "numpy.array(texts)" in told.value.hint
    texts = Loader(np.array(["a cat", "a dog"]), 2, shuffle=False, executor="none")
    assert list(texts) == [["a cat", "a dog"]]


def test_a_folder_may_have_a_journal_of_its_own(tmp_path: Path) -> None:
    for text in ("{}", '{"entries": ["Monday"]}', "no json"):
        (tmp_path / "journal.json").write_text(text)
        assert len(open_source(tmp_path)) == 1
