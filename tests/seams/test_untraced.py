"""What a trace function sees, and that it is there again afterwards."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset

from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam
from outpace.seams.untraced import untraced


class Squares(Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index * index


def broken() -> None:
    raise ValueError("of the call")


@pytest.fixture
def seen() -> Iterator[list[str]]:
    """Names of the functions that are called while a trace function is set."""
    names: list[str] = []

    def trace(frame: FrameType, event: str, arg: Any) -> None:
        names.append(frame.f_code.co_qualname)

    before = sys.gettrace()
    sys.settrace(trace)
    yield names
    sys.settrace(before)


def test_a_call_is_not_seen_and_those_after_it_are(seen: list[str]) -> None:
    squares: Callable[[], int] = lambda: Squares()[3]  # noqa: E731
    assert untraced(squares) == 9
    assert "Squares.__getitem__" not in seen
    squares()
    assert "Squares.__getitem__" in seen


def test_an_error_leaves_the_trace_function_in_force(seen: list[str]) -> None:
    trace = sys.gettrace()
    with pytest.raises(ValueError, match="of the call"):
        untraced(broken)
    assert sys.gettrace() is trace


@pytest.mark.parametrize("dry", [True, False])
def test_samples_of_a_last_validation_are_made_untraced(dry: bool, seen: list[str]) -> None:
    seam = LoaderSeam(Host())
    seam.install()
    try:
        loader = DataLoader(Squares(), batch_size=4)
        seam.dry = dry
        assert [batch.tolist() for batch in loader] == [[0, 1, 4, 9], [16, 25, 36, 49]]
    finally:
        seam.remove()
    assert ("Squares.__getitem__" in seen) is not dry
