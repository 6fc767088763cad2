"""The machine a session ran on, and the ceilings measured on it."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace


class Accelerator(msgspec.Struct, frozen=True):
    """One GPU as torch reports it."""

    name: str
    memory_bytes: int


class Ceilings(msgspec.Struct, frozen=True):
    """The most that this machine gives, measured once: FLOP/s, bytes/s, seconds.

    ``matmul_flops`` maps a dtype name ("float32", "bfloat16") to FLOP/s of a large matrix product;
    ``dispatch_s`` is what one tiny operation costs the CPU, forward and backward. These and
    ``memory_bytes_s`` are those of ``device``.
    """

    matmul_flops: dict[str, float] = {}
    memory_bytes_s: float = 0.0
    disk_read_bytes_s: float = 0.0
    jpeg_decode_pixels_s: float = 0.0
    dispatch_s: float = 0.0
    device: str = "cpu"


class Machine(msgspec.Struct, frozen=True):
    """Hardware and software that a measurement holds for; ``fingerprint`` tells machines apart."""

    fingerprint: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int
    accelerators: tuple[Accelerator, ...] = ()
    python: str = ""
    torch: str = ""
    ceilings: Ceilings | None = None

    @property
    def products(self) -> dict[str, float]:
        """FLOP/s of large matrix products by format; empty where they were not measured."""
        return self.ceilings.matmul_flops if self.ceilings is not None else {}

    def training_on(self, device: str) -> Machine:
        """Without the ceilings of another device than that."""
        top = self.ceilings
        if top is None or top.device == device:
            return self
        own = replace(top, matmul_flops={}, memory_bytes_s=0.0, dispatch_s=0.0, device=device)
        return replace(self, ceilings=own)
