"""What is emulated is not taken for the device's own."""

from __future__ import annotations

import platform

import pytest
import torch

from outpace.train.native import has_bf16


@pytest.mark.parametrize("units", [(False, False), (True, False), (False, True)])
def test_avx_512_alone_is_no_bfloat16(
    units: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: units[0])
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: units[1])
    assert has_bf16("cpu") == any(units)


def test_devices_that_are_not_known_have_none() -> None:
    assert not has_bf16("meta")
    assert has_bf16("cuda") <= torch.cuda.is_available()
