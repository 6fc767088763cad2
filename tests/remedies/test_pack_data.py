"""What packing the data is told to give."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outpace.records.evidence import Evidence, Steps
from outpace.remedies.pack_data import PackData
from tests.remedies.some_evidence import IMAGES


def waiting(**source: float) -> Evidence:
    """Steps of 100 ms, half of which waits for a batch that takes 100 ms to make."""
    data = replace(IMAGES.input, wait_s=0.05, fetch_s=0.1, decode_s=0.0, **source)  # type: ignore[arg-type]
    return replace(IMAGES, input=data, steps=Steps(count=100, median_s=0.1, mean_s=0.1))


def test_packed_data_are_neither_waited_for_nor_parsed() -> None:
    slow = waiting(parse_s=0.02, storage_s=0.06)
    assert PackData().applies(slow).yes
    gain = PackData().predict(slow)
    # Four fifths of what is waited for: 40 of 100 ms, or half of that.
    assert gain.speedup == pytest.approx(100 / 60)
    assert gain.low == pytest.approx(100 / 80)


@pytest.mark.parametrize("source", [{}, {"storage_s": 0.01}])
def test_samples_that_are_computed_are_not_packed_away(source: dict[str, float]) -> None:
    assert not PackData().applies(waiting(**source)).yes


def test_reading_counts_whether_it_waits_or_copies() -> None:
    assert PackData().predict(waiting(read_s=0.05)) == PackData().predict(waiting(storage_s=0.05))
