"""In the target's process, once torch is imported: call the entry point that the parent named."""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path


def begin(spec_file: str) -> None:
    """Read the spec and call its entry point; whatever fails, the target goes on."""
    try:
        spec = json.loads(Path(spec_file).read_text())
        if rank := int(os.environ.get("RANK", "0")):
            spec["session"] = str(Path(spec["session"]) / f"rank-{rank}")
            Path(spec["session"]).mkdir(parents=True, exist_ok=True)
        if spec.get("shadow"):
            _shadow(spec)
        module, _, function = spec["entry"].partition(":")
        getattr(importlib.import_module(module), function)(spec)
    except Exception as error:
        print(f"outpace: {error!r}; the target goes on unwatched", file=sys.stderr)
        if os.environ.get("OUTPACE_DEBUG"):
            raise


def _shadow(spec: dict[str, str]) -> None:
    """Send what the target writes to a scratch folder: this run is thrown away."""
    try:
        from outpace.seams.writes import install
    except ImportError:
        return
    install(Path(spec["session"]) / "scratch", [Path(spec["session"])])
