"""Sessions built in code: what reports are tried on."""

from __future__ import annotations

import math

from outpace.records.arm import Arm
from outpace.records.compute import Compute
from outpace.records.evidence import Evidence, Loss, Overhead, Steps, Sync
from outpace.records.finding import Advice, Finding, Learning
from outpace.records.gain import Gain
from outpace.records.input import Images, Input
from outpace.records.ledger import Row
from outpace.records.machine import Accelerator, Ceilings, Machine
from outpace.records.memory import ByKind, Memory
from outpace.records.recipe import Applied, Proven, Recipe
from outpace.records.run import Run
from outpace.records.session import MemorySummary, Session, StepSummary
from outpace.records.target import Target
from outpace.records.trial import Curve, Proof, Trial

MB = 2**20
MACHINE = Machine(
    fingerprint="a1b2c3d4",
    system="Linux 6.8 x86_64",
    cpu="AMD EPYC 9R14",
    cores=2,
    memory_bytes=24 * 2**30,
    python="3.11.7",
    torch="2.13.0",
    ceilings=Ceilings(
        matmul_flops={"float32": 1.84e11, "bfloat16": 6.9e11},
        memory_bytes_s=1.9e10,
        disk_read_bytes_s=2.1e9,
        jpeg_decode_pixels_s=6.1e7,
        dispatch_s=4.1e-6,
    ),
)
TARGET = Target("script", "image_classifier.py", ("--epochs", "2"), "/home/ada/vision")
DIFF = """\
--- image_classifier.py
+++ image_classifier.py
@@ -58,5 +58,6 @@ class Photos(Dataset):
     def __getitem__(self, index):
         path, label = self.items[index]
-        image = Image.open(path).convert("RGB")
+        with open(path, "rb") as file:
+            image = Image.fromarray(simplejpeg.decode_jpeg(file.read()))
         return self.augment(image), label
@@ -101,4 +102,5 @@ def train(args):
-        loss = F.cross_entropy(model(images), labels)
+        with torch.autocast("cpu", dtype=torch.bfloat16):
+            loss = F.cross_entropy(model(images), labels)
         loss.backward()
"""


def measured(speedup: float, low: float, high: float) -> Gain:
    return Gain(speedup, low, high, "measured")


def predicted(speedup: float, low: float, high: float) -> Gain:
    return Gain(speedup, low, high, "predicted")


def ledger(*rows: tuple[str, float, str | None]) -> tuple[Row, ...]:
    total = sum(seconds for _, seconds, _ in rows)
    return tuple(Row(name, seconds, seconds / total, where) for name, seconds, where in rows)


def arm(name: str, seconds: float, wall: Gain, cpu: Gain, failed: str | None = None) -> Arm:
    return Arm(name, 41, seconds, seconds * 1.7, wall, cpu, failed)


def images_evidence() -> Evidence:
    return Evidence(
        machine=MACHINE,
        run=Run(61.4, 3.4, False, 1560, 412.0),
        steps=Steps(212, 0.2313, 0.2391, 0.402, 276.7, 64, 1, "optimizer"),
        ledger=IMAGES_LEDGER,
        input=Input(
            kind="loader",
            where="image_classifier.py:84",
            batch_size=64,
            wait_s=0.161,
            fetch_s=0.158,
            decode_s=0.117,
            images=Images(0.0018, 1.0, 188_000, True, 2.1, files=64),
        ),
        compute=Compute(
            forward_s=0.024,
            backward_s=0.041,
            optimizer_s=0.003,
            threads=2,
            parameters=2_812_554,
            learnt_bytes=4 * 2_812_554,
            tensors=62,
            flops=8.9e9,
            root="ResNet",
            where="image_classifier.py:103",
        ),
        syncs=(Sync("item", 1.0, 0.0001, "image_classifier.py:108"),),
        arms=(
            arm("as_is", 0.2313, measured(1.0, 0.988, 1.011), measured(1.0, 0.992, 1.007)),
            arm("input_free", 0.0702, measured(3.31, 3.18, 3.44), measured(3.02, 2.93, 3.12)),
            arm("sync_free", 0.2309, measured(1.002, 0.989, 1.014), measured(1.0, 0.99, 1.01)),
            arm("batch_half", 0.118, measured(1.96, 1.91, 2.01), measured(1.95, 1.92, 1.99)),
            arm("batch_double", 0.455, measured(0.508, 0.497, 0.519), measured(0.51, 0.5, 0.52)),
            arm("threads_1", 0.262, measured(0.883, 0.861, 0.904), measured(1.12, 1.1, 1.14)),
            arm("seams_off", 0.2299, measured(1.006, 0.994, 1.018), measured(1.009, 1, 1.017)),
            Arm("jemalloc", 0, 0.0, 0.0, Gain(1, 1, 1), Gain(1, 1, 1), "not installed"),
        ),
        memory=Memory(812 * MB, IMAGES_MEMORY.by_kind, 24 * 2**30, 1130 * MB, 812.0, -350.0),
        loss=Loss(tuple(range(64, 64 * 213, 64)), tuple(falling(212, 0))),
        overhead=Overhead(1.006, 1.009),
    )


def falling(steps: int, seed: int, extra: float = 0.0) -> list[float]:
    """A loss that falls with a wiggle; the same for the same arguments."""
    return [
        0.4
        + 2.0 * math.exp(-i / (steps / 3))
        + 0.06 * math.sin(i * 1.7 + seed) * math.sin(i * 0.31 + 2 * seed)
        + extra * math.sin(i * 0.9 + seed)
        for i in range(steps)
    ]


def curves(steps: int = 120) -> tuple[Curve, ...]:
    samples = tuple(range(64, 64 * (steps + 1), 64))
    return tuple(
        Curve(seed, recipe, samples, tuple(falling(steps, seed, 0.02 if recipe else 0.0)))
        for seed in (0, 1, 2)
        for recipe in (False, True)
    )


IMAGES_MEMORY = MemorySummary(
    812 * MB, ByKind(11 * MB, 11 * MB, 22 * MB, 604 * MB, 121 * MB, 43 * MB)
)
IMAGES_LEDGER = ledger(
    ("startup", 3.4, None),
    ("input", 34.1, "/home/ada/vision/image_classifier.py:61"),
    ("transfer", 0.0, None),
    ("forward", 5.1, "/home/ada/vision/image_classifier.py:103"),
    ("backward", 8.7, "/home/ada/vision/image_classifier.py:104"),
    ("optimizer", 0.7, None),
    ("sync", 0.02, "/home/ada/vision/image_classifier.py:108"),
    ("validation", 4.6, "/home/ada/vision/image_classifier.py:121"),
    ("checkpoint", 0.3, "/home/ada/vision/image_classifier.py:130"),
    ("logging", 0.1, None),
    ("elsewhere", 1.2, "/usr/lib/python3.11/site-packages/PIL/ImageFile.py:312"),
)
IMAGES_FINDINGS = (
    Finding(
        "io",
        "parse",
        "/home/ada/vision/image_classifier.py:61",
        0.586,
        measured(3.31, 3.18, 3.44),
        "a step waits 161 ms of 231 ms for its batch; 74 % of fetching a batch is JPEG decoding.",
        (
            Advice("cache_decoded", "exact", predicted(2.45, 2.2, 2.7), "images fit into memory"),
            Advice("decode_jpeg", "exact", predicted(1.44, 1.37, 1.52), "identical on 64 files"),
            Advice("loader_workers", "exact", predicted(1.31, 1.1, 1.5), "2 cores"),
        ),
    ),
    Finding(
        "compute",
        "arithmetic",
        "/home/ada/vision/image_classifier.py:103",
        0.237,
        measured(1.19, 1.14, 1.24),
        "forward and backward take 65 ms of a step, in float32.",
        (
            Advice("bf16", "numerics", predicted(1.14, 1.1, 1.19)),
            Advice("channels_last", "numerics", predicted(1.04, 1.0, 1.08)),
        ),
    ),
    Finding(
        "outside",
        "validation",
        "/home/ada/vision/image_classifier.py:121",
        0.079,
        measured(1.086, 1.08, 1.09),
        "validation keeps gradients: 4.6 s of 58.2 s.",
        (Advice("no_grad_eval", "exact", predicted(1.03, 1.02, 1.04)),),
    ),
)
IMAGES_TRIALS = (
    Trial(
        "cache_decoded",
        {"limit_gib": 4, "where": "memory"},
        "exact",
        predicted(2.45, 2.2, 2.7),
        measured(2.38, 2.29, 2.47),
        True,
        "faster by more than the noise",
        21.0,
    ),
    Trial(
        "bf16",
        {"dtype": "bfloat16"},
        "numerics",
        predicted(1.5, 1.35, 1.66),
        measured(1.41, 1.36, 1.46),
        True,
        "faster by more than the noise",
        17.0,
    ),
    Trial(
        "loader_workers",
        {"workers": 1},
        "exact",
        predicted(1.12, 0.95, 1.3),
        measured(0.91, 0.88, 0.94),
        False,
        "measured slower: two workers and two compute threads share two cores",
        16.0,
    ),
    Trial(
        "channels_last",
        {},
        "numerics",
        predicted(1.06, 1.0, 1.12),
        measured(1.01, 0.98, 1.04),
        False,
        "no gain beyond the noise on top of those accepted",
        14.0,
    ),
    Trial(
        "fused_optimizer",
        {"kind": "fused"},
        "numerics",
        predicted(1.03, 1.01, 1.05),
        measured(1.04, 1.02, 1.06),
        True,
        "faster by more than the noise",
        12.0,
    ),
    Trial(
        "compile_model",
        {"mode": "default"},
        "numerics",
        predicted(1.1, 1.0, 1.22),
        None,
        False,
        "compiling took longer (48 s) than the run would gain (31 s)",
        55.0,
    ),
)
RECIPE = Recipe(
    schema=1,
    target="image_classifier.py --epochs 2",
    outpace="0.1.0",
    python="3.11.7",
    torch="2.13.0",
    machine="AMD EPYC 9R14, 2 cores, 24 GiB",
    fingerprint="a1b2c3d4",
    speedup=measured(3.42, 3.27, 3.58),
    proof=Proven(True, 3, 120, 0.01, 0.95, 0.0056),
    remedies=tuple(
        Applied(t.remedy, t.keeps, t.settings, t.measured, t.reason)
        for t in IMAGES_TRIALS
        if t.accepted
    ),
)


def images_diagnosed() -> Session:
    """A diagnosis of an image classifier that waits for JPEG decoding."""
    return Session(
        outcome="done",
        target=TARGET,
        machine=MACHINE,
        steps=StepSummary(212, 0.2313, 0.402, 276.7),
        ledger=IMAGES_LEDGER,
        bound="io",
        cause="parse",
        findings=IMAGES_FINDINGS,
        learning=(
            Learning(
                "dead units",
                "warn",
                "31 % of layer2's units were zero for every sample seen.",
                "Lower the learning rate or warm it up.",
            ),
        ),
        memory=IMAGES_MEMORY,
        overhead=Overhead(1.006, 1.009),
        notes=("the disk's speed was not measured: the files were in the page cache",),
        exit_code=0,
        command="diagnose",
        started="2026-03-02T09:41:07+00:00",
        seconds=61.4,
        evidence=images_evidence(),
    )


def images_tuned() -> Session:
    """The same script tuned, proven and with a recipe."""
    from msgspec.structs import replace

    return replace(
        images_diagnosed(),
        command="tune",
        seconds=431.0,
        trials=IMAGES_TRIALS,
        proof=Proof(True, True, 3, 120, 0.01, 0.95, 0.0012, 0.0056, "loss", "", curves()),
        speedup=measured(3.42, 3.27, 3.58),
        recipe="/home/ada/vision/outpace.toml",
        recipe_record=RECIPE,
        diff=DIFF,
    )


def quiet(**changes: object) -> Session:
    """A session in which nothing was found."""
    fields: dict[str, object] = {
        "outcome": "done",
        "target": Target("script", "train.py"),
        "machine": MACHINE,
        "steps": StepSummary(480, 0.061, 0.118, 1050.0),
        "ledger": ledger(("startup", 2.0, None), ("forward", 9.0, None), ("backward", 20.3, None)),
        "bound": "none",
        "cause": None,
        "findings": (),
        "memory": MemorySummary(0, ByKind()),
        "overhead": Overhead(0.998, 1.003),
        "command": "diagnose",
        "started": "2026-03-02T09:41:07+00:00",
        "seconds": 34.0,
        "evidence": Evidence(
            machine=MACHINE,
            compute=Compute(flops=7.1e9),
            arms=(arm("seams_off", 0.061, measured(1.0, 0.99, 1.01), measured(1.0, 0.99, 1.01)),),
        ),
    }
    return Session(**{**fields, **changes})  # type: ignore[arg-type]


def no_training() -> Session:
    """A script that ended without a step."""
    return quiet(
        outcome="no training",
        steps=StepSummary(0, 0.0, 0.0, 0.0),
        ledger=(),
        overhead=None,
        evidence=Evidence(machine=MACHINE),
        exit_code=0,
    )


def failed() -> Session:
    """A script that raised after seven steps."""
    return quiet(
        outcome="failed",
        target=Target("module", "pkg.train", ("--lr", "1e-3")),
        steps=StepSummary(7, 0.061, 0.118, 1050.0),
        exit_code=1,
    )


NAN, INF = math.nan, math.inf
EVIL = "/tmp/<script>alert('x')</script>&\"\x1b[31m\n[bold]é" + "long/" * 40 + "t.py:7"


def nasty() -> Session:
    """Not-a-numbers, infinities, one step, huge figures, and text that tries to be code."""
    gain = Gain(INF, NAN, INF, "measured")
    trials = (
        Trial(EVIL, {EVIL: EVIL}, "learning", Gain(NAN, NAN, NAN), None, False, EVIL, NAN),
        Trial("z", {"a": INF}, "exact", Gain(0.0, -1.0, 1e300), gain, True, "", -5.0),
    )
    proof = Proof(
        True,
        False,
        1,
        1,
        NAN,
        INF,
        NAN,
        INF,
        EVIL,
        EVIL,
        (
            Curve(0, False, (1,), (NAN,)),
            Curve(0, True, (1, 2, 3), (1e300, NAN, -1e300)),
            Curve(7, True, (), (), {EVIL: NAN}),
            Curve(8, True, (10**18,), (1.0,)),
        ),
    )
    machine = Machine(EVIL, EVIL, EVIL, 10**6, 2**70, (Accelerator(EVIL, 2**60),), EVIL, EVIL)
    return quiet(
        target=Target("command", "torchrun", ("--nproc-per-node", "2", EVIL), "/tmp"),
        machine=machine,
        steps=StepSummary(1, INF, NAN, 1e300),
        ledger=(Row("input", NAN, NAN, EVIL), Row(EVIL, INF, 1.0), Row("forward", 1e300, -1.0)),
        bound="io",
        cause="storage",
        findings=(
            Finding("io", "storage", EVIL, NAN, gain, EVIL, (Advice(EVIL, "exact", gain, EVIL),)),
        ),
        learning=(Learning(EVIL, "critical", EVIL, EVIL),),
        memory=MemorySummary(2**80, ByKind(2**79, -5, 0, 2**79, 0, 0)),
        overhead=Overhead(NAN, INF),
        notes=(EVIL, "<img src=https://example.org/x.png onerror=alert(1)>"),
        exit_code=-11,
        command="tune",
        seconds=NAN,
        trials=trials,
        proof=proof,
        speedup=gain,
        recipe=EVIL,
        recipe_record=Recipe(1, EVIL, EVIL, EVIL, EVIL, EVIL, EVIL, gain, None, ()),
        diff=f"--- {EVIL}\n+<b>\n</pre></details>\n",
        evidence=Evidence(
            machine=machine,
            arms=(Arm(EVIL, 0, NAN, INF, gain, Gain(-1.0, 0.0, 0.0)),),
            compute=Compute(flops=INF),
            loss=Loss((1, 2), (NAN, INF), 1),
            memory=Memory(2**80, ByKind(), 0, -1, INF, NAN),
            syncs=(Sync(EVIL, INF, NAN, EVIL),),
        ),
    )
