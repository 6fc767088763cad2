"""What a device multiplies in by itself, and does not emulate."""

from __future__ import annotations

import platform

import torch


def has_bf16(device: str) -> bool:
    """Whether ``cpu`` or ``cuda`` has bfloat16; other CPUs emulate it, some fifty times as slow."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device != "cpu" or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    if platform.machine() in ("x86_64", "AMD64"):
        # oneDNN says that it has it wherever there is AVX-512.
        return torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def has_fp16_alone(device: str) -> bool:
    """Whether it is a GPU that has float16 and no bfloat16."""
    return device == "cuda" and torch.cuda.is_available() and not has_bf16(device)
