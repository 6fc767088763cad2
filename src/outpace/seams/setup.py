"""How a step is to be run: a plain value.

An arm of an experiment, a remedy and a recipe are all one thing: another Setup. The seams bring
themselves to the Setup in force at each step boundary, so that undoing is going back to another
value, and remedies combine by changing different fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Fetch = Literal["items", "slice", "cache"]
Executor = Literal["own", "inline", "ahead", "threads", "processes"]
FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
FUSED_ON_CPU = ("Adagrad",)
"""those of which not each release of torch has a fused step on a GPU"""
FOREACH = (*FUSED, "Adadelta", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop")
"""torch's optimizers that can step all parameters at once"""


@dataclass(frozen=True)
class Feed:
    """How batches of a DataLoader are made.

    ``fetch``: item by item; one ``dataset[indices]`` a batch; or from samples kept in memory.
    ``executor``: the DataLoader's own; in the training thread; one thread that works ahead in
    order; ``workers`` threads; ``workers`` processes. ``prefetch``: batches made ahead
    (a worker, for processes).
    """

    fetch: Fetch = "items"
    executor: Executor = "own"
    workers: int = 0
    prefetch: int = 2
    persistent: bool = False
    place_bytes: int = 0
    """of a batch: persistent worker processes write such to places in shared memory that are used again and
    again; 0: each has memory of its own
    """
    pin: bool = False
    cache_bytes: int = 0
    begun_with: str = ""
    """the decoder of its processes, where others have another (experiments)"""
    pool: int = 0
    """draw from this many batches again and again (experiments with a warm cache); 0: from all"""


@dataclass(frozen=True)
class Setup:
    """One way to run a step; the default is the script as it is."""

    feed: Feed = Feed()
    free_input: bool = False
    """give recent batches again"""
    batch_scale: float = 1.0
    """size of the batches given again, against the script's own (with ``free_input``)"""
    decoder: Literal["pillow", "simplejpeg"] = "pillow"
    scaled: bool = False
    """JPEG files are decoded at a half or a quarter where the script makes them smaller at once"""
    decoded_bytes: int = 0
    """keep decoded images in memory up to this size, all workers together"""
    decoded_disk_bytes: int = 0
    """and on disk up to this, those that memory does not hold"""
    autocast: Literal["bfloat16", "float16", "float32"] | None = None
    """where the script has none; "float32": the script's own is off"""
    channels_last: bool = False
    compiled: bool = False
    checkpointed: bool = False
    kept_activations: bool = False
    """what the script has computed again in its backward pass is kept"""
    fused: bool | None = None
    foreach: bool | None = None
    set_to_none: bool | None = None
    threads: int | None = None
    passive: bool = False
    """OpenMP threads sleep while they wait, instead of spinning"""
    flush_denormals: bool = False
    no_unused_gradients: bool = False
    """parameters that no optimizer has ask for no gradient"""
    no_anomaly_detection: bool = False
    """torch's is off, whatever the script sets"""
    tf32: bool = False
    cudnn_benchmark: bool = False
    free_transfer: bool = False
    free_sync: bool = False
    free_communication: bool = False
    """ranks do not exchange gradients"""
    altered: tuple[str, str] | None = None
    """a model that does less, as `outpace.seams.alter` says"""
    watched: bool = True
    """False: the seams are out, but for the one that counts steps"""
    environment: tuple[tuple[str, str], ...] = ()
    """variables that only a new process can take"""

    @property
    def decodes(self) -> bool:
        """Whether images are decoded in another way than the script's own, or kept."""
        return self.decoder != "pillow" or self.scaled or bool(self.decoded_bytes)

    @property
    def in_process(self) -> bool:
        """Whether a running process can change over to this Setup.

        cuDNN keeps the algorithm that it took first for a convolution, however it was found.
        """
        return not self.environment and not self.cudnn_benchmark


AS_IS = Setup()
