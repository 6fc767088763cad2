from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
import torch

from outpace.serve.looking import look
from outpace.serve.making import Arrival, Made, Request
from tests.serve.costly import REQUESTS, Costly, busy


def test_what_follows_is_measured_with_the_batch() -> None:
    def maker(_: Request) -> Made:
        return Made(torch.zeros(4))

    def after(batch: torch.Tensor) -> torch.Tensor:
        time.sleep(0.005)
        return batch

    quick: Any = maker
    requests = [Request(0, np.arange(4))]
    facts = look(quick, requests, 1, 4, Arrival(after))
    assert facts.arrival_s >= 0.005
    assert look(quick, requests, 1, 4).arrival_s < facts.arrival_s


@pytest.mark.parametrize("threads", [True, False])
def test_work_of_the_first_time_is_not_counted(threads: bool) -> None:
    """Of a packed set that is when checksums are looked at: much slower than any batch after it."""
    maker: Any = Costly(lambda: busy(0.02))
    facts = look(maker, REQUESTS, 2, 1000, threads=threads)
    assert facts.cpu_s < 0.01


@pytest.mark.parametrize("threads", [True, False])
def test_batches_are_taken_to_be_as_large_as_the_largest(threads: bool) -> None:
    def maker(request: Request) -> Made:
        return Made(torch.zeros(1000 if request.epoch == 2 else 1, dtype=torch.uint8))

    growing: Any = maker
    requests = [Request(epoch, np.arange(4)) for epoch in range(4)]
    assert look(growing, requests, 2, 4, threads=threads).batch_bytes == 1000
