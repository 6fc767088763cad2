from __future__ import annotations

from outpace.serve.shards import READERS, told


def test_even_shards_are_not_told_of() -> None:
    assert told([100] * 2 * READERS) is told([100]) is told([]) is told([0] * READERS) is None
    assert told([100] * (READERS - 1) + [104]) is None


def test_uneven_shards() -> None:
    assert told([100] * (READERS + 1)) == (
        "dealt out whole to 8 readers, the shards would give one 1.78 times the mean; by this index "
        "all get as many"
    )


def test_shards_are_dealt_out_in_turn() -> None:
    one = [300] + [100] * (READERS - 1)
    assert "2.40 times the mean;" in str(told(one * 2))
    assert "1.60 times the mean;" in str(told([300] * 2 + [100] * (2 * READERS - 2)))
    assert told(one + [100] + [300] * (READERS - 1)) is None


def test_fewer_shards_than_readers() -> None:
    assert "4.00 times the mean, and 6 of them nothing" in str(told([5, 5]))
