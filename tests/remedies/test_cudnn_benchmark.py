"""cudnn_benchmark: where there is something to be searched for."""

from __future__ import annotations

import msgspec

from outpace.remedies.cudnn_benchmark import CudnnBenchmark
from tests.remedies.some_evidence import ON_GPU

replace = msgspec.structs.replace


def test_a_script_that_has_it_on_is_not_advised() -> None:
    assert CudnnBenchmark().applies(ON_GPU).yes
    compute = replace(ON_GPU.compute, cudnn_benchmark=True)
    verdict = CudnnBenchmark().applies(replace(ON_GPU, compute=compute))
    assert not verdict.yes
    assert verdict.reason == "the script has cuDNN search already"


def test_a_script_that_says_itself_how_to_choose_is_left_alone() -> None:
    compute = replace(ON_GPU.compute, cudnn_set=True)
    assert not CudnnBenchmark().applies(replace(ON_GPU, compute=compute)).yes
