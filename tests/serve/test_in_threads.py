"""Pieces of work on all cores: each is done once, and what fails is told."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from outpace.serve import in_threads as module
from outpace.serve.in_threads import FEWEST, in_threads


@pytest.mark.parametrize("count", [0, 1, FEWEST, 2 * FEWEST, 5 * FEWEST + 3])
@pytest.mark.parametrize("cores", [1, 2, 3])
def test_each_piece_is_done_once(count: int, cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores_of_rank", lambda: cores)
    done: list[int] = []
    threads: set[int] = set()

    def work(pieces: Sequence[int]) -> None:
        threads.add(threading.get_ident())
        done.extend(pieces)

    in_threads(work, range(count))
    assert sorted(done) == [*range(count)]
    here = threading.get_ident() in threads
    assert here == (min(cores, count // FEWEST) < 2), "few pieces are not worth a thread"


def test_what_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cores_of_rank", lambda: 2)

    def work(pieces: Sequence[int]) -> None:
        if 70 in pieces:
            raise MemoryError("no room")

    with pytest.raises(MemoryError, match="no room"):
        in_threads(work, range(100))
