"""What each kind of cost takes of a run, in seconds, out of the evidence.

A cost inside of steps is given for one step and for the whole run; one outside of steps for the
run alone. Limits are those of a 95 % interval, as far as the measurement behind it tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outpace.diagnose.ranks import exchange_seconds, input_of_all
from outpace.records.arm import ONE_THREAD, Arm
from outpace.records.compute import Compute
from outpace.records.evidence import Evidence
from outpace.records.finding import GainOf
from outpace.records.gain import Gain, How

CALL_OVER_TINY, MOST_OVER_TINY = 3.0, 6.0
"""what a module's operator costs to call, over one bare tiny operator; and at the most: those of a
recurrent network that steps through time in Python take five times as long. What else no batch changes,
such as waking threads, is not told as calls"""
KEPT = "keep_activations"
TOLD_BY_ARM = ("no_anomaly_detection", KEPT, "no_unused_gradients")
"""arms that do without something that the training has no use for, each with a finding of its own"""
ALIKE = (0.4, 0.75, 1.1)
"""part of what calls on the same take that is spared: derivatives are computed back through one of them"""
DOUBLE = (0.2, 0.4, 0.5)
"""share of the operations' time that float64 costs over float32: from calls and caches alone to all of it"""
ROOMY = 0.8
"""of the memory, that a step with all activations kept may take"""
MOSTLY_IGNORED = 0.5
"""share of a loss's targets that are ignored, from which on scores are made for few"""
LEAST_IGNORED = 0.05
"""share of computing that their scores cost, from which on it is told"""
LEAST_USELESS = 0.1
"""share of the arithmetic done on nothing, from which on it is told"""
BY_ROWS = 0.5
"""share of a forward pass's calls that are made for each row, from which on no batch size shows their cost"""
MOST_DISPATCH = 0.9
"""share of a step's compute: something is left to be done in any case"""
MAKING_ERROR = 1.3
"""times what workers are taken to need to make a batch, before the rest is laid at the workers"""
SURELY_MOVED = 0.6
"""part of the time of operators that move memory that is taken to be gone without them at the least"""
LEAST_OPERATORS = 3
"""of a step beside one for each tensor of parameters: its loss, and an optimizer that updates all at once"""
DENSE_GRADIENTS = ("embedding_dense_backward", "_embedding_bag_dense_backward")
PAGE = 4096
GPU_CACHE = 64e6
"""bytes: a GPU's last cache holds no more (NVIDIA's H100: 50 MB)"""
RUN_TO_RUN = 1.4
"""times that what is lost, over the rest, may differ in another run of the script: the truth bench saw
standard deviations of 9 to 31 % between short runs. Of the 64 plants that may be tuned on, in three passes
whose truths were timed beside them, the 80 % part of the interval would have held the truth in 49 with 1.3,
in 55 with 1.4, in 57 with 1.5 and in 61 with 1.6"""
HELD_UP = 2.5
"""the same where a thread's core may be another program's for a while: beside one, three costs of the truth
bench that were told five times were 1.5 to 2.9 times as much of the rest in truth, 2.1 in the median
"""
ERROR = 0.05
"""relative error that is taken for a time that was clocked, not compared"""


@dataclass(frozen=True)
class Cost:
    """Seconds that would be gone: of a step (``step_s``) or of the run; with limits."""

    seconds: float
    low: float
    high: float
    whole_s: float
    """the step, or the run, that it is a part of"""
    run_share: float
    how: How = "measured"
    differs: float = RUN_TO_RUN
    gain_of: GainOf = "steps"

    @property
    def gain(self) -> Gain:
        """Speed-up of that step or run without the cost, in a run like this one."""

        def spared(cost: float, times: float = 1.0) -> float:
            cost = max(0.0, cost)
            rest = max(self.whole_s * 0.005, self.whole_s - cost)
            return 1.0 + times * (self.whole_s / rest - 1.0)

        if self.whole_s <= 0:
            return Gain(1.0, 1.0, 1.0, self.how)
        low, high = spared(self.low, 1 / self.differs), spared(self.high, self.differs)
        return Gain(spared(self.seconds), low, high, self.how)


def step_share(evidence: Evidence) -> float:
    """Share of the run that is inside of steps, as far as these are alike: epochs' starts are not."""
    total = evidence.whole_s
    if not total or not evidence.steps.count:
        return 0.0
    return max(0.0, evidence.in_steps_s / total)


def once_share(evidence: Evidence) -> float:
    """Share of the run in which it starts and ends."""
    total = evidence.whole_s
    return evidence.once_s / total if total else 0.0


def of_step(
    evidence: Evidence,
    seconds: float,
    low: float,
    high: float,
    how: How = "measured",
    beside: float = 0.0,
) -> Cost:
    """A cost inside of each step; ``beside``: seconds of it that the step's own time leaves out."""
    step_s = evidence.steps.mean_s
    whole = step_s + beside
    share = min(whole, seconds) / step_s * step_share(evidence) if step_s else 0.0
    return Cost(seconds, low, high, whole, min(1.0, share), how, _differs(evidence))


def clocked_in_step(evidence: Evidence, seconds: float, error: float) -> Cost:
    """A cost inside of each step that a clock tells, good for such a relative error."""
    low, high = seconds * (1 - error), seconds * (1 + error)
    return of_step(evidence, seconds, low, high, "predicted")


def without(evidence: Evidence, whole: float, gain: Gain) -> Cost:
    """The part of ``whole`` seconds that an arm with this gain did without."""

    def lost(speedup: float) -> float:
        return whole * (1 - 1 / max(speedup, 1e-3))

    return of_step(evidence, lost(gain.speedup), lost(gain.low), lost(gain.high))


def compared_s(evidence: Evidence, arm: Arm) -> float:
    """Seconds of what an arm was compared with: a step, or its compute where the input was free."""
    return evidence.steps.mean_s if arm.base == "as_is" else evidence.free_s


def spared_by(evidence: Evidence, arm: Arm) -> Cost:
    """The part of that which the arm did without."""
    return without(evidence, compared_s(evidence, arm), arm.gain)


def of_run(evidence: Evidence, seconds: float, error: float = ERROR) -> Cost:
    """A cost outside of steps."""
    whole = evidence.whole_s
    share = seconds / whole if whole else 0.0
    low, high = seconds * (1 - error), seconds * (1 + error)
    return Cost(seconds, low, high, whole, share, differs=_differs(evidence), gain_of="run")


def _differs(evidence: Evidence) -> float:
    """Times that what is lost over the rest may differ in another run of the script."""
    return HELD_UP if evidence.may_be_held_up else RUN_TO_RUN


def input_cost(evidence: Evidence) -> Cost | None:
    """What a step would be shorter by if its input were free: measured by an arm where it can be.

    Of ranks that train together no more than all of them gain: this one may wait for another in any case.
    """
    cost = _own_input_cost(evidence)
    if cost is None or not evidence.ranks or cost.seconds <= 0:
        return cost
    part = min(1.0, input_of_all(evidence) / cost.seconds)
    seconds, low, high = (part * s for s in (cost.seconds, cost.low, cost.high))
    return of_step(evidence, seconds, low, high, cost.how)


def _own_input_cost(evidence: Evidence) -> Cost | None:
    data, whole = evidence.input, evidence.steps.mean_s
    clocked = None
    if data.wait_s:
        error = 0.15 if data.kind == "lines" else ERROR
        clocked = clocked_in_step(evidence, data.wait_s, error)
    free = evidence.arm("input_free")
    if free is None or not whole:
        return clocked
    tried = without(evidence, whole, free.gain)
    if clocked is None:
        return tried
    within, serial = tried.low <= clocked.seconds <= tried.high, data.workers == 0
    if serial and within:
        # Made in the training thread: what is waited is what is lost, and the clock is steadier.
        low, high = max(tried.low, clocked.low), min(tried.high, clocked.high)
        return of_step(evidence, clocked.seconds, low, high)
    if evidence.compute.device != "cpu" or tried.high <= 0.0:
        return tried  # a device may have gone on meanwhile
    # Where the arm decides little, as on a very busy machine, the clock tells all the same.
    if serial and (tried.low <= 0.0 or tried.high - tried.low > clocked.seconds):
        low, high = min(clocked.low, tried.high), max(clocked.high, tried.low)
        return of_step(evidence, clocked.seconds, low, high, "predicted")
    if within and tried.low <= 0.0:
        return of_step(evidence, clocked.seconds, clocked.low, tried.high, "predicted")
    return tried


def input_parts(evidence: Evidence) -> dict[str, float]:
    """Shares of making a batch by cause; they add up to 1."""
    data = evidence.input
    begun = evidence.begun_s / max(1, evidence.steps.micro_steps)
    total = data.fetch_s + data.ipc_s + begun
    if not total:
        return {"augment": 1.0}
    storage = min(max(data.storage_s, data.read_s), total)
    parse = min(data.parse_s + data.decode_s, total - storage)
    collate = min(data.collate_s + begun, total - storage - parse)
    ipc = min(data.ipc_s, total - storage - parse - collate)
    rest = max(0.0, total - storage - parse - collate - ipc)
    parts = {"storage": storage, "parse": parse, "collate": collate, "ipc": ipc, "augment": rest}
    if data.sliceable and storage < 0.2 * total:
        # Slicing gives the same batch: what the items cost is that they are taken one by one.
        parts["collate"] += parts.pop("augment")
    beyond = beyond_making(evidence)
    shares = {cause: (1 - beyond) * seconds / total for cause, seconds in parts.items()}
    shares["ipc"] += beyond
    return {cause: share for cause, share in shares.items() if share > 0}


def beyond_making(evidence: Evidence) -> float:
    """Share of the lost time that making batches in workers cannot explain.

    Workers side by side make a batch in so much CPU time over the cores, and in so much waiting over
    their number. What is lost beyond that goes to the workers themselves: starting them, passing
    batches on, taking turns. So does what a batch takes them longer than it takes the training's own
    process: fresh pages of shared memory, caches that they share.
    """
    data, cost = evidence.input, input_cost(evidence)
    if not data.workers or cost is None or cost.seconds <= 0:
        return 0.0
    side_by_side = max(1, min(data.workers, evidence.machine.cores))
    made = data.fetch_cpu_s if data.made_here_s is None else min(data.fetch_cpu_s, data.made_here_s)
    making = made / side_by_side * times_slower_by_others(evidence) + data.storage_s / data.workers
    making *= max(1, evidence.steps.micro_steps)
    return max(0.0, 1 - MAKING_ERROR * making / cost.seconds)


def times_slower_by_others(evidence: Evidence) -> float:
    """Times as long as workers take for what they compute because other programs use the cores.

    Beyond what follows from their own number, and from the threads that train.
    """
    data = evidence.input
    if not data.fetch_cpu_s:
        return 1.0
    crowd = (data.workers + evidence.compute.threads) / evidence.machine.cores
    taken = (data.fetch_s - data.storage_s) / data.fetch_cpu_s
    return max(1.0, taken / max(1.0, crowd))


def compute_cost(evidence: Evidence) -> float:
    """Seconds of a step in forward, backward and optimizer, less what is told by itself.

    That is `_held_up_seconds`, what the arms `TOLD_BY_ARM` gained by doing without, and calls and gradients
    that come to nothing.
    """
    computing = _computing(evidence) - _held_up_seconds(evidence)
    by_arm = (cost_by_arm(evidence, name) for name in TOLD_BY_ARM)
    told = [cost.seconds for cost in by_arm if cost is not None and cost.gain.is_gain]
    compute = evidence.compute
    for_nothing = compute.again_s + compute.zeroed_s + constant_seconds(evidence)
    for_nothing += alike_seconds(evidence)[1] + ignored_seconds(evidence)
    without_them = computing - for_nothing - sum(told)
    return max(0.0, without_them) if told or for_nothing else computing


def left_share(evidence: Evidence) -> float:
    """The part of a step's operators that `compute_cost` is of."""
    computing = _computing(evidence) - _held_up_seconds(evidence)
    return min(1.0, compute_cost(evidence) / computing) if computing > 0 else 1.0


def alike_seconds(evidence: Evidence) -> tuple[float, float, float]:
    """Seconds of a step that are spared without the calls that give what another one gave, and what is
    computed back through them: at the least, usually, at the most.
    """
    compute = evidence.compute
    seconds = compute.alike_share * (compute.forward_s + compute.backward_s)
    least, usual, most = (part * seconds for part in ALIKE)
    return least, usual, most


def constant_seconds(evidence: Evidence) -> float:
    """Seconds of a step in calls that give the same in each epoch, over all epochs but the first."""
    data = evidence.input
    if data.kind != "loader" or not data.deterministic:
        return 0.0
    return evidence.compute.frozen_s * (1 - 1 / evidence.passes)


def ignored_seconds(evidence: Evidence) -> float:
    """Seconds of a step in scores of targets that the loss ignores, where these are more than padding."""
    compute = evidence.compute
    if not compute.counted_s or compute.ignored < max(MOSTLY_IGNORED, 1.5 * compute.padding):
        return 0.0
    share = _of_counted(evidence, compute.ignored_s)
    return share * _computing(evidence) if share >= LEAST_IGNORED else 0.0


def _of_counted(evidence: Evidence, seconds: float) -> float:
    """The share that some have of all seconds of the counted step's operators; 0 where none were counted."""
    counted = evidence.compute.counted_s
    return min(1.0, seconds / counted) if counted else 0.0


def sliced_seconds(evidence: Evidence) -> float:
    """Seconds of a step in gradients of slices, each as large as what it is a slice of."""
    return _of_counted(evidence, evidence.compute.sliced_s) * compute_cost(evidence)


def double_seconds(evidence: Evidence) -> tuple[float, float, float]:
    """Seconds of a step that float64 costs in a part of a model: at the least, usually, at the most."""
    compute = evidence.compute
    if compute.dtype == "float64":
        return 0.0, 0.0, 0.0
    seconds = _of_counted(evidence, compute.double_s) * compute_cost(evidence)
    spared = compute.double_spared
    parts = DOUBLE if spared is None else (0.7 * spared, spared, min(1.0, 1.15 * spared))
    least, usual, most = (part * seconds for part in parts)
    return least, usual, most


def cost_by_arm(evidence: Evidence, name: str) -> Cost | None:
    """What an arm did without; None where it was not tried, and nothing else tells."""
    arm = evidence.arm(name)
    if arm is None and name == KEPT:
        return _recomputing(evidence)
    return spared_by(evidence, arm) if arm is not None else None


def _recomputing(evidence: Evidence) -> Cost | None:
    """What activations that are computed twice take, by their first time, where memory has room for them."""
    compute, taken = evidence.compute, evidence.all_kept_bytes
    if compute.recomputed_where is None or taken is None or not compute.counted_s:
        return None
    if taken > ROOMY * (evidence.memory.limit_bytes or 0):
        return None
    seconds = _of_counted(evidence, compute.recomputed_s) * _computing(evidence)
    return of_step(evidence, seconds, 0.6 * seconds, 1.2 * seconds, "predicted")


def _held_up_seconds(evidence: Evidence) -> float:
    """Seconds of a step's computing in which threads wait for one whose core another program holds.

    What one thread that waits for none takes is the most that the operations take by themselves.
    """
    alone = evidence.arm(ONE_THREAD)
    return max(0.0, _computing(evidence) - alone.seconds) if alone is not None else 0.0


def _computing(evidence: Evidence) -> float:
    compute, steps = evidence.compute, evidence.steps
    clocked = compute.clocked_s - exchange_seconds(evidence)
    beside = 0.0 if evidence.input.workers else evidence.input.wait_s
    return min(clocked, max(0.0, steps.mean_s - beside)) if steps.mean_s else clocked


def one_call(evidence: Evidence) -> float:
    """Seconds that a tiny operator takes on this machine."""
    ceilings = evidence.machine.ceilings
    return ceilings.dispatch_s if ceilings is not None and ceilings.dispatch_s else 10e-6


def dispatch_seconds(evidence: Evidence) -> tuple[float, float, float]:
    """Fixed cost of a step that no batch size changes: framework overhead of many small operators.

    The intercept of time over batch size where half and double batches were tried; it cannot be
    more than the operators' number allows at this machine's cost of one.
    """
    compute = evidence.compute
    one = one_call(evidence)
    by_hand = compute.by_hand
    updating = updating_operators(compute) if by_hand is None else by_hand.operators
    tiny = (left_share(evidence) * compute.operations + updating) * one
    whole = compute_cost(evidence)
    most = MOST_DISPATCH * whole
    if calls_by_rows(compute):
        calling = min(calling_seconds(evidence), most)
        return calling, min(tiny, calling), whole
    if compute.fixed is None:
        if compute.device != "cpu":
            return 0.0, 0.0, 0.0  # launching may hide behind what was launched before
        if calling := min(calling_seconds(evidence), most):
            # Within a tenth of what batches of several sizes tell, where both are known.
            return calling, 0.5 * calling, min(1.2 * calling, whole)
        guess = min(CALL_OVER_TINY * tiny, most)
        return guess, 0.3 * guess, min(2 * guess, whole)
    if compute.operations:
        most = min(most, MOST_OVER_TINY * tiny)
    fixed, low, high = (min(share * compute.clocked_s, most) for share in compute.fixed)
    return fixed, min(low, fixed), max(high, fixed)


def calls_by_rows(compute: Compute) -> bool:
    """Whether most calls come with the rows of a batch, on a device that waits for each."""
    return compute.device == "cpu" and compute.called_by_rows > BY_ROWS


def calling_seconds(evidence: Evidence) -> float:
    """What calling a step's operators costs: what each took beyond its work at the machine's ceiling.

    Not more a call than `MOST_OVER_TINY` allows: the rest is work that runs below the ceiling.
    """
    compute, ceilings = evidence.compute, evidence.machine.ceilings
    counted = compute.counted_s
    if ceilings is None or not counted:
        return 0.0
    flops = ceilings.matmul_flops.get(compute.products or "float32", math.inf)
    calls = 0.0
    for each in compute.spent:
        work = each.flops / flops + each.moved_bytes / (ceilings.memory_bytes_s or math.inf)
        beyond = max(0.0, each.seconds / each.calls - work)
        calls += each.calls * min(beyond, MOST_OVER_TINY * one_call(evidence))
    return calls / counted * compute_cost(evidence)


def updating_operators(compute: Compute) -> float:
    """Of an optimizer of torch's in a step: some for each tensor, or hardly any for all at once."""
    return 0.0 if compute.fused or compute.foreach else compute.tensors * 8 / 3


def beyond_least(evidence: Evidence) -> float:
    """Share of a step's operators that a model with so many parameters can do without."""
    compute = evidence.compute
    updating = updating_operators(compute) if compute.by_hand is None else 0.0
    return max(0.0, 1 - (compute.tensors + LEAST_OPERATORS) / (compute.operations + updating + 1))


def by_hand_seconds(evidence: Evidence) -> float:
    """What changing parameters tensor by tensor costs in calls; more than that is arithmetic."""
    by_hand = evidence.compute.by_hand
    if by_hand is None:
        return 0.0
    return min(by_hand.seconds, MOST_OVER_TINY * by_hand.operators * one_call(evidence))


def moving_seconds(evidence: Evidence) -> float:
    """Seconds a step in which element-wise operators move more than any cache holds.

    As long as they took in the counted step, and what giving their memory back takes after them: what
    the operators' own times leave of a step, as far as filling so many pages takes as long. On a GPU,
    where operators are only launched, the bytes over the machine's bandwidth of all that take longer to
    move them than to compute.
    """
    compute, most = evidence.compute, compute_cost(evidence)
    if compute.device != "cpu" or not compute.moving_s:
        return min(most, at_bandwidth(evidence) or 0.0)
    counted = compute.counted_s
    untouched = evidence.untouched * compute.updating_moving_s  # has a finding of its own
    moving = (compute.moving_s - untouched) * min(1.0, most / counted)
    fresh = compute.fresh_bytes / PAGE / compute.page_faults if compute.page_faults else 0.0
    returned = min(max(0.0, most - counted), min(1.0, fresh) * evidence.paging_s)
    return min(most, moving + returned)


def untouched_seconds(evidence: Evidence) -> float:
    """Seconds a step for rows of embeddings that it looks up none of: their gradients, and their update.

    In proportion to their share of all parameters, and of the dense gradients of embeddings. None on a GPU,
    where all of it is only launched.
    """
    compute = evidence.compute
    if compute.device != "cpu":
        return 0.0
    made = sum(each.seconds for each in compute.spent if each.name in DENSE_GRADIENTS)
    return evidence.untouched * min(compute_cost(evidence), compute.optimizer_s + made)


def updating_seconds(evidence: Evidence) -> float:
    """Seconds a step in the optimizer, less moving memory and stepping untouched rows; none on a GPU."""
    compute = evidence.compute
    if compute.device != "cpu":
        return 0.0
    touched = 1.0 - evidence.untouched
    return max(0.0, touched * (compute.optimizer_s - compute.updating_moving_s))


def at_bandwidth(evidence: Evidence) -> float | None:
    """Seconds a step for the bytes of `moving_seconds` at the machine's bandwidth; None: not known."""
    ceilings, compute = evidence.machine.ceilings, evidence.compute
    if ceilings is None or not ceilings.memory_bytes_s:
        return None
    if compute.device == "cpu":
        return compute.moved_bytes / ceilings.memory_bytes_s
    best = best_products(evidence)
    return sum(
        each.calls * each.moved_bytes / ceilings.memory_bytes_s
        for each in compute.spent
        if each.moved_bytes > GPU_CACHE
        and each.moved_bytes * best >= each.flops * ceilings.memory_bytes_s
    )


def ceiling_seconds(evidence: Evidence) -> float:
    """Seconds for the step's FLOPs at the machine's best matrix product in the model's dtype.

    0 where either is not known. Products of float32 on a GPU may be made in TF32, which is the faster.
    """
    best = best_products(evidence)
    return left_share(evidence) * evidence.compute.flops / best if best else 0.0


def products_seconds(evidence: Evidence) -> float:
    """Seconds a step in matrix products and convolutions, as their share of the counted step's operators.

    All of its computing on a GPU, where operators are only launched, or where none were counted.
    """
    compute, total = evidence.compute, compute_cost(evidence)
    if compute.device != "cpu" or not compute.counted_s:
        return total
    products = sum(each.seconds for each in compute.spent if each.flops)
    return products * min(1.0, total / compute.counted_s)


def others_at_bandwidth(evidence: Evidence) -> float:
    """Seconds a step for what all other operators move, at the machine's bandwidth, but for those of
    `moving_seconds`; as long as they take where it is not known.
    """
    ceilings, compute = evidence.machine.ceilings, evidence.compute
    others = [each for each in compute.spent if not each.flops]
    seconds = sum(each.seconds for each in others)
    if ceilings is not None and ceilings.memory_bytes_s:
        at_best = (each.calls * each.moved_bytes / ceilings.memory_bytes_s for each in others)
        seconds = sum(map(min, at_best, (each.seconds for each in others)))
    least = max(0.0, seconds - (at_bandwidth(evidence) or 0.0))
    return least * min(1.0, compute_cost(evidence) / (compute.counted_s or 1.0))


def best_products(evidence: Evidence) -> float:
    """FLOP/s of the machine's best matrix product in the model's dtype; 0: not known."""
    own = evidence.compute.products
    formats = (own,) if own is not None else ("float32", "tf32")
    return max(evidence.machine.products.get(each, 0.0) for each in formats)
