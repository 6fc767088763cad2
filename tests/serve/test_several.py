"""Small batches that are made several at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from outpace.errors import DataError
from outpace.serve.arrays import Arrays
from outpace.serve.batches import same_bits
from outpace.serve.executors import Here
from outpace.serve.loader import Loader
from outpace.serve.making import Arrival, BatchMaker, Request, bytes_of
from outpace.serve.pack import pack
from outpace.serve.several import MOST, Several, cuts
from outpace.serve.tables import Table

ROWS = 1000


class Samples:
    """Of several kinds of leaves."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Any:
        half = torch.tensor([index, -index]).to(torch.bfloat16)
        numbers = np.array([index, 1 / (1 + index)], np.float32)
        wave = np.array([index * 1j], np.complex64)
        return {"x": numbers, "y": (index, half), "at": index % 2 > 0, "z": wave}


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("several") / "packed"
    pack("tests.serve.test_several:Samples", folder, "arrays")
    return folder


def table(folder: Path, **more: list[Any]) -> Path:
    pa = pytest.importorskip("pyarrow")
    path = folder / "table.arrow"
    columns = pa.table({"a": list(range(ROWS)), "b": [i / 8 for i in range(ROWS)], **more})
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, columns.schema) as writer:
        writer.write_table(columns, max_chunksize=130)
    return path


def requests(size: int = 30) -> list[Request]:
    order = np.random.default_rng(0).permutation(ROWS)
    return [Request(0, order[first : first + size]) for first in range(0, ROWS, size)]


def both(source: Any, most_bytes: int = 1 << 20) -> tuple[list[Any], list[Any]]:
    maker = BatchMaker(source, seed=0)
    assert cuts(maker)
    executors = Several(maker, Arrival(), most_bytes), Here(maker)
    several, here = ([made.batch for made in one.made(requests())] for one in executors)
    return several, here


def test_they_are_what_each_is_alone(packed: Path) -> None:
    several, here = both(Arrays(packed))
    assert len(several) == 34
    assert same_bits(several, here)
    assert all(type(several[7][name]) is torch.Tensor for name in "xz")
    assert len(several[-1]["x"]) == 10, "the last one is smaller"
    assert several[7]["y"][1].untyped_storage().nbytes() == several[7]["y"][1].nbytes
    kept = several[7]["y"][1].requires_grad_().square().sum()
    several[8]["y"][1].zero_()
    kept.backward()


def test_of_a_table_too(tmp_path: Path) -> None:
    several, here = both(Table(table(tmp_path)))
    assert same_bits(several, here)
    assert type(several[7]["a"]) is torch.Tensor
    assert several[7]["a"].untyped_storage().nbytes() == several[7]["a"].nbytes


def counted(source: Any, most_bytes: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Rows that were asked for at once."""
    asked, batch = [], type(source).batch

    def noting(self: Any, indices: Any) -> Any:
        asked.append(len(indices))
        return batch(self, indices)

    monkeypatch.setattr(type(source), "batch", noting)
    both(source, most_bytes)
    return asked


def test_so_many_as_there_is_room_for(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = bytes_of(BatchMaker(Arrays(packed), seed=0)(requests()[0]).batch)
    assert counted(Arrays(packed), 1 << 20, monkeypatch)[:3] == [30, 30 * MOST, 30 * MOST]
    assert counted(Arrays(packed), 3 * size, monkeypatch)[:3] == [30, 90, 90]
    assert set(counted(Arrays(packed), 0, monkeypatch)[:34]) == {30, 10}


def test_what_has_text_in_it_is_made_batch_by_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Table(table(tmp_path, name=[f"row {i}" for i in range(ROWS)]))
    assert set(counted(source, 1 << 20, monkeypatch)) == {30, 10}


def test_a_sample_that_cannot_be_read_is_told_with_its_own_batch(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Arrays.batch

    def broken(self: Any, indices: Any) -> Any:
        if 555 in indices:
            raise DataError("sample 555 is not as it was written")
        return batch(self, indices)

    monkeypatch.setattr(Arrays, "batch", broken)
    order = np.arange(ROWS)
    asked = [Request(0, order[first : first + 100]) for first in range(0, ROWS, 100)]
    made = list(Several(BatchMaker(Arrays(packed), seed=0), Arrival(), 1 << 20).made(asked))
    assert [index for index, one in enumerate(made) if one.error is not None] == [5]
    skipping = BatchMaker(Arrays(packed), seed=0, on_error="skip")
    left_out = [one.skipped for one in Several(skipping, Arrival(), 1 << 20).made(asked)]
    assert [[skipped.sample for skipped in some] for some in left_out if some] == [[555]]


def test_a_loader_goes_on_where_it_was(packed: Path) -> None:
    loader = Loader(packed, 30, workers=0)
    batches = list(loader)
    assert type(loader._executor) is Several
    assert loader.resize(20) is None and len(next(iter(loader))["at"]) == 20  # noqa: PT018
    again = Loader(packed, 30, workers=0)
    drawn = []
    for batch in again:
        drawn.append(batch)
        assert same_bits(batch["at"], torch.from_numpy(again.indices % 2 > 0))
        if len(drawn) == 5:
            break
    later = Loader(packed, 30, workers=0)
    later.load_state_dict(again.state_dict())
    assert same_bits([*drawn, *later], batches)
