"""Batches that cost something, and more the first time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from outpace.serve.making import Made, Request

REQUESTS = [Request(0, np.arange(i, i + 1)) for i in range(400)]


class Costly:
    """One that takes 1 ms of waiting a batch, and the first time something besides."""

    streams = ()

    def __init__(self, at_first: Callable[[], Any]) -> None:
        self.at_first, self.made = at_first, set[int]()

    def __call__(self, request: Request) -> Made:
        time.sleep(0.001)
        if (index := int(request.indices[0])) not in self.made:
            self.at_first()
            self.made.add(index)
        return Made(torch.zeros(4))


def busy(seconds: float) -> None:
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        pass
