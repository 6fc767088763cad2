"""The model's part of a step, as it was measured."""

from __future__ import annotations

import msgspec

MOSTLY = 0.5
"""share of the operators' time before a backward pass of which a line is told in place of the model's call"""


class ByHand(msgspec.Struct, frozen=True):
    """Parameters changed by the script's own lines in place of an optimizer, in a step."""

    seconds: float
    operators: int
    where: str
    """file:line that runs most of them"""


class Calls(msgspec.Struct, frozen=True):
    """The script's function in which most operators of a forward pass are called."""

    function: str
    where: str
    """file:line that calls most of them"""
    operators: int
    in_loop: bool = False
    """they are those of a loop in it that a step goes through, and what that calls"""


class Dearest(msgspec.Struct, frozen=True):
    """The script's line whose operators compute for longest before a backward pass."""

    where: str
    """file:line"""
    operator: str
    """that takes most of it"""
    share: float
    """of the time of all operators before the backward pass"""
    beside: bool
    """no model's call calls it"""
    function: str | None = None
    """of which that is the share, where one takes most of the time"""


class Operators(msgspec.Struct, frozen=True):
    """Calls of an operator in a step that are alike; FLOPs and bytes are those of one."""

    name: str
    calls: int
    seconds: float
    """of all of them, in the one step in which they were counted"""
    flops: float
    moved_bytes: float
    """read and written, as if nothing stayed in a cache"""


class Compute(msgspec.Struct, frozen=True):
    """The model's part of a step."""

    forward_s: float = 0.0
    """the model's, and what the script computes of its outputs before backward"""
    backward_s: float = 0.0
    optimizer_s: float = 0.0
    """an optimizer's, and what the script does in its place"""
    optimizer_where: str | None = None
    """file:line that steps it"""
    by_hand: ByHand | None = None
    device: str = "cpu"
    threads: int = 1
    dtype: str = "float32"
    autocast: str = ""
    """the half precision that most of a step's FLOPs are done in, as under autocast"""
    tf32: bool = False
    """products of float32 are made in TF32"""
    cudnn_benchmark: bool = False
    """cuDNN searches for its algorithms"""
    compiled: bool = False
    parameters: int = 0
    learnt_bytes: int = 0
    """of the parameters that gradients are made for"""
    tensors: int = 0
    """parameter tensors: what an optimizer loops over"""
    convolutions: int = 0
    batch_norms: int = 0
    batch_norm_training: bool = False
    channels_last: bool = False
    volumes: bool = False
    """parameters or buffers of five dimensions, which ``.to(memory_format=torch.channels_last)`` refuses"""
    optimizer: str | None = None
    fused: bool = False
    foreach: bool = False
    fusible: bool = True
    """torch's fused kernels take all of the optimizer's groups"""
    mislaid: bool = False
    """the script lays gradients otherwise in memory than their weights, as an arm with fused steps met"""
    set_to_none: bool = True
    flops: float = 0.0
    """forward and backward FLOPs a step"""
    flops_forward: float = 0.0
    operations: int = 0
    """operator calls in one forward"""
    calls: Calls | None = None
    dearest: Dearest | None = None
    """None on a GPU, where calls only launch"""
    mover: Dearest | None = None
    """the same of operators that move more than the caches hold, of whose time it is the share"""
    spent: tuple[Operators, ...] = ()
    """by forward, backward and optimizer, what takes longest first"""
    fixed: tuple[float, float, float] | None = None
    """share of forward, backward and optimizer that a step costs whatever its batch, the intercept of time
    over batch size; and its 95 % limits"""
    called_by_rows: float = 0.0
    """share of those calls that are made for each row of a batch anew"""
    recomputed_where: str | None = None
    """file:line at which the script has activations computed again in its backward pass"""
    recomputed_moves: bool = False
    """to compute them again changes more than it gives: statistics of batch norms, or which random numbers
    are drawn"""
    recomputed_bytes: float = 0.0
    """the most that a step would keep of them"""
    recomputed_s: float = 0.0
    """seconds that to compute them took the first time, in the counted step"""
    again_s: float = 0.0
    """seconds a step of calls of a model that nothing is learnt from, on what another one learns from"""
    again_where: str | None = None
    alike: int = 0
    """calls of a model a step that give what another one gave, each learnt from"""
    alike_share: float = 0.0
    """of the time of all calls"""
    alike_where: str | None = None
    """file:line of them"""
    zeroed_s: float = 0.0
    """seconds a step of gradients that are zeroed before any optimizer steps"""
    zeroed_where: str | None = None
    """file:line that calls the model which they are of"""
    zeroed_of: str = ""
    """its class"""
    frozen_s: float = 0.0
    """seconds a step of calls of a model that never changes, on batches as they are drawn"""
    frozen_where: str | None = None
    """file:line of them"""
    frozen_of: str = ""
    """its class"""
    double_s: float = 0.0
    """seconds that operators in float64 took in the counted step, of a model that is not"""
    double_spared: float | None = None
    """share of them that float32 spares, as tried; None where it could not be"""
    double_where: str | None = None
    """file:line at which numbers come to be in float64"""
    double_by: str = ""
    """the attribute of a module that brings them there"""
    sliced_s: float = 0.0
    """seconds of the counted step in which gradients of slices were made as large as what they are of, and
    added up, beyond one for all of them"""
    sliced: int = 0
    """slices of the tensor of which they took longest"""
    sliced_where: str | None = None
    """file:line that takes these"""
    ignored: float = 0.0
    """share of the loss's targets that it is told to ignore"""
    ignored_s: float = 0.0
    """seconds of the counted step that scores of those took, and their gradients"""
    ignored_where: str | None = None
    """file:line of that loss"""
    unused: int = 0
    """parameters that get gradients and that no optimizer has"""
    unused_where: str | None = None
    """file:line where the model of the first of them is called"""
    unused_read: bool = False
    """the script looks at gradients itself, or asks which parameters have any"""
    gradients_read: bool = False
    """the script looks at gradients itself: at such, or at some that it names"""
    laid_flat: bool = False
    """it lays weights or gradients out flat by views"""
    cudnn_set: bool = False
    """it says itself how cuDNN is to choose its algorithms"""
    models: int = 1
    """that are called to learn, by themselves"""
    anomaly_detection: bool = False
    """torch's is on"""
    anomaly_where: str | None = None
    """file:line at which the script turned it on"""
    backward_tried: bool = False
    """the script goes on where a backward pass fails; looked at where anomaly detection is on"""
    denormals: float = 0.0
    """largest share of denormal numbers in a parameter, gradient or activation that was looked at"""
    moved_bytes: float = 0.0
    """bytes a step that element-wise operators move between memory and the processor"""
    moving_s: float = 0.0
    """seconds that those operators took in the counted step; on a GPU: to be launched"""
    updating_moving_s: float = 0.0
    """of these in the optimizer's step"""
    fresh_bytes: float = 0.0
    """of the moved bytes: those that are written to memory that was taken for them"""
    page_faults: float = 0.0
    """pages of fresh memory a step"""
    system_s: float = 0.0
    """CPU seconds a step in the system, on all cores: mostly filling those pages"""
    root: str | None = None
    where: str | None = None
    """file:line where the model is called"""
    eval_with_grad: float = 0.0
    """share of the calls outside of training that were in evaluation mode with gradients on"""
    eval_times: float | None = None
    """times as long as such a call takes with gradients on; None: not tried"""
    eval_where: str | None = None
    """file:line of the first of them"""
    padding: float = 0.0
    """share of the positions of a batch of sequences that are padding"""
    trimmed: float = 0.0
    """that lie beyond the longest sequence of the batch"""
    sequence_flops: float | None = None
    """of ``flops``, those spent on the sequences that these are shares of; None: not known"""
    untouched_bytes: float = 0.0
    """of the parameters that gradients are made for: rows of embeddings that a step looks up none of, whose
    gradients are zeros"""
    empty: float = 0.0
    """share of a step's computing that multiplies by the zeros of an operand that is all but empty, as far as
    an index or a sparse tensor would spare it"""
    empty_several: bool = False
    """rows of such an operand have several numbers: they are not one-hot"""
    parts: dict[str, str] = {}
    """parts of the model that give a tensor of the shape that they get, and their classes"""
    any_size: bool = False
    """the model takes images of any size: it pools what is left of them to a fixed size"""
    dear: tuple[str, ...] = ()
    """classes of its activations that cost more than a ReLU"""
    threads_where: str | None = None
    """file:line at which the script chose its number of threads"""
    exchange_where: str | None = None
    """file:line of the first collective that the script calls itself"""

    @property
    def counted_s(self) -> float:
        """Seconds that all operators of the counted step took."""
        return sum(each.seconds for each in self.spent)

    @property
    def dearest_where(self) -> str | None:
        """The line that computes for most of the time before a backward pass, else the model's call."""
        return self._mostly(self.dearest)

    @property
    def moving_where(self) -> str | None:
        """The line at which most memory is moved before a backward pass; where all is moved in that, the one
        that computes for most of the time; else the model's call.
        """
        return self._mostly(self.mover or self.dearest)

    def _mostly(self, line: Dearest | None) -> str | None:
        return line.where if line is not None and line.share > MOSTLY else self.where

    @property
    def clocked_s(self) -> float:
        """Seconds a step in forward, backward and optimizer."""
        return self.forward_s + self.backward_s + self.optimizer_s

    @property
    def fixed_s(self) -> float | None:
        """Seconds a step of what it costs whatever its batch."""
        return self.fixed[0] * self.clocked_s if self.fixed is not None else None

    @property
    def products(self) -> str | None:
        """What most matrix products are computed in; None for float32 on a GPU, which could use TF32."""
        computed = self.autocast or self.dtype
        if self.tf32 and computed == "float32":
            return "tf32"
        return None if (self.device, computed) == ("cuda", "float32") else computed
