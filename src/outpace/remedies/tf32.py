"""tf32: float32 matrix products on tensor cores."""

from __future__ import annotations

from dataclasses import replace
from typing import final

from outpace.records.evidence import Evidence
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.remedies.edits import insert_after_imports, names_any
from outpace.seams.setup import Setup

SWITCHES = ("allow_tf32", "float32_matmul_precision", "fp32_precision")


@final
class Tf32(Remedy):
    """Let a GPU multiply float32 matrices in TensorFloat-32: 10 bits of mantissa, on tensor cores.

    Helps float32 training on NVIDIA GPUs from Ampere on (2020), where bf16 is not wanted: products
    run several times faster, everything else stays in float32. Does nothing on older GPUs.

    Products are rounded, so quality is proven.
    """

    name = "tf32"
    treats = ("arithmetic",)
    keeps = "numerics"
    probed = True

    def applies(self, evidence: Evidence) -> Verdict:
        """float32 products on a CUDA device."""
        compute = evidence.compute
        if compute.device != "cuda":
            return Verdict(False, "the model is not on a CUDA device")
        if compute.autocast or compute.dtype != "float32":
            return Verdict(False, f"products run in {compute.dtype} or under autocast")
        if compute.tf32:
            return Verdict(False, "float32 products are made in TF32 already")
        return Verdict(True, "float32 products may run on tensor cores")

    def setup(self, base: Setup, settings: Settings) -> Setup:
        """TF32 in matrix products and convolutions."""
        return replace(base, tf32=True)

    def edit(self, source: str, evidence: Evidence, settings: Settings) -> str:
        """Torch's switch after the imports, where the script has none of its own."""
        if names_any(source, SWITCHES):
            return source
        return insert_after_imports(source, 'torch.set_float32_matmul_precision("high")')
