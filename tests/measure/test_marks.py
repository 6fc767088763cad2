"""Marks on memory: they are found in views of it, and end with it."""

from __future__ import annotations

import weakref

import numpy as np
import torch

from outpace.measure.marks import Marks


def test_marks_are_found_in_views_and_not_in_copies() -> None:
    marks = Marks[str]()
    one, other = torch.zeros(4, 2), torch.zeros(4)
    marks.put([one], "guess")
    marks.put(one[:, 0], "old")
    assert marks.of((one.t(), other)) == {"guess", "old"}
    assert marks.of([one.clone(), other]) == frozenset()
    marks.clear()
    assert marks.of(one) == frozenset()


def test_memory_is_let_go_and_its_marks_with_it() -> None:
    marks = Marks[str]()
    memory = np.zeros(8)
    held, tensor = weakref.ref(memory), torch.from_numpy(memory)
    marks.put(tensor, "guess")
    del memory, tensor
    assert held() is None
    tensor = torch.zeros(1 << 12)
    marks.put(tensor, "guess")
    place = tensor.data_ptr()
    del tensor
    others = [torch.zeros(1 << 12) for _ in range(8)]
    assert marks.of(others) == frozenset(), f"also where one lies at {place}"
