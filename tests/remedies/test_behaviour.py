"""What remedies do to a training: the same bits, or close; and nothing is left when they go."""

from __future__ import annotations

import math
import multiprocessing
import random
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFile
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

from outpace.remedies.base import Remedy
from outpace.remedies.catalog import all_remedies
from outpace.seams.setup import AS_IS, Setup
from tests.remedies.some_evidence import ALL
from tests.remedies.trainings import MAKERS, Result, hosted, train, trained

TOLERANCE = {"bf16": 0.05, "channels_last": 1e-3, "threads": 1e-3}
SLOW = {"compile_model"}


def cases(keeps: tuple[str, ...]) -> Iterator[Any]:
    """Remedies that run in this process, with the trainings that they apply to."""
    for kind in all_remedies():
        one = kind()
        for name in MAKERS:
            evidence = ALL[name]
            applied = one.setup(AS_IS, one.settings(evidence))
            if not one.applies(evidence).yes or not applied.in_process or kind.advice_only:
                continue
            if one.kept(evidence) in keeps:
                marks = [pytest.mark.slow] if kind.name in SLOW else []
                yield pytest.param(one, name, id=f"{kind.name}-{name}", marks=marks)


def setup_for(remedy: Remedy, name: str, base: Setup = AS_IS) -> Setup:
    return remedy.setup(base, remedy.settings(ALL[name]))


def by_name(name: str) -> Remedy:
    return next(kind for kind in all_remedies() if kind.name == name)()


@pytest.mark.parametrize("kind", sorted(MAKERS))
def test_watching_keeps_every_bit(kind: str, pictures: Path, plain: dict[str, Result]) -> None:
    assert trained(kind, pictures, AS_IS).equals(plain[kind])


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("exact",))))
def test_exact_remedies_keep_every_bit(
    remedy: Remedy, kind: str, pictures: Path, plain: dict[str, Result]
) -> None:
    assert trained(kind, pictures, setup_for(remedy, kind)).equals(plain[kind])


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("numerics",))))
def test_others_come_close(
    remedy: Remedy, kind: str, pictures: Path, plain: dict[str, Result]
) -> None:
    result = trained(kind, pictures, setup_for(remedy, kind))
    assert len(result.losses) == len(plain[kind].losses)
    assert all(map(math.isfinite, result.losses))
    if remedy.name in ("loader_workers", "fetch_threads", "prefetch", "compile_model"):
        return  # Other random numbers: another path to the same quality.
    allowed = TOLERANCE.get(remedy.name, 1e-2)
    for one, other in zip(result.losses, plain[kind].losses, strict=True):
        assert one == pytest.approx(other, rel=allowed, abs=allowed)


def test_exact_remedies_were_tried() -> None:
    tried = {case.values[0].name for case in cases(("exact",))}
    assert tried >= {
        *("slice_batches", "cache_samples", "decode_jpeg", "cache_decoded", "prefetch"),
        *("fetch_threads", "loader_workers", "persistent_workers", "checkpoint_activations"),
    }


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("images", ["decode_jpeg", "cache_decoded", "prefetch"]),
        ("fixed_images", ["decode_jpeg", "cache_samples", "prefetch"]),
        ("fixed_images", ["decode_jpeg", "cache_decoded", "fetch_threads"]),
        ("fixed_images", ["cache_decoded", "loader_workers"]),
        ("rows", ["slice_batches", "prefetch"]),
        ("rows", ["prefetch", "slice_batches"]),
        ("rows", ["fetch_threads", "cache_samples"]),
        ("rows", ["cache_samples", "loader_workers"]),
    ],
)
def test_exact_remedies_stay_exact_together(
    kind: str, names: list[str], pictures: Path, plain: dict[str, Result]
) -> None:
    setup = AS_IS
    for name in names:
        setup = setup_for(by_name(name), kind, setup)
    assert trained(kind, pictures, setup).equals(plain[kind])


# --- undoing -----------------------------------------------------------------------------------


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """All that a remedy may have changed and must give back."""
    return {
        "threads": torch.get_num_threads(),
        "denormals": float(torch.tensor(1e-39) * torch.tensor(0.5)),
        "anomalies": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn": (torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark),
        "strides": [p.stride() for p in model.parameters()],
        "dtypes": [p.dtype for p in model.parameters()],
        "own attributes": [sorted(m.__dict__) for m in model.modules()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()],
        "groups": [{k: v for k, v in g.items() if k != "params"} for g in optimizer.param_groups],
        "optimizer": [
            (k, v.stride() if isinstance(v, torch.Tensor) else None)
            for p in model.parameters()
            for k, v in sorted(optimizer.state[p].items())
        ],
    }


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("exact", "numerics"))))
def test_going_back_restores_the_training(remedy: Remedy, kind: str, pictures: Path) -> None:
    setup = setup_for(remedy, kind)
    states: dict[int, dict[str, Any]] = {}
    with hosted() as host:

        def on_step(step: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
            if step == 2:
                states[2] = state_of(model, optimizer)
                host.switch(setup)
            if step == 4:
                host.switch(AS_IS)
                states[4] = state_of(model, optimizer)

        train(kind, pictures, on_step)
        assert not host.broken
    assert states[4] == states[2]


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("exact", "numerics"))))
def test_there_and_back_between_two_steps_changes_no_bit(
    remedy: Remedy, kind: str, pictures: Path, plain: dict[str, Result]
) -> None:
    setup = setup_for(remedy, kind)
    with hosted() as host:

        def on_step(step: int, *_: Any) -> None:
            if step == 2:
                host.switch(setup)
                host.switch(AS_IS)

        assert train(kind, pictures, on_step).equals(plain[kind])
        assert not host.broken


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("exact",))))
def test_exact_remedies_may_come_and_go(
    remedy: Remedy, kind: str, pictures: Path, plain: dict[str, Result]
) -> None:
    """Batches change their maker at an epoch's start, all else at once: no bit differs."""
    setup = setup_for(remedy, kind)
    with hosted(setup) as host:

        def on_step(step: int, *_: Any) -> None:
            host.switch(AS_IS if step % 2 else setup)

        assert train(kind, pictures, on_step).equals(plain[kind])
        assert not host.broken


def patched_places() -> list[Any]:
    """Everything that seams replace."""
    return [
        *(DataLoader.__init__, DataLoader.__iter__, _BaseDataLoaderIter.__next__),
        *(nn.Module.__call__, torch.autograd.backward, torch.optim.Optimizer.zero_grad),
        *(torch.Tensor.to, torch.Tensor.item, torch.Tensor.__dict__.get("item"), torch.save),
        *(ImageFile.ImageFile.load, Image.open, torch.cuda.synchronize),
        *(random.seed, np.random.seed, np.random.default_rng, torch.manual_seed),
    ]


def test_the_seams_leave_torch_as_they_found_it(pictures: Path) -> None:
    before = patched_places()
    for name in ("decode_jpeg", "bf16", "fetch_threads"):
        trained("fixed_images", pictures, setup_for(by_name(name), "fixed_images"))
    after = patched_places()
    assert all(one == other for one, other in zip(before, after, strict=True))


def test_a_loop_that_leaves_early_is_served_again(pictures: Path) -> None:
    """No two threads draw from one data set at once, and no batch of the old epoch comes again."""
    from tests.remedies.trainings import Rows

    data = Rows(64)
    setup = replace(AS_IS, feed=replace(AS_IS.feed, executor="ahead", prefetch=2))
    with hosted(setup):
        loader = DataLoader(data, batch_size=8)
        for _ in range(5):
            for index, (x, _) in enumerate(loader):
                assert torch.equal(x, torch.tensor(data.x[8 * index : 8 * index + 8]))
                if index == 3:
                    break


def test_what_a_data_set_raises_is_raised_in_the_loop() -> None:
    class Broken(list[int]):
        def __getitem__(self, index: Any) -> Any:
            if index == 5:
                raise RuntimeError("sample 5 is broken")
            return torch.tensor(float(index))

    for executor in ("inline", "ahead", "threads"):
        feed = replace(AS_IS.feed, executor=executor, workers=4)  # type: ignore[arg-type]
        with hosted(replace(AS_IS, feed=feed)):
            loader: Any = DataLoader(Broken(range(8)), batch_size=2)  # type: ignore[arg-type]
            with pytest.raises(RuntimeError, match="sample 5 is broken"):
                list(loader)


def our_threads() -> list[str]:
    """Threads that work for an arm; the compiler keeps one of its own for good."""
    return [t.name for t in threading.enumerate() if t.name.startswith("outpace")]


@pytest.mark.parametrize(("remedy", "kind"), list(cases(("exact", "numerics"))))
def test_arms_alternate_inside_of_an_epoch(remedy: Remedy, kind: str, pictures: Path) -> None:
    """Epochs keep their length, and what worked for an arm is over in the end."""
    setup = setup_for(remedy, kind)
    free = replace(AS_IS, free_input=True)
    others = set(multiprocessing.active_children())
    with hosted(switching=True) as host:

        def on_step(step: int, *_: Any) -> None:
            host.switch((AS_IS, setup, free)[step // 2 % 3])

        result = train(kind, pictures, on_step)
        assert not host.broken
        steps = 2 * (6 if kind in ("rows", "workers") else 4)
        assert len(result.losses) == host.steps == steps
    assert all(map(math.isfinite, result.losses))
    for _ in range(50):
        if not our_threads():
            break
        time.sleep(0.1)
    assert not our_threads()
    assert not any(p.is_alive() for p in set(multiprocessing.active_children()) - others)
