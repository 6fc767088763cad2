"""Outpace finds what a PyTorch training is bound by, mends it, proves that quality is kept, and runs it.

On the command line: ``outpace diagnose|tune|run train.py``. In code: `apply` puts a recipe on the
objects of a script, `log` reports a metric that a proof then judges by, `until` trains until the
time is up, `Loader` gives batches that are ready when the step is, `Table` the rows of a table,
`Trainer` trains within a budget, `best_of` does so from several seeds, `compress` makes a trained model
smaller and faster; `diagnose`, `tune` and `run` do what the commands do.
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outpace.api import diagnose, run, tune
    from outpace.in_code import apply, log
    from outpace.plan.until import until
    from outpace.serve.loader import Loader
    from outpace.serve.tables import Table
    from outpace.train.compress.compress import compress
    from outpace.train.seeds import best_of
    from outpace.train.trainer import Trainer

__all__ = [
    "Loader",
    "Table",
    "Trainer",
    "apply",
    "best_of",
    "compress",
    "diagnose",
    "log",
    "run",
    "tune",
    "until",
]

_WHERE = {
    "Loader": "outpace.serve.loader",
    "Table": "outpace.serve.tables",
    "Trainer": "outpace.train.trainer",
    "apply": "outpace.in_code",
    "best_of": "outpace.train.seeds",
    "compress": "outpace.train.compress.compress",
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


class _Called(ModuleType):
    """A package that is called as the function of its name: outpace.tune and outpace.diagnose."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return __getattr__(self.__name__.rpartition(".")[2])(*args, **kwargs)


class _Outpace(ModuleType):
    """Importing a package sets it here, over the public function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _WHERE and isinstance(value, ModuleType):
            value.__class__ = _Called
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Outpace
