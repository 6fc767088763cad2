"""Strategies: one file, one idea about training; ``STRATEGIES`` has them by name."""

from outpace.train.strategies.base import Strategy
from outpace.train.strategies.constant import Constant
from outpace.train.strategies.divergence import Divergence
from outpace.train.strategies.early_stopping import EarlyStopping
from outpace.train.strategies.ema import Ema
from outpace.train.strategies.linear import Linear
from outpace.train.strategies.lr_finder import LrFinder
from outpace.train.strategies.one_cycle import OneCycle
from outpace.train.strategies.plateau import Plateau
from outpace.train.strategies.target import Target

__all__ = [
    "STRATEGIES",
    "Constant",
    "Divergence",
    "EarlyStopping",
    "Ema",
    "Linear",
    "LrFinder",
    "OneCycle",
    "Plateau",
    "Strategy",
    "Target",
]

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (
        OneCycle,
        Linear,
        Plateau,
        Constant,
        LrFinder,
        Ema,
        Divergence,
        EarlyStopping,
        Target,
    )
}
