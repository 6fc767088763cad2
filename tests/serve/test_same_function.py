"""Functions are known again where each naming of them is another object."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from outpace.serve.same_function import Functions, parts_of


class Collate:
    def __call__(self, samples: Any) -> Any:
        return samples

    def method(self, samples: Any) -> Any:
        return samples


def test_a_method_is_the_same_each_time_that_it_is_named() -> None:
    one, other = Collate(), Collate()
    met = Functions(one.method, None, len)
    assert met.are(one.method, len)
    assert not met.are(other.method, len)
    assert not met.are(one.method)
    assert parts_of(one.method, None) == [one, Collate.method]


def test_another_of_the_same_name_is_another() -> None:
    def collate(samples: Any) -> Any:
        return samples

    first, second = (functools.partial(collate) for _ in range(2))
    assert Functions(first).are(first)
    assert not Functions(first).are(second)


def test_one_that_is_gone_is_over() -> None:
    gone = Collate()
    met = Functions(gone)
    assert not met.are_over()
    del gone
    assert met.are_over()
    assert not met.are(Collate())


def test_what_no_weak_reference_takes() -> None:
    with pytest.raises(TypeError):
        Functions(3)
