"""Fused steps are not for every training."""

from __future__ import annotations

import msgspec

from outpace.remedies.fused_optimizer import FusedOptimizer
from tests.remedies.some_evidence import IMAGES

replace = msgspec.structs.replace


def test_gradients_that_lie_otherwise_are_not_for_fused_kernels() -> None:
    remedy = FusedOptimizer()
    assert remedy.applies(IMAGES).yes
    mislaid = replace(IMAGES, compute=replace(IMAGES.compute, mislaid=True))
    assert not remedy.applies(mislaid).yes
    assert remedy.applies(replace(mislaid, compute=replace(mislaid.compute, optimizer="NAdam"))).yes


def test_adagrad_has_none_on_each_gpu() -> None:
    for device, how in (("cpu", "fused"), ("cuda", "foreach")):
        compute = replace(IMAGES.compute, optimizer="Adagrad", device=device)
        assert FusedOptimizer().how(replace(IMAGES, compute=compute)) == how
