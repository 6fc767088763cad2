from __future__ import annotations

import pytest

from outpace.serve.shards import READERS, shard_skew, told


def test_even_shards() -> None:
    assert shard_skew([100] * 8, ranks=2, workers=4).skew == 1.0
    assert shard_skew([100] * 8, ranks=2, workers=0).amounts == (400.0, 400.0)


def test_uneven_shards() -> None:
    found = shard_skew([100, 100, 100, 100, 100], ranks=2, workers=2)
    assert found.amounts == (200.0, 100.0, 100.0, 100.0)
    assert found.skew == pytest.approx(1.6)
    assert found.idle == 0


def test_fewer_shards_than_readers() -> None:
    found = shard_skew([100, 100], ranks=1, workers=4)
    assert (found.idle, found.skew) == (2, 2.0)
    with pytest.raises(ValueError, match="0 shards"):
        shard_skew([])


def test_what_is_uneven_is_told() -> None:
    assert told([100] * 2 * READERS) is told([100]) is None
    assert told([100] * (READERS + 1)) == (
        "dealt out whole to 8 readers, the shards would give one 1.78 times the mean; by this index "
        "all get as many"
    )
    assert "4.00 times the mean, and 6 of them nothing" in str(told([5, 5]))
