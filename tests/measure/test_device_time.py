"""A GPU's time out of the host's clock: what is shown to cost something stays, all else is computing."""

from __future__ import annotations

import pytest
from tests.remedies.some_evidence import arm

from outpace.measure.device_time import on_device

HOST = {"input": 0.0, "transfer": 0.0, "forward": 0.001, "backward": 0.002, "optimizer": 0.001,
        "sync": 0.008, "elsewhere": 0.003}  # fmt: skip
NONE = [arm("transfer_free", 1.0, 0.01), arm("sync_free", 1.0, 0.01)]


def test_a_wait_that_costs_nothing_is_the_device_computing() -> None:
    found = on_device(HOST, NONE)
    assert sum(found.values()) == pytest.approx(sum(HOST.values()))
    assert found["sync"] == 0.0
    assert found["elsewhere"] == 0.0, "done while the device computes"
    assert found["forward"] + found["backward"] + found["optimizer"] == pytest.approx(0.015)
    assert found["backward"] == pytest.approx(0.0075), "by what each was launched for"


def test_a_wait_that_costs_something_stays() -> None:
    """Without it the step takes 10 of 15 ms: 5 of the 8 ms of waiting are lost."""
    arms = [arm("transfer_free", 1.0, 0.015), arm("sync_free", 1.5, 0.010)]
    found = on_device(HOST, arms)
    assert found["sync"] == pytest.approx(0.005)
    assert found["elsewhere"] == 0.0, "it is hidden behind the other 3 ms"
    assert sum(found.values()) == pytest.approx(sum(HOST.values()))


def test_input_that_is_made_meanwhile_costs_nothing() -> None:
    found = on_device(HOST | {"input": 0.002}, [*NONE, arm("input_free", 1.0, 0.017)])
    assert found["input"] == 0.0
    assert on_device(HOST | {"input": 0.002}, NONE)["input"] == 0.002, "nobody tried without it"


def test_a_host_that_never_waits_is_believed() -> None:
    host = HOST | {"sync": 0.0}
    assert on_device(host, NONE) == pytest.approx(host)


def test_without_experiments_nothing_is_changed() -> None:
    assert on_device(HOST, NONE[:1]) == HOST
