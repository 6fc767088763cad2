"""cudnn_benchmark: let cuDNN search for the fastest convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import insert_after_imports
from outpace.seams.setup import Setup


@final
class CudnnBenchmark(Remedy):
    """Let cuDNN time its algorithms for each convolution and keep the fastest.

    Helps convolutional networks whose input has one shape. Harms where shapes change all the time:
    each new one is searched for again.

    Another algorithm sums in another order, so quality is proven. Only for CUDA.
    """

    name = "cudnn_benchmark"
    treats = ("arithmetic",)
    keeps = "numerics"

    def applies(self, evidence: Evidence) -> Verdict:
        """Convolutions on a CUDA device, whose algorithms are not searched for yet."""
        compute = evidence.compute
        if compute.device != "cuda":
            return Verdict(False, "the model is not on a CUDA device")
        if not compute.convolutions:
            return Verdict(False, "the model has no convolutions")
        if compute.cudnn_benchmark:
            return Verdict(False, "the script has cuDNN search already")
        if compute.cudnn_set:
            return Verdict(False, "the script says itself how cuDNN is to choose")
        return Verdict(
            True, f"cuDNN can choose among algorithms for {compute.convolutions} convolutions"
        )

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """``torch.backends.cudnn.benchmark``."""
        return replace(base, cudnn_benchmark=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """The switch after the imports."""
        return insert_after_imports(source, "torch.backends.cudnn.benchmark = True")
