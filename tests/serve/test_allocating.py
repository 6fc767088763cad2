from __future__ import annotations

import multiprocessing
import platform
from typing import Any

import numpy as np
import pytest

from outpace.serve.allocating import keep_freed, page_faults, worth_trying

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")


def batch() -> None:
    """What a batch of images takes, and gives back: blocks of 3 MiB."""
    blocks = [np.ones(3 << 20, np.uint8) for _ in range(20)]
    del blocks


def faults(told: Any, *, keeps: bool) -> None:
    """Pages of fresh memory that some batches take, the first left out."""
    if keeps:
        keep_freed()
    batch()
    before = page_faults()
    for _ in range(3):
        batch()
    told.send(page_faults() - before)


def faults_of_a_process(*, keeps: bool) -> int:
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(
        target=faults, args=(theirs,), kwargs={"keeps": keeps}
    )
    child.start()
    try:
        return int(ours.recv())
    finally:
        child.join()


@glibc
def test_what_is_freed_is_given_out_again() -> None:
    given_back, kept = faults_of_a_process(keeps=False), faults_of_a_process(keeps=True)
    assert kept < given_back / 10


@glibc
def test_it_is_worth_trying_where_pages_take_time() -> None:
    assert worth_trying(10_000, 0.1)
    assert not worth_trying(100, 0.1)
