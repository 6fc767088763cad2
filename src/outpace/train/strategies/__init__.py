"""Strategies: one file, one idea about training; ``STRATEGIES`` has them by name."""

from outpace.train.strategies.accumulation import Accumulation
from outpace.train.strategies.base import Strategy
from outpace.train.strategies.batch_size import BatchSize
from outpace.train.strategies.batch_warmup import BatchWarmup
from outpace.train.strategies.bf16 import Bf16
from outpace.train.strategies.channels_last import ChannelsLast
from outpace.train.strategies.class_prior import ClassPrior
from outpace.train.strategies.class_weights import ClassWeights
from outpace.train.strategies.constant import Constant
from outpace.train.strategies.divergence import Divergence
from outpace.train.strategies.dropout_off import DropoutOff
from outpace.train.strategies.early_stopping import EarlyStopping
from outpace.train.strategies.ema import Ema
from outpace.train.strategies.focal import Focal
from outpace.train.strategies.fp16 import Fp16
from outpace.train.strategies.kaiming import Kaiming
from outpace.train.strategies.linear import Linear
from outpace.train.strategies.loss_sampling import LossSampling
from outpace.train.strategies.lr_finder import LrFinder
from outpace.train.strategies.lsuv import Lsuv
from outpace.train.strategies.muon import Muon
from outpace.train.strategies.one_cycle import OneCycle
from outpace.train.strategies.plateau import Plateau
from outpace.train.strategies.progressive_resizing import ProgressiveResizing
from outpace.train.strategies.pruning import Pruning
from outpace.train.strategies.quantization_aware import QuantizationAware
from outpace.train.strategies.repeat_factor import RepeatFactor
from outpace.train.strategies.restarts import Restarts
from outpace.train.strategies.schedule_free import ScheduleFree
from outpace.train.strategies.sequence_length import SequenceLength
from outpace.train.strategies.sgd import Sgd
from outpace.train.strategies.subset import Subset
from outpace.train.strategies.target import Target
from outpace.train.strategies.task_curriculum import TaskCurriculum
from outpace.train.strategies.transfer import Transfer

__all__ = [
    "STRATEGIES",
    "Accumulation",
    "BatchSize",
    "BatchWarmup",
    "Bf16",
    "ChannelsLast",
    "ClassPrior",
    "ClassWeights",
    "Constant",
    "Divergence",
    "DropoutOff",
    "EarlyStopping",
    "Ema",
    "Focal",
    "Fp16",
    "Kaiming",
    "Linear",
    "LossSampling",
    "LrFinder",
    "Lsuv",
    "Muon",
    "OneCycle",
    "Plateau",
    "ProgressiveResizing",
    "Pruning",
    "QuantizationAware",
    "RepeatFactor",
    "Restarts",
    "ScheduleFree",
    "SequenceLength",
    "Sgd",
    "Strategy",
    "Subset",
    "Target",
    "TaskCurriculum",
    "Transfer",
]

STRATEGIES: dict[str, type[Strategy]] = {
    kind.name: kind
    for kind in (
        OneCycle,
        Restarts,
        Linear,
        Plateau,
        Constant,
        ScheduleFree,
        BatchSize,
        BatchWarmup,
        Accumulation,
        Muon,
        Sgd,
        LrFinder,
        Lsuv,
        Kaiming,
        ClassPrior,
        Transfer,
        RepeatFactor,
        ClassWeights,
        Focal,
        LossSampling,
        Subset,
        TaskCurriculum,
        ProgressiveResizing,
        SequenceLength,
        DropoutOff,
        Bf16,
        Fp16,
        ChannelsLast,
        Ema,
        Pruning,
        QuantizationAware,
        Divergence,
        EarlyStopping,
        Target,
    )
}
