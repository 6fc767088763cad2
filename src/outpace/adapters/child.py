"""In the target's process, once torch is imported: call the entry point that the parent named."""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any


def begin(spec_file: str, import_began_ns: int) -> None:
    """Read the spec and call its ``entry`` ("module:function") with it; whatever fails is told, and ends a
    run whose results are thrown away.

    ``import_began_ns``: when the import of torch began, on the clock of ``perf_counter_ns``.

    Ranks above 0 get a session folder of their own.
    """
    spec: dict[str, Any] = {}
    try:
        spec = json.loads(Path(spec_file).read_text(encoding="utf-8"))
        spec["import_began_ns"] = import_began_ns
        if rank := int(os.environ.get("RANK", "0")):
            spec["session"] = str(Path(spec["session"]) / f"rank-{rank}")
            Path(spec["session"]).mkdir(parents=True, exist_ok=True)
        module, _, function = spec["entry"].partition(":")
        getattr(importlib.import_module(module), function)(spec)
    except Exception as error:
        # Of several ranks the others would wait for it.
        ends = bool(spec.get("shadow")) and "RANK" not in os.environ
        what = "is ended, as its results are thrown away" if ends else "goes on unwatched"
        traceback.print_exception(error)
        print(f"outpace: {error!r}; the target {what}", file=sys.stderr)
        _write_down(spec, error)
        if ends:
            _end(in_command=spec.get("command", False))


def _end(*, in_command: bool) -> None:
    try:
        from outpace.tune.ending import end_process
    except Exception:
        os._exit(0)
    end_process(in_command=in_command)


def _write_down(spec: dict[str, Any], error: Exception) -> None:
    """For the parent, which would else take it for a target without a training."""
    try:
        from outpace.tune.files import STATUS, write

        write(Path(spec["session"]) / STATUS, {"broken": repr(error)})
    except Exception:
        pass  # the lines above say it
