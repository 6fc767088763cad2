from __future__ import annotations

import os
import pickle

import pytest

from outpace.serve.strings import PackedStrings


def test_strings_come_back_in_order() -> None:
    texts = ["", "cat/0001.jpg", "ü/ß.png", os.fsdecode(b"broken-\xff.jpg"), "x" * 1000]
    packed = PackedStrings(texts)
    assert list(packed) == texts
    assert len(packed) == len(texts)
    assert packed[-2] == texts[-2]
    assert os.fsencode(packed[3]) == b"broken-\xff.jpg"
    assert list(pickle.loads(pickle.dumps(packed))) == texts
    assert "cat/0001.jpg" in packed


def test_there_may_be_none() -> None:
    assert list(PackedStrings([])) == []


@pytest.mark.parametrize("index", [2, -3])
def test_beyond_the_end(index: int) -> None:
    with pytest.raises(IndexError):
        PackedStrings(["a", "b"])[index]
