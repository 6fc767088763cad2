"""A step's peak is the allocator's, and what is in it is told apart by kind."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from outpace.measure.memory import StepMemory

MB = 1_000_000


def allocated_at_the_peak(step: Callable[[], Any]) -> int:
    """The allocator's peak above the state at entry, from the profiler's memory events."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    now = peak = 0
    events = profiled.profiler.kineto_results.events()
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        now += event.nbytes()
        peak = max(peak, now)
    return peak


def mlp(width: int = 512, batch: int = 1024) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width), nn.Linear(width, width)
    )
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.randn(batch, width)

    def step() -> None:
        model(rows).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return model, optimizer, step


def test_the_peak_is_the_allocators() -> None:
    model, optimizer, step = mlp()
    truth = allocated_at_the_peak(step)
    with StepMemory([model], [optimizer]) as memory:
        step()
    assert memory.failure is None
    assert memory.peak_bytes == pytest.approx(truth, rel=0.01)


def test_kinds_add_up_and_are_what_the_model_holds() -> None:
    model, optimizer, step = mlp()
    with StepMemory([model], [optimizer]) as memory:
        step()
    weights = sum(weight.nbytes for weight in model.parameters())
    kinds = memory.by_kind()
    assert kinds.parameters == weights
    assert kinds.optimizer == pytest.approx(2 * weights, rel=0.01)
    assert kinds.activations + kinds.temporaries + kinds.gradients == pytest.approx(
        memory.peak_bytes, rel=0.01
    )
    assert kinds.other == 1024 * 512 * 4, "the batch, which was made before the step"
    assert memory.saved_bytes == pytest.approx(4 * 1024 * 512 * 4, rel=0.05)


def test_gradients_that_outlive_a_step_are_told_from_temporaries() -> None:
    model = nn.Linear(1000, 1000)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with StepMemory([model], [optimizer]) as memory:
        model(torch.randn(2, 1000)).sum().backward()
        optimizer.step()
    assert memory.by_kind().gradients == 1000 * 1001 * 4


def test_gradients_freed_at_the_begin_of_a_step_make_room() -> None:
    model = nn.Linear(1000, 1000)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step() -> None:
        optimizer.zero_grad()
        model(torch.randn(2, 1000)).sum().backward()
        optimizer.step()

    step()
    with StepMemory([model], [optimizer]) as memory:
        step()
    assert memory.peak_bytes < MB
    assert memory.by_kind().gradients == pytest.approx(4 * MB, rel=0.01)


def test_the_first_step_makes_the_optimizers_state() -> None:
    model = nn.Linear(1000, 1000)
    optimizer = torch.optim.AdamW(model.parameters())
    with StepMemory([model], [optimizer]) as memory:
        model(torch.randn(2, 1000)).sum().backward()
        optimizer.step()
    assert memory.by_kind().optimizer == pytest.approx(8 * MB, rel=0.01)


def test_checkpointing_shows() -> None:
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(256, 256) for _ in range(8)])
    rows = torch.randn(2048, 256, requires_grad=True)
    saved = []
    for again in (False, True):
        with StepMemory([layers]) as memory:
            hidden = rows
            for layer in layers:
                function = nn.Sequential(layer, nn.GELU())
                hidden = (
                    torch.utils.checkpoint.checkpoint(function, hidden, use_reentrant=False)
                    if again
                    else function(hidden)
                )
            hidden.sum().backward()
        saved.append(memory.saved_bytes)
    assert saved[1] < 0.7 * saved[0]


def test_memory_that_grows_in_place_counts() -> None:
    with StepMemory() as memory:
        block = torch.empty(0)
        block.resize_(MB)
    assert memory.peak_bytes == 4 * MB


def test_nothing_is_kept_alive() -> None:
    model, optimizer, step = mlp(64, 64)
    with StepMemory([model], [optimizer]) as memory:
        step()
        kept = weakref.ref(torch.ones(3).untyped_storage())
    gone = weakref.ref(model)
    del model, optimizer, step
    gc.collect()
    assert kept() is None
    assert gone() is None
    assert memory.by_kind().parameters > 0


def test_sparse_and_meta_tensors_are_passed_over() -> None:
    with StepMemory() as memory:
        torch.eye(4).to_sparse()
        torch.empty(10**9, device="meta")
        nn.Embedding(100, 4, sparse=True)(torch.tensor([1, 2])).sum().backward()
    assert memory.failure is None
    assert memory.peak_bytes < MB
