"""The table of accelerators: what is in it hangs together."""

from __future__ import annotations

import pytest

from outpace.errors import UsageError
from outpace.plan.hardware import Device, device, devices


@pytest.mark.parametrize("one", devices().values(), ids=devices())
def test_rates_are_dense_and_hang_together(one: Device) -> None:
    """Half the bits, twice the rate: a table that gives the sparse rate for one fails this."""
    if one.bf16_tflops and one.fp16_tflops:
        assert one.bf16_tflops == one.fp16_tflops
    if one.tf32_tflops and one.bf16_tflops and one.tf32_tflops != one.fp32_tflops:
        assert one.bf16_tflops / one.tf32_tflops == pytest.approx(2, rel=0.02)
    if one.fp8_tflops and one.bf16_tflops:
        assert one.fp8_tflops / one.bf16_tflops == pytest.approx(2, rel=0.02)
    assert one.formats


@pytest.mark.parametrize(
    ("name", "dense"),
    [
        ("T4", 65),
        ("A100-40GB", 312),
        ("L4", 121),
        ("H100-SXM", 989),
        ("MI300X", 1307),
        ("TPUv5e", 197),
    ],
)
def test_rates_of_half_precision_are_the_dense_ones_of_data_sheets(name: str, dense: int) -> None:
    """A row that has the sparse rates throughout hangs together too."""
    found = devices()[name]
    assert (found.bf16_tflops or found.fp16_tflops) == dense


@pytest.mark.parametrize("one", devices().values(), ids=devices())
def test_memory_is_read_in_a_likely_time(one: Device) -> None:
    """All of it once in 10 to 100 ms, as of every accelerator with such memory."""
    assert 0.01 < one.memory_gb / one.bandwidth_gb_s < 0.1
    assert one.link_gb_s is None or one.link_gb_s < one.bandwidth_gb_s


@pytest.mark.parametrize("one", devices().values(), ids=devices())
def test_no_price_without_provider_and_date(one: Device) -> None:
    priced = [one.usd_per_hour is not None, bool(one.price_source), bool(one.price_date)]
    assert all(priced) or not any(priced)
    assert (one.price is not None) == priced[0]


def test_names() -> None:
    assert device("h100").name == "H100-SXM"
    assert device("t4").name == "T4"
    assert device("L40S").name == "L40S"
    with pytest.raises(UsageError, match="may be any of A100-40GB, A100-80GB"):
        device("a100")
    with pytest.raises(UsageError) as told:
        device("H10O-SXM")
    assert told.value.hint == "did you mean H100-SXM?"


def test_formats() -> None:
    assert device("h100").flops_per_s("bf16") == 989e12
    with pytest.raises(UsageError, match="no fp8 rate is known of V100"):
        device("v100").flops_per_s("fp8")
    with pytest.raises(UsageError, match="no int4 rate"):
        device("h100").flops_per_s("int4")
