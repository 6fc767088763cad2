from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from outpace.errors import DataError
from outpace.serve.blocks import BLOCK, Blocks, read_checksums, write_checksums
from tests.serve.test_records import flip


def written(folder: Path) -> Path:
    path = folder / "data.bin"
    path.write_bytes(np.random.default_rng(0).bytes(4 * BLOCK + 100))
    write_checksums(folder, [path.name])
    return path


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The blocks that are looked at, in order."""
    seen: list[int] = []
    right = Blocks.right

    def noting(blocks: Blocks, block: int) -> bool:
        seen.append(block)
        return right(blocks, block)

    monkeypatch.setattr(Blocks, "right", noting)
    return seen


def test_each_block_is_looked_at_once(tmp_path: Path, looked_at: list[int]) -> None:
    written(tmp_path)
    blocks = read_checksums(tmp_path)["data.bin"]
    blocks.check(np.array([0, 50]), 10)
    blocks.check(np.array([20]), 10)
    assert looked_at == [0]
    blocks.check(np.array([0, BLOCK - 5]), 10)
    assert looked_at == [0, 1]
    blocks.check(np.array([5]), 3 * BLOCK)
    assert looked_at == [0, 1, 2, 3]
    assert not blocks.complete
    blocks.check(np.array([4 * BLOCK + 20]), 10)
    blocks.check(np.array([0]), 4 * BLOCK)
    assert looked_at == [0, 1, 2, 3, 4]
    assert blocks.complete


def test_a_stretch_that_ends_in_a_damaged_block_is_found(tmp_path: Path) -> None:
    flip(written(tmp_path), BLOCK + 3)
    blocks = read_checksums(tmp_path)["data.bin"]
    blocks.check(np.array([0, BLOCK - 10]), 10)
    with pytest.raises(DataError, match=r"data\.bin: bytes 65,536 to 131,072 are damaged"):
        blocks.check(np.array([0, BLOCK - 9]), 10)


@pytest.mark.parametrize("damage", ["cut off", "flipped"])
def test_damaged_checksums_are_told(tmp_path: Path, damage: str) -> None:
    written(tmp_path)
    path = tmp_path / "checksums.npz"
    data = bytearray(path.read_bytes())
    told = 0
    for at in range(0, len(data), 7):
        path.write_bytes(data)
        if damage == "flipped":
            flip(path, at)
        else:
            path.write_bytes(data[:at])
        try:
            blocks = read_checksums(tmp_path)["data.bin"]
            blocks.check(np.array([0]), 4 * BLOCK)  # with the right ones
        except DataError:
            told += 1
    assert told > (0 if damage == "flipped" else len(range(0, len(data), 7)) - 1)
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match=r"checksums\.npz"):
        read_checksums(tmp_path)


def test_the_last_few_are_looked_at_once_most_are_right(
    tmp_path: Path, looked_at: list[int]
) -> None:
    """So that a set whose blocks are touched at random is known to be whole before long."""
    path = tmp_path / "data.bin"
    path.write_bytes(np.random.default_rng(0).bytes(10 * BLOCK))
    write_checksums(tmp_path, [path.name])
    blocks = read_checksums(tmp_path)["data.bin"]
    blocks.check(np.array([0]), 8 * BLOCK)
    assert not blocks.finish()
    assert looked_at == [*range(8)]
    blocks.check(np.array([8 * BLOCK]), 10)
    assert blocks.finish()
    assert looked_at == [*range(10)]


def test_a_damaged_block_among_the_last_few_is_told(tmp_path: Path) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(np.random.default_rng(0).bytes(10 * BLOCK))
    write_checksums(tmp_path, [path.name])
    flip(path, 9 * BLOCK + 7)
    blocks = read_checksums(tmp_path)["data.bin"]
    blocks.check(np.array([0]), 9 * BLOCK)
    with pytest.raises(DataError, match="are damaged"):
        blocks.finish()
