"""fp16: mixed precision where bfloat16 is missing."""

from __future__ import annotations

from typing import final

from outpace.records.evidence import Evidence
from outpace.records.gain import NO_GAIN, Gain
from outpace.records.trial import Settings
from outpace.remedies.base import Remedy, Verdict
from outpace.seams.setup import AS_IS, Setup

WORTH = 1.3
"""a matrix product must be this much faster in float16"""


@final
class Fp16(Remedy):
    """Run the forward pass in float16 under autocast, with scaled gradients.

    For GPUs that multiply float16 fast and bfloat16 slowly or not at all (Volta and Turing). On all
    others `bf16` is simpler: float16's small range makes gradients vanish, so that the loss must be
    scaled up, and its gradients down again before the optimizer's step.

    Advice: a GradScaler has its place around backward and step in the script; put in from outside
    it would change what clipping and logging of gradients see. Rounding differs, so quality is to
    be proven.
    """

    name = "fp16"
    treats = ("arithmetic", "bandwidth", "capacity")
    keeps = "numerics"
    advice_only = True

    def applies(self, evidence: Evidence) -> Verdict:
        """A CUDA device with fast float16 and no fast bfloat16."""
        compute = evidence.compute
        if compute.device != "cuda":
            return Verdict(False, "the model is not on a CUDA device")
        if compute.optimizer == "LBFGS":
            return Verdict(False, "LBFGS compares losses that float16 cannot tell apart")
        if compute.autocast or compute.dtype != "float32":
            return Verdict(False, f"the model already runs in {compute.dtype} or under autocast")
        rates = evidence.machine.products
        single, half, brain = (rates.get(k, 0.0) for k in ("float32", "float16", "bfloat16"))
        if not single or not half:
            return Verdict(False, "the speed of float16 products was not measured")
        if brain >= 0.8 * half:
            return Verdict(False, "bfloat16 products are as fast here, and need no scaling")
        return Verdict(
            half >= WORTH * single, f"float16 products run at {half / single:.1f}x of float32"
        )

    def predict(
        self, evidence: Evidence, settings: Settings | None = None, accepted: Setup = AS_IS
    ) -> Gain:
        """Up to the ratio of the products' speeds; most steps gain half of it."""
        rates = evidence.machine.products
        if not rates.get("float32") or not rates.get("float16") or accepted.autocast:
            return NO_GAIN
        ratio = max(1.0, min(4.0, rates["float16"] / rates["float32"]))
        return Gain(ratio**0.5, 1.0, ratio)
