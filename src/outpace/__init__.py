"""Outpace finds what a PyTorch training is bound by, mends it, proves that quality is kept, and runs it.

On the command line: ``outpace diagnose|tune|run train.py``. In code: `apply` puts a recipe on the
objects of a script, `log` reports a metric that a proof then judges by, `until` trains until the
time is up, `Loader` gives batches that are ready when the step is.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outpace.api import diagnose, run, tune
    from outpace.in_code import apply, log
    from outpace.plan.until import until
    from outpace.serve.loader import Loader

__all__ = ["Loader", "apply", "diagnose", "log", "run", "tune", "until"]

_WHERE = {
    "Loader": "outpace.serve.loader",
    "apply": "outpace.in_code",
    "log": "outpace.in_code",
    "diagnose": "outpace.api",
    "run": "outpace.api",
    "tune": "outpace.api",
    "until": "outpace.plan.until",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: importing outpace imports no torch."""
    if name in _WHERE:
        from importlib import import_module

        return getattr(import_module(_WHERE[name]), name)
    raise AttributeError(f"module 'outpace' has no attribute {name!r}")
