"""Anomaly detection: noted where it is turned on, off while that is asked, and as the script has it after."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from outpace.seams.anomaly import RECENT, AnomalyDetection
from outpace.seams.host import Host


@pytest.fixture
def detection() -> Iterator[AnomalyDetection]:
    plain = torch.set_anomaly_enabled
    found = AnomalyDetection(Host())
    found.install()
    found.install()
    yield found
    found.remove()
    assert torch.set_anomaly_enabled is plain
    plain(False)


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_script_that_turns_it_on(detection: AnomalyDetection) -> None:
    assert not detection.trains
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    assert detection.trains
    assert "test_anomaly.py:" in (detection.where or "")
    detection.turn_off(True)
    detection.turn_off(True)
    assert not torch.is_anomaly_enabled()
    assert detection.trains, "the script's own is still on"
    detection.turn_off(False)
    assert torch.is_anomaly_enabled()
    assert not torch.is_anomaly_check_nan_enabled()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_with_around_each_backward_pass(detection: AnomalyDetection) -> None:
    for off in (False, True):
        detection.turn_off(off)
        with torch.autograd.detect_anomaly():
            assert torch.is_anomaly_enabled() is not off
        assert not torch.is_anomaly_enabled()
        assert detection.trains
    detection.turn_off(False)
    assert not torch.is_anomaly_enabled()
    detection.host.steps += RECENT + 1
    assert not detection.trains, "it was on while the script looked at its first steps"


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_what_is_set_while_it_is_off_holds_afterwards(detection: AnomalyDetection) -> None:
    detection.turn_off(True)
    torch.autograd.set_detect_anomaly(True)
    assert not torch.is_anomaly_enabled()
    detection.remove()
    assert torch.is_anomaly_enabled()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_a_nan_is_an_error_again_once_it_is_back(detection: AnomalyDetection) -> None:
    def backward() -> None:
        x = torch.zeros(1, requires_grad=True)
        (torch.sqrt(x) * 0).backward()

    torch.autograd.set_detect_anomaly(True)
    detection.turn_off(True)
    backward()
    detection.turn_off(False)
    with pytest.raises(RuntimeError, match="nan values"):
        backward()
