"""Measured facts about one training: what the seams saw and what the arms measured.

Times are seconds, sizes bytes. Nothing here is an opinion: `outpace.diagnose` interprets it.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from outpace.records.gain import Gain
from outpace.records.health import Health
from outpace.records.ledger import NOW_AND_THEN, ONCE, Row
from outpace.records.machine import Machine

NEARLY = 1e-6
"""of the steps from one to the next, by which what comes now and then may be off"""
MOST_A_PAGE_S = 4e-6
"""CPU seconds for a page of fresh memory, at most: what the system does beyond that is other work"""


class Steps(msgspec.Struct, frozen=True):
    """Steps as the script runs them (no arm on). ``outside_s``: time of the run outside of steps."""

    count: int = 0
    median_s: float = 0.0
    mean_s: float = 0.0
    cpu_s: float = 0.0
    samples_per_s: float = 0.0
    batch_size: int = 0
    micro_steps: int = 1
    boundary: Literal["optimizer", "backward", "none"] = "none"
    mingled: bool = False
    """every step has a validation, a checkpoint or an epoch's start in it, and was measured with it"""


class Images(msgspec.Struct, frozen=True):
    """Image files that the data set opened, per sample and over those probed."""

    decode_s: float = 0.0
    jpeg_share: float = 0.0
    mean_pixels: float = 0.0
    identical: bool | None = None
    """simplejpeg gave the same bytes as Pillow on every probed file; None: not installed or no file"""
    simplejpeg_speedup: float = 1.0
    """of decoding, on the probed files"""
    kept_s: float = 0.0
    """time an image takes whose decoded pixels are kept in memory"""
    keeping_s: float = 0.0
    """time that taking fresh memory for an image's pixels adds, once"""
    files: int = 0
    spilled_s: float = 0.0
    """time an image takes whose decoded pixels are kept on disk, while the system has them in memory"""


class Input(msgspec.Struct, frozen=True):
    """How batches reach the model."""

    kind: Literal["loader", "iterable", "lines", "none"] = "none"
    """a DataLoader over a map-style set, over an iterable set, or found by the lines that feed the
    model (a ``get_batch()`` or a generator)"""
    where: str | None = None
    workers: int = 0
    prefetch_factor: int = 0
    persistent: bool = False
    anew: bool = False
    """a DataLoader is made for each epoch, and workers with it"""
    restarts: bool = False
    """an iterator is made for each batch, and workers with it; steps are measured with that in them"""
    pinned: bool = False
    batch_size: int = 0
    batches: int | None = None
    """batches an epoch"""
    samples: int | None = None
    epochs: int | None = None
    """epochs of the whole run where it could be found, else None"""
    wait_s: float = 0.0
    """time a step waits for its batch, as the script runs"""
    fetch_s: float = 0.0
    """wall time of fetching one batch, in one worker"""
    fetch_cpu_s: float = 0.0
    again_s: float | None = None
    """the same of samples that were drawn before, as in all epochs but the first; None where it is no less"""
    collate_s: float = 0.0
    decode_s: float = 0.0
    """part of a batch's fetch spent in image decoding"""
    parse_s: float = 0.0
    """part spent parsing text or records (csv, json, re, struct, pickle)"""
    storage_s: float = 0.0
    """part spent off the CPU: waiting for a disk, a socket or a sleep"""
    ipc_s: float = 0.0
    """time a batch spends between worker and main process"""
    epoch_start_s: float = 0.0
    """extra time of an epoch's first step: making the iterator, starting workers, and copying the memory
    that is shared with them; where it restarts, all that a step waits"""
    forked_s: float = 0.0
    """part of it: the step computes longer, as each page that a forked worker shares is copied once it is
    written to"""
    worker_growth_bytes: float = 0.0
    """what the memory that workers own grows by, a step"""
    copied_bytes: int = 0
    """what each forked worker comes to copy of the data set's Python objects, estimated"""
    copied_objects: int = 0
    copied_holder: str = ""
    """the data set's attribute that leads to most of them"""
    same_draws: tuple[str, ...] = ()
    """generators that samples use and that are alike in all workers: "numpy", or an attribute"""
    read_bytes: float = 0.0
    """bytes read from storage a batch"""
    sample_bytes: int = 0
    """size of one collated sample"""
    deterministic: bool | None = None
    """the same sample drawn twice is the same; None where it could not be tried"""
    random_streams: tuple[str, ...] = ()
    """the generators that drawing a sample advances: "python", "numpy", "torch" """
    step_streams: tuple[str, ...] = ()
    """those that the rest of a step advances"""
    fed_back: bool = False
    """the script changes what makes batches, a data set or a sampler, between two batches of one epoch"""
    interrupted: bool = False
    """validations come between the batches of an epoch"""
    shared: bool = False
    """and draw from the same data set, which the script may have told to give other samples meanwhile"""
    own_sampler: bool = False
    """its order is of a sampler that is not torch's, which may draw, or keep its place, on the way"""
    others_random: bool = False
    """samples of another DataLoader are drawn by chance, or could not be tried"""
    sliceable: bool | None = None
    """``dataset[indices]`` equals the collated items bit for bit"""
    why_not_sliceable: str | None = None
    made_here_s: float | None = None
    """CPU time of making one in the training's own process, where workers make them"""
    slice_s: float | None = None
    """time of one ``dataset[indices]`` a batch"""
    cached_s: float | None = None
    """time of one batch from samples kept in memory"""
    images: Images | None = None
    places: tuple[tuple[str, float], ...] = ()
    """file:line in the user's code and its share of the fetch"""
    read_s: float = 0.0
    """part of a batch's fetch at lines that open or read, on the CPU or off it"""
    kind_places: dict[str, str] = {}
    """the line of most of each kind of work: "storage", "parse", "decode", "collate", "augment" """
    reworked_s: float = 0.0
    """seconds a step in which the script's own loop makes the model's input of a loader's batch"""
    reworked_where: str | None = None

    @property
    def by_chance(self) -> bool:
        """Whether samples, other loaders' too, would be others if drawn elsewhere or in another order."""
        return not self.deterministic or self.others_random


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
    optimizer: str | None = None
    fused: bool = False
    foreach: bool = False
    mislaid: bool = False
    """the script lays gradients otherwise in memory than their weights, as an arm with fused steps met"""
    set_to_none: bool = True
    flops: float = 0.0
    """forward and backward FLOPs a step"""
    flops_forward: float = 0.0
    operations: int = 0
    """operator calls in one forward"""
    calls: Calls | None = None
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
    unused: int = 0
    """parameters that get gradients and that no optimizer has"""
    unused_where: str | None = None
    """file:line where the model of the first of them is called"""
    unused_read: bool = False
    """the script looks at gradients itself: at those, or at some that it names"""
    anomaly_detection: bool = False
    """torch's is on"""
    anomaly_where: str | None = None
    """file:line at which the script turned it on"""
    denormals: float = 0.0
    """largest share of denormal numbers in a parameter, gradient or activation that was looked at"""
    moved_bytes: float = 0.0
    """bytes a step that element-wise operators move between memory and the processor"""
    moving_s: float = 0.0
    """seconds that those operators took in the counted step; on a GPU: to be launched"""
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
    empty_flops: float = 0.0
    """FLOPs a step that multiply by the zeros of an operand that is all but empty"""
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


class Sync(msgspec.Struct, frozen=True):
    """Calls that make the host wait for the device or copy to it, a step."""

    name: str
    count: float
    seconds: float
    where: str | None = None


class ByKind(msgspec.Struct, frozen=True):
    """Bytes at the peak of a step."""

    parameters: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    temporaries: int = 0
    other: int = 0


class Memory(msgspec.Struct, frozen=True):
    """Memory of a step and its growth over steps.

    ``limit_bytes``: the tightest of the device's, the machine's, its cgroups' and the process's own.
    """

    peak_bytes: int = 0
    """of the step's tensors, those of the model and the optimizer included"""
    by_kind: ByKind = ByKind()
    limit_bytes: int = 0
    rss_bytes: int = 0
    """resident, without pages of mapped files"""
    growth_bytes_step: float = 0.0
    growth_low: float = 0.0
    retained_where: str | None = None
    retained_name: str | None = None
    beside_bytes: int = 0
    """what else counts against the limit: libraries, data in memory, other tensors"""
    free_bytes: int | None = None
    """of the machine's own, what this process might still take; None where nobody looked"""

    @property
    def full(self) -> float:
        """Share of the limit that is taken at the peak of a step; 0 where there is no limit."""
        return self.full_at(1.0)

    def full_at(self, scale: float) -> float:
        """The same with ``scale`` times the batch: what a step makes grows with it, at the most."""
        kinds = self.by_kind
        made = kinds.activations + kinds.temporaries + kinds.other
        taken = self.beside_bytes + self.peak_bytes + (scale - 1.0) * made
        return taken / self.limit_bytes if self.limit_bytes else 0.0


HALF, CLEARLY = ("bfloat16", "float16"), 1.25
"""precisions that are made for speed, and times as fast as that float32 is surely faster"""
BESIDE = 0.25
"""cores that others keep busy, from which on they matter"""
ONE_THREAD = "one_thread"
"""the arm that no other process can hold up by taking the core of one thread of several"""
COMMUNICATION_FREE = "communication_free"
"""the arm in which ranks exchange nothing"""
LITTLE_INPUT = 0.05
"""of a step, up to which its input does not matter for the rest"""
FED = " with its input"
"""at the end of an arm's name: batches are made meanwhile as ever, where else they cost nothing"""


class Arm(msgspec.Struct, frozen=True):
    """One way to run a step, compared with the script as it is, round by round."""

    name: str
    rounds: int
    seconds: float
    """median wall seconds a step"""
    cpu_seconds: float
    gain: Gain
    """on the wall clock"""
    cpu_gain: Gain
    failed: str | None = None
    base: str = "as_is"
    """the arm it was compared with"""


class Loss(msgspec.Struct, frozen=True):
    """Loss by samples seen, as the script ran."""

    samples: tuple[int, ...] = ()
    values: tuple[float | None, ...] = ()
    """None where the loss was not a number"""
    first_bad_step: int | None = None
    """of the first loss that was NaN or infinite"""
    validated: tuple[tuple[int, float], ...] = ()
    """of each validation: samples trained on by then, and mean loss"""


class Overhead(msgspec.Struct, frozen=True):
    """What watching costs: a step watched over a step not watched."""

    step_ratio: float
    cpu_ratio: float
    step_low: float = 0.0
    step_high: float = 0.0
    """95 % interval of ``step_ratio``"""


class Recurring(msgspec.Struct, frozen=True):
    """What comes now and then outside of steps: ``count`` times so far, of ``each_s`` seconds.

    ``first``: steps before it came first; ``every``: steps from one to the next, None: it comes no more.
    """

    name: str
    each_s: float
    count: int
    first: int
    every: float | None
    sure: bool = True
    """else it came but once, and may not come again"""
    leads: bool = False
    """it comes before the steps, as an epoch's start does: none follows the last of them"""
    longer_s: float = 0.0
    """that the first one took longer than the others"""
    over: float | None = None
    """steps from the first one on that it is spread over, as what the first epoch makes; None: it comes at
    once"""

    def times(self, steps: int) -> int:
        """How often it comes in a run of so many steps."""
        if self.every is None:
            return self.count
        spans = (steps - self.first) / self.every
        return max(0, math.ceil(spans - NEARLY) if self.leads else math.floor(spans + NEARLY) + 1)

    def seconds(self, steps: int) -> float:
        """Of a run of so many steps."""
        times = self.times(steps)
        part = min(1.0, steps / self.over) if self.over else 1.0
        return part * (self.each_s * times + (self.longer_s if times else 0.0))

    @property
    def so_far_s(self) -> float:
        """Seconds of those that came."""
        return self.each_s * self.count + self.longer_s


class Run(msgspec.Struct, frozen=True):
    """The measured run itself."""

    wall_s: float = 0.0
    startup_s: float = 0.0
    finished: bool = False
    """the script came to its own end while it was measured"""
    total_steps: int | None = None
    """steps of the whole run where its length could be found"""
    estimated_s: float | None = None
    loading_s: float = 0.0
    """part of start-up in which torch was imported, or imported more of itself: no training is
    without it"""
    epoch_steps: float | None = None
    """steps of an epoch, as those had that were over; None where none was"""
    validation_s: float | None = None
    """time of a validation on the loaders that nothing was drawn from, predicted; None where one was
    seen, or there is no such loader"""
    leaves: tuple[str, ...] = ()
    """``file:line`` of conditions by which the loop around the training may end sooner"""
    recurring: tuple[Recurring, ...] = ()
    """what came outside of steps; empty where the run was seen to its end"""
    starts_s: float = 0.0
    """of the ledger's row for input, what epochs' starts took: making an iterator, starting workers, and
    what the first step computes longer for them"""
    others_cores: float = 0.0
    """cores that other processes kept busy meanwhile, on average"""


class Rank(msgspec.Struct, frozen=True):
    """One of several processes that train together; times are seconds a step."""

    rank: int
    step_s: float
    free: Gain
    """of a step without exchange: at this rank's own pace"""
    input_s: float
    """time that it waits for a batch"""
    input_where: str | None = None
    compute_where: str | None = None


class CacheLimits(msgspec.Struct, frozen=True):
    """What caches may take, in bytes, where the user said so."""

    ram_bytes: int | None = None
    disk_bytes: int | None = None

    def memory(self, most: int) -> int:
        """Bytes of memory, where no more than ``most`` are there."""
        return most if self.ram_bytes is None else min(most, self.ram_bytes)


class Evidence(msgspec.Struct, frozen=True):
    """Everything measured in one session."""

    machine: Machine
    run: Run = Run()
    steps: Steps = Steps()
    ledger: tuple[Row, ...] = ()
    input: Input = Input()
    compute: Compute = Compute()
    syncs: tuple[Sync, ...] = ()
    """calls that make the host wait for the device, the dearest first"""
    transfers: tuple[Sync, ...] = ()
    """calls that copy to the device"""
    memory: Memory = Memory()
    cache_limits: CacheLimits = CacheLimits()
    arms: tuple[Arm, ...] = ()
    loss: Loss = Loss()
    health: Health = Health()
    overhead: Overhead | None = None
    ranks: tuple[Rank, ...] = ()
    """where several train together; all else is of the first"""
    notes: tuple[str, ...] = ()
    """what could not be measured, and why"""

    def arm(self, name: str) -> Arm | None:
        """The arm called ``name`` where it was measured to its end."""
        return next((a for a in self.arms if a.name == name and a.failed is None), None)

    @property
    def world(self) -> int:
        """Processes that train together."""
        return max(1, len(self.ranks))

    @property
    def samples_a_step(self) -> int:
        """Of all ranks; 0 where they are not known."""
        return self.steps.batch_size * self.steps.micro_steps * self.world

    @property
    def experimented(self) -> bool:
        """Whether anything could be left out of some steps, to time them without it."""
        return any(arm.failed is None for arm in self.arms)

    @property
    def slowed_by_half(self) -> tuple[float, float, float] | None:
        """Seconds that a step would be shorter by with its products in float32, at the least and at the most;
        None where that is no faster here.

        By the machine's own speed in either. In float32 products reach a third of it, or a tenth to all.
        """
        rates, compute = self.machine.products, self.compute
        own, full = rates.get(compute.products or "", 0.0), rates.get("float32", 0.0)
        counted = sum(each.seconds for each in compute.spent)
        if compute.products not in HALF or not own or full < CLEARLY * own or not counted:
            return None
        making = sum(each.seconds for each in compute.spent if each.flops)
        making *= min(1.0, compute.clocked_s / counted)
        least, usual, most = (max(0.0, making - n * compute.flops / full) for n in (10, 3, 1))
        return usual, least, most

    @property
    def starting_s(self) -> float:
        """Seconds a step that workers take to start with each epoch, which no step's own time has in it."""
        data = self.input
        if not data.workers or data.restarts or not data.batches:
            return 0.0
        return data.epoch_start_s / (data.batches / max(1, self.steps.micro_steps))

    @property
    def begun_s(self) -> float:
        """Seconds of a step in which iterators are made, one for each batch, in the training's process."""
        data = self.input
        if data.workers or not data.restarts:
            return 0.0
        return max(0.0, data.wait_s - max(1, self.steps.micro_steps) * data.fetch_s)

    @property
    def makes_batches(self) -> bool:
        """Whether a loader's batches are made beside the steps, or for a good part of their time."""
        source = self.input
        takes = source.wait_s > LITTLE_INPUT * self.steps.mean_s
        return source.kind in ("loader", "iterable") and (source.workers > 0 or takes)

    def slowed_by_others(self, threads: int) -> bool:
        """Whether fewer ``threads`` than there are may have paid for other processes' sake alone.

        A thread whose core is taken holds up those that wait for it; more threads than cores do so
        by themselves.
        """
        now = self.compute.threads
        return self.run.others_cores >= BESIDE and threads < now <= self.machine.cores

    @property
    def may_be_held_up(self) -> bool:
        """Whether threads that compute may wait for one whose core another program holds."""
        return self.compute.device == "cpu" and self.slowed_by_others(1)

    @property
    def together(self) -> bool:
        """Whether several ranks train, which wait for each other."""
        return len(self.ranks) > 1

    @property
    def free_s(self) -> float:
        """Seconds a step takes when its input is free."""
        free = self.arm("input_free")
        if free is not None:
            return min(free.seconds, self.steps.mean_s or free.seconds)
        return max(0.0, self.steps.mean_s - self.input.wait_s)

    @property
    def paging_s(self) -> float:
        """Seconds a step in which pages are filled, by as many threads as a step keeps busy."""
        if self.input.restarts and self.input.workers:
            return 0.0  # they are the workers' that start, and no other allocator saves those
        compute, steps = self.compute, self.steps
        busy = steps.cpu_s / steps.mean_s if steps.mean_s else 1.0
        spent = min(compute.system_s, compute.page_faults * MOST_A_PAGE_S)
        return spent / min(max(1.0, busy), max(1, compute.threads))

    def share(self, *names: str) -> float:
        """Share of the run's wall clock in ledger rows of these names."""
        return sum(row.share for row in self.ledger if row.name in names)

    @property
    def now_and_then(self) -> tuple[Row, ...]:
        """Rows of what comes between steps, and what a faster step leaves as it is."""
        if self.steps.mingled:
            return ()
        return tuple(row for row in self.ledger if row.name in NOW_AND_THEN)

    @property
    def now_and_then_s(self) -> float:
        """Seconds of these."""
        return sum(row.seconds for row in self.now_and_then)

    @property
    def once_s(self) -> float:
        """Seconds of the ledger that are spent once, however long the training is."""
        return sum(row.seconds for row in self.ledger if row.name in ONCE)

    @property
    def in_steps_s(self) -> float:
        """Seconds of the ledger in steps that are alike: what makes a step faster makes these so."""
        total = sum(row.seconds for row in self.ledger)
        return total - self.once_s - self.now_and_then_s - self.run.starts_s
