"""One file a contender, with train(race): it trains ``race.model`` and calls ``race.look(model, step)``
after each step, or ``race.note(step, metric)`` after each validation of its own, which is to come every
``race.work.every`` steps. What it imports is imported before the clocks start.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import NamedTuple


class Contender(NamedTuple):
    """``aims``: it plans for the target, and so is run once with it and once without."""

    title: str
    package: str
    aims: bool = False


PLAIN, OURS = "plain", "ours"
CONTENDERS = {
    PLAIN: Contender("plain script", "torch"),
    "accelerate": Contender("Accelerate", "accelerate"),
    "lightning": Contender("Lightning, Tuner", "lightning"),
    "transformers": Contender("Transformers", "transformers"),
    "fastai": Contender("fastai, one cycle", "fastai"),
    OURS: Contender("Outpace, auto", "outpace", aims=True),
}


def load(name: str) -> ModuleType:
    """The file of a contender."""
    return importlib.import_module(f"contenders.{name}")


def missing(name: str) -> bool:
    """Whether its package is not installed."""
    return importlib.util.find_spec(CONTENDERS[name].package) is None
