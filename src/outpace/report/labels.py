"""What the short names in the records mean, in words that a user reads."""

from __future__ import annotations

from outpace.report import words

BOUNDS = {
    "io": "I/O",
    "compute": "compute",
    "memory": "memory",
    "communication": "communication",
    "outside": "time outside of steps",
    "none": "nothing that was found",
}
CAUSES = {
    "storage": "waiting for storage",
    "parse": "decoding and parsing samples",
    "augment": "transforming samples",
    "collate": "putting samples together into batches",
    "ipc": "passing batches between processes",
    "transfer": "moving batches to the device",
    "arithmetic": "arithmetic of the model",
    "dispatch": "overhead of launching many small operations",
    "sync": "waiting for single values (.item() and the like)",
    "threads": "the number of compute threads",
    "capacity": "too little memory",
    "leak": "memory that grows with every step",
    "bandwidth": "memory bandwidth",
    "straggler": "waiting for the slowest rank",
    "allreduce": "exchanging gradients",
    "startup": "start-up",
    "validation": "validation",
    "checkpoint": "writing checkpoints",
    "logging": "logging",
    "other": "code between the steps",
}
KEEPS = {
    "exact": "same bits",
    "numerics": "same mathematics, other rounding",
    "learning": "another path to the same quality",
}
KINDS = {
    "startup": "start-up and imports",
    "input": "waiting for batches",
    "transfer": "moving batches to the device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "sync": "waiting for single values",
    "validation": "validation",
    "checkpoint": "writing checkpoints",
    "epoch_end": "after epochs",
    "compiling": "compiling the model again",
    "logging": "logging",
    "elsewhere": "elsewhere",
    "ending": "after the last step",
}
_PARTS = {
    "io": ("input", "transfer"),
    "compute": ("forward", "backward", "optimizer", "sync", "compiling"),
    "outside": ("startup", "validation", "checkpoint", "epoch_end", "logging", "elsewhere"),
}
_ARMS = {
    "as_is": "as it is",
    "seams_off": "not watched",
    "input_free": "input free",
    "transfer_free": "transfer free",
    "sync_free": "without syncs",
    "communication_free": "without exchange",
    "batch_half": "half the batch",
    "batch_double": "twice the batch",
}

ARMS_ABOUT = {
    "batch_half": "a smaller step",
    "batch_double": "a larger step",
}
"""Arms whose steps do another amount of work: neither faster nor slower."""


def arm(name: str) -> str:
    """The name of an arm in words: ``threads_2`` is "threads 2"."""
    return _ARMS.get(name) or words.plain(name).replace("_", " ")


def belongs(row: str, bound: str) -> bool:
    """Whether a row of the ledger is a part of the time that a bound stands for."""
    return row in _PARTS.get(bound, ())
