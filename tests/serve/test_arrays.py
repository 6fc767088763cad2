from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from outpace.errors import DataError
from outpace.serve.arrays import Arrays, Rows
from outpace.serve.batches import same_bits
from outpace.serve.loader import Loader
from outpace.serve.pack import pack
from outpace.serve.rows import Uneven, leaves, split
from tests.serve.test_records import flip

Packs = Callable[[Callable[[int], Any]], Arrays]


@pytest.fixture
def arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Packs:
    """A hundred samples, packed."""
    from outpace.serve import plans

    def packs(sample: Callable[[int], Any]) -> Arrays:
        source = [sample(i) for i in range(100)]
        monkeypatch.setattr(plans, "open_source", lambda spec, skipped: source)
        pack("made:here", tmp_path / "packed", "arrays")
        return Arrays(tmp_path / "packed")

    return packs


SAMPLES: dict[str, Callable[[int], Any]] = {
    "tuple": lambda i: (torch.full((2, 3), i / 7), i),
    "dict": lambda i: {"x": np.full(4, i, np.uint8), "y": {"z": torch.tensor(i % 2 == 0)}},
    "one": lambda i: torch.tensor([i, -i], dtype=torch.bfloat16),
    "list": lambda i: [float(i), np.float32(i), i % 3 == 0],
    "odd names": lambda i: {"a/b": i, "a_b": np.arange(3) * i, "": 1.5},
    "names with a dot in front": lambda i: {".x": i, "..y": i, "": {"z": i}, ".": i},
    "large": lambda i: np.full(40_000, i, np.int32),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_come_back_as_they_were(arrays: Packs, name: str) -> None:
    found = arrays(SAMPLES[name])
    assert len(found) == 100
    assert all(same_bits(found[i], SAMPLES[name](i)) for i in range(100))
    assert same_bits(found[-1], SAMPLES[name](99))
    assert same_bits(pickle.loads(pickle.dumps(found))[42], SAMPLES[name](42))
    with pytest.raises(IndexError):
        found[100]


def test_a_batch_is_what_collating_gives(arrays: Packs) -> None:
    sample = SAMPLES["tuple"]
    found = arrays(sample)
    rows = np.array([7, 3, 3, 99])
    x, y = found.batch(rows)
    wanted = default_collate([sample(i) for i in rows])
    assert torch.equal(x, wanted[0])
    assert y.tolist() == wanted[1].tolist()
    assert x.data_ptr() != found.batch(rows)[0].data_ptr()


def test_the_files_are_plain_npy(arrays: Packs) -> None:
    found = arrays(SAMPLES["dict"])
    x = np.load(found.folder / "x.npy")
    assert x.shape == (100, 4)
    assert x[:, 0].tolist() == list(range(100))
    assert found.meta.fields == ("x", "y.z")


def test_a_flipped_byte_is_found_when_its_row_is_read(arrays: Packs) -> None:
    folder = arrays(SAMPLES["large"]).folder
    flip(folder / "sample.npy", 128 + 160_000 * 50 + 5)
    found = Arrays(folder)
    assert found[0][0] == 0
    with pytest.raises(DataError, match=r"sample\.npy: bytes .* damaged"):
        found[50]
    with pytest.raises(DataError, match="damaged"):
        found.batch([1, 2, 50])
    assert len(found.damaged(lambda done, total: None)) == 1


def test_a_loader_leaves_out_damaged_rows(arrays: Packs) -> None:
    folder = arrays(SAMPLES["large"]).folder
    flip(folder / "sample.npy", 128 + 160_000 * 50 + 80_000)
    loader = Loader(folder, 10, executor="none", shuffle=False, on_error="skip")
    rows = [int(row) for batch in loader for row in batch[:, 0]]
    assert rows == [i for i in range(100) if i != 50]
    assert [one.sample for one in loader.skipped] == [50]
    with pytest.raises(DataError, match=r"packed: sample 50: .*sample\.npy: bytes .* damaged"):
        list(Loader(folder, 10, executor="none"))


def test_a_file_that_is_cut_off(arrays: Packs) -> None:
    folder = arrays(SAMPLES["dict"]).folder
    data = (folder / "x.npy").read_bytes()
    (folder / "x.npy").write_bytes(data[:-100])
    with pytest.raises(DataError, match=r"x\.npy"):
        Arrays(folder)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": np.zeros(5)}, "x: array of float64, 5, where others have .* 4"),
        ({"x": torch.zeros(4)}, "torch.float32"),
        ({"x": np.zeros(4), "y": 1}, "other parts"),
        ({"z": np.zeros(4)}, "z: array"),
    ],
)
def test_samples_unlike_the_first(other: Any, message: str) -> None:
    with pytest.raises(Uneven, match=message):
        Rows({"x": np.zeros(4)})(other)


@pytest.mark.parametrize("sample", ["text", b"bytes", None, {1: 2}, np.array("text"), 2**64])
def test_what_is_no_row(sample: Any) -> None:
    with pytest.raises(DataError, match="cannot be packed"):
        split(sample)


@pytest.mark.filterwarnings("ignore")
def test_flipped_bits_of_a_head_are_told(arrays: Packs) -> None:
    """As an error, and never as other samples."""
    found = arrays(SAMPLES["tuple"])
    path, rows = found.folder / "0.npy", [0, 50, 99]
    right, wanted = path.read_bytes(), found.batch(rows)
    told = 0
    for bit in range(8 * 128):
        data = bytearray(right)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            damaged = Arrays(found.folder)
            assert same_bits(damaged.batch(rows), wanted), bit
            assert same_bits(damaged[50], found[50]), bit
        except DataError:
            told += 1
    assert told > 500


def test_names_that_differ_in_case_alone_have_a_file_each() -> None:
    """Some file systems do not tell them apart."""
    structure, _ = split({"x": 1, "X": 2, "x_": 3})
    names = [leaf["leaf"].lower() for leaf in leaves(structure)]
    assert len(set(names)) == 3
