from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from outpace.serve.allocating import worth_trying

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc alone")


FAULTS = """
import sys
import numpy as np
from outpace.serve.allocating import keep_freed, page_faults_of_thread

def batch():
    blocks = [np.ones(3 << 20, np.uint8) for _ in range(20)]
    del blocks

if sys.argv[1] == "keep":
    keep_freed()
batch()
before = page_faults_of_thread()
for _ in range(3):
    batch()
print(page_faults_of_thread() - before)
"""


def faults_of_a_process(*, keeps: bool) -> int:
    """Pages of fresh memory that batches of blocks of 3 MiB take, the first batch left out.

    In a process of its own: what others have freed before would change what the C library keeps.
    """
    command = [sys.executable, "-c", FAULTS, "keep" if keeps else "give back"]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@glibc
def test_what_is_freed_is_given_out_again() -> None:
    given_back, kept = faults_of_a_process(keeps=False), faults_of_a_process(keeps=True)
    assert kept < given_back / 10


@glibc
def test_it_is_worth_trying_where_pages_take_time() -> None:
    assert worth_trying(10_000, 0.1)
    assert not worth_trying(100, 0.1)
