"""Evidence as diagnosing some trainings would give it, by the name of the training."""

from __future__ import annotations

import msgspec

from outpace.records.arm import Arm
from outpace.records.compute import Compute
from outpace.records.evidence import Evidence, Steps, Sync
from outpace.records.gain import Gain
from outpace.records.input import Images, Input
from outpace.records.ledger import Row
from outpace.records.machine import Accelerator, Ceilings, Machine
from outpace.records.memory import ByKind, Memory
from outpace.records.run import Run

GIB = 2**30
CPU = Machine(
    "two-cores",
    "Linux",
    "some CPU",
    2,
    24 * GIB,
    ceilings=Ceilings({"float32": 2e11, "bfloat16": 5e11}, 2e10, 1e9, 1e8, 8e-6),
)
GPU = msgspec.structs.replace(
    CPU,
    fingerprint="one-gpu",
    cores=16,
    accelerators=(Accelerator("some GPU", 16 * GIB),),
    ceilings=Ceilings({"float32": 1e13, "float16": 8e13}, 9e11, 1e9, 1e8, 8e-6, "cuda"),
)
EMPTY = Evidence(machine=Machine("", "", "", 0, 0))
MEMORY = Memory(int(1.2 * GIB), ByKind(activations=GIB), 24 * GIB, GIB)
FULL = Memory(23 * GIB, ByKind(activations=20 * GIB), 24 * GIB, GIB)


def arm(name: str, speedup: float, seconds: float, base: str = "input_free") -> Arm:
    gain = Gain(speedup, speedup * 0.97, speedup * 1.03, "measured")
    return Arm(name, 12, seconds, 1.6 * seconds, gain, gain, None, base)


IMAGES = Evidence(
    machine=CPU,
    run=Run(120.0, 4.0, False, 2000, 600.0),
    steps=Steps(60, 0.31, 0.32, 0.5, 200.0, 64, 1, "optimizer"),
    ledger=(
        Row("startup", 4.0, 0.01),
        Row("input", 400.0, 0.66),
        Row("forward", 80.0, 0.13),
        Row("validation", 110.0, 0.18, "train.py:97"),
        Row("checkpoint", 6.0, 0.02, "train.py:154"),
    ),
    input=Input(
        kind="loader",
        where="train.py:138",
        batch_size=64,
        batches=71,
        samples=4500,
        epochs=5,
        wait_s=0.22,
        fetch_s=0.22,
        fetch_cpu_s=0.21,
        collate_s=0.004,
        decode_s=0.15,
        sample_bytes=49_160,
        deterministic=False,
        random_streams=("python",),
        sliceable=False,
        why_not_sliceable="samples are random",
        images=Images(
            *(0.0025, 1.0, 150_000.0, True, 1.9, 1e-4, 2e-4, 16),
            scaled_share=1.0,
            scaled_saves_s=0.0015,
            scaled_levels=9,
        ),
    ),
    compute=Compute(
        forward_s=0.04,
        backward_s=0.05,
        optimizer_s=0.004,
        threads=1,
        parameters=400_000,
        tensors=40,
        convolutions=9,
        batch_norms=9,
        batch_norm_training=True,
        optimizer="SGD",
        operations=60,
        fixed=(0.01 / 0.094, 0.0, 0.01 / 0.094),
        page_faults=9_000.0,
        system_s=0.018,
        root="ResNet",
        where="train.py:153",
        eval_with_grad=0.5,
        eval_where="train.py:98",
    ),
    syncs=(Sync("item", 1.0, 1e-5, "train.py:156"),),
    memory=MEMORY,
    arms=(
        arm("input_free", 3.2, 0.1, "as_is"),
        arm("bf16", 1.8, 0.055),
        arm("channels_last", 1.2, 0.083),
        arm("threads_2", 1.4, 0.07),
        arm("fused_optimizer", 1.02, 0.098),
    ),
)
replace = msgspec.structs.replace
FIXED_IMAGES = replace(
    IMAGES,
    input=replace(IMAGES.input, deterministic=True, random_streams=(), cached_s=0.002),
    memory=FULL,
)
ROWS = replace(
    IMAGES,
    input=Input(
        kind="loader",
        where="train.py:97",
        batch_size=32,
        batches=6,
        samples=192,
        epochs=2,
        wait_s=0.04,
        fetch_s=0.04,
        fetch_cpu_s=0.02,
        collate_s=0.01,
        storage_s=0.02,
        sample_bytes=40,
        deterministic=True,
        step_streams=("torch",),
        sliceable=True,
        slice_s=0.0004,
        cached_s=0.0003,
    ),
    compute=replace(
        IMAGES.compute,
        convolutions=0,
        batch_norm_training=False,
        optimizer="AdamW",
        set_to_none=False,
        anomaly_detection=True,
        denormals=0.01,
        eval_with_grad=0.0,
    ),
    memory=FULL,
    run=replace(IMAGES.run, estimated_s=5000.0),
)
WORKERS = replace(
    ROWS,
    input=replace(
        ROWS.input,
        workers=1,
        prefetch_factor=2,
        epoch_start_s=0.1,
        sliceable=False,
        why_not_sliceable="a slice differs from the collated items",
        cached_s=None,
    ),
)
CROWDED = replace(WORKERS, compute=replace(WORKERS.compute, threads=2))
TEXT = replace(
    IMAGES,
    input=Input(kind="lines", where="train.py:133", batch_size=16, wait_s=0.002, fetch_s=0.002),
    compute=replace(IMAGES.compute, convolutions=0, optimizer="NAdam", where="train.py:106"),
)
ON_GPU = replace(
    IMAGES,
    machine=GPU,
    input=replace(IMAGES.input, workers=4, prefetch_factor=2),
    compute=replace(IMAGES.compute, device="cuda"),
    arms=(*IMAGES.arms, arm("transfer_free", 1.3, 0.08), arm("sync_free", 1.1, 0.09)),
)
HALF = replace(IMAGES, compute=replace(IMAGES.compute, autocast="bfloat16"))
RECOMPUTED = replace(
    IMAGES,
    compute=replace(
        IMAGES.compute, recomputed_where="train.py:9", recomputed_bytes=2.0 * GIB, unused=6
    ),
)
BY_HAND = replace(IMAGES, compute=Compute(threads=2, root="Net"), arms=(), input=Input())
ALL = {
    "empty": EMPTY,
    "images": IMAGES,
    "fixed_images": FIXED_IMAGES,
    "rows": ROWS,
    "workers": WORKERS,
    "crowded": CROWDED,
    "text": TEXT,
    "gpu": ON_GPU,
    "by_hand": BY_HAND,
    "half": HALF,
    "recomputed": RECOMPUTED,
}
