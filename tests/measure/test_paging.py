"""Memory that clean steps take is counted; what else the process takes is not."""

from __future__ import annotations

import mmap

from outpace.measure.paging import Paging
from outpace.seams.host import Step

PAGES = 500


def touch() -> None:
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1


def test_only_clean_steps_count() -> None:
    paging = Paging()
    for index in range(20):
        clean = index % 4 != 0
        touch()
        if not clean:
            touch()
            touch()
        paging.note(Step(index, 1, 1, {}, 1, 8, clean))
    assert PAGES <= paging.a_step()["page_faults"] < 1.5 * PAGES


def test_steps_that_are_noted_together() -> None:
    paging = Paging()
    touch()
    paging.note(Step(9, 1, 1, {}, 1, 8, clean=True, count=10))
    assert PAGES / 10 <= paging.a_step()["page_faults"] < PAGES / 5


def test_nothing_was_seen() -> None:
    assert Paging().a_step() == {"page_faults": 0.0, "system_s": 0.0}
