"""A step on another accelerator, operator by operator."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from outpace.plan.elsewhere import (
    DISPATCH_S,
    REACHED,
    Rates,
    computing_s,
    rates_here,
    rates_there,
)
from outpace.plan.hardware import devices
from outpace.records.compute import Compute, Operators
from outpace.records.evidence import Evidence
from outpace.records.machine import Ceilings, Machine

HERE, THERE = Rates(100e9, 10e9), Rates(10e12, 100e9)
"""an accelerator of a hundred times the arithmetic and ten times the bandwidth"""
PRODUCT = Operators("mm", 2, 0.08, 2e9, 1e6)
"""each 20 ms at the best here, and takes 40"""
SUM = Operators("add", 4, 0.02, 0.0, 20e6)
"""each 2 ms at the best here, and takes 5"""


def evidence(*spent: Operators, seconds: float = 0.1, **compute: float | str) -> Evidence:
    return Evidence(
        machine=replace(
            Machine("x", "Linux", "cpu", 2, 8 << 30),
            ceilings=Ceilings({"float32": 100e9}, memory_bytes_s=10e9),
        ),
        compute=Compute(forward_s=seconds, spent=spent, **compute),  # type: ignore[arg-type]
    )


def test_products_gain_by_arithmetic_and_sums_by_bandwidth() -> None:
    found = computing_s(evidence(PRODUCT, seconds=0.08), HERE, THERE)
    assert found.estimate == pytest.approx(0.08 / 100)
    found = computing_s(evidence(SUM, seconds=0.02), HERE, THERE)
    assert found.estimate == pytest.approx(0.02 / 10)
    both = computing_s(evidence(PRODUCT, SUM), HERE, THERE)
    assert both.estimate == pytest.approx(0.08 / 100 + 0.02 / 10)


def test_what_arithmetic_bounds_here_may_be_bound_by_memory_there() -> None:
    """20 ms of arithmetic for 5 of memory here; 0.2 of arithmetic for 0.5 of memory there."""
    product = replace(PRODUCT, moved_bytes=50e6)
    found = computing_s(evidence(product, seconds=0.08), HERE, THERE)
    assert found.estimate == pytest.approx(2 * 0.0005 / 0.5)


def test_limits_are_those_of_all_operators_at_the_least_and_the_most_that_is_reached() -> None:
    found = computing_s(evidence(PRODUCT, seconds=0.08), HERE, THERE)
    bound = 2 * 2e9 / THERE.flops
    assert found.most == pytest.approx(bound / REACHED[0])
    assert found.least == pytest.approx(bound / REACHED[1])
    assert found.least < found.estimate < found.most


@pytest.mark.parametrize(("seconds", "reached"), [(4.0, REACHED[0]), (0.04, REACHED[1])])
def test_no_operator_is_taken_to_reach_less_or_more(seconds: float, reached: float) -> None:
    """One that calls take all of the time of, and one whose bytes are in a cache."""
    slow = replace(PRODUCT, seconds=seconds)
    found = computing_s(evidence(slow, seconds=seconds), HERE, THERE)
    assert found.estimate == pytest.approx(2 * 2e9 / THERE.flops / reached)


def test_counting_slows_operators_down_and_their_shares_count() -> None:
    slowed = (replace(PRODUCT, seconds=0.16), replace(SUM, seconds=0.04))
    assert computing_s(evidence(*slowed), HERE, THERE) == computing_s(
        evidence(PRODUCT, SUM), HERE, THERE
    )


def test_small_operators_take_what_it_takes_to_send_them() -> None:
    found = computing_s(evidence(PRODUCT, seconds=0.08, operations=1000), HERE, THERE)
    assert found == (1000 * DISPATCH_S,) * 2 + (max(1000 * DISPATCH_S, found.most),)


def test_a_compiled_step_is_reckoned_as_one_operator() -> None:
    """Of generated kernels nothing is seen."""
    whole = evidence(SUM, seconds=0.1, flops=4e9, moved_bytes=80e6)
    # 40 of its 100 ms at the best here, where arithmetic bounds it; there memory does.
    assert computing_s(whole, HERE, THERE).estimate == pytest.approx(80e6 / THERE.bandwidth / 0.4)


def test_rates() -> None:
    assert rates_here(evidence()) == HERE
    assert rates_here(Evidence(machine=Machine("x", "Linux", "cpu", 2, 8 << 30))) is None
    assert rates_there(devices()["A100-80GB"], "float32") == (156e12, 2039e9)
    assert rates_there(devices()["TPUv5e"], "float32") == (197e12, 819e9)


def test_products_in_half_precision_have_rates_of_their_own() -> None:
    under = evidence(autocast="bfloat16")
    both = Ceilings({"float32": 100e9, "bfloat16": 300e9}, memory_bytes_s=10e9)
    assert rates_here(replace(under, machine=replace(under.machine, ceilings=both))) == (
        300e9,
        10e9,
    )
    assert rates_here(under) == HERE  # what is not known of this CPU
    assert rates_there(devices()["A100-80GB"], "bfloat16") == (312e12, 2039e9)
    assert rates_there(devices()["T4"], "float16") == (65e12, 320e9)
    assert rates_there(devices()["T4"], "bfloat16") == (8.1e12, 320e9)
