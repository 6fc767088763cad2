"""Ceilings are measured once, kept, and measured again where the file or the moment was bad."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace

from outpace.measure import ceilings as module
from outpace.measure import peaks
from outpace.measure.ceilings import best_of, ceilings
from outpace.measure.peaks import Measured
from outpace.records.machine import Ceilings, Machine

MACHINE = Machine("abc", "Linux", "cpu", 2, 1 << 30)
GOOD = Ceilings({"float32": 2e11}, 3e10, 1e9, 2e8, 5e-6)
POOR = Ceilings({"float32": 1e11, "bfloat16": 4e11}, 4e10, 0.0, 1e8, 9e-6)


class Children:
    """Stands for the child process: gives prepared results, and counts."""

    def __init__(self, *results: Measured) -> None:
        self.results = list(results)
        self.started = 0

    def __call__(self) -> Measured:
        self.started += 1
        return self.results.pop(0)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "outpace"


def measured_by(monkeypatch: pytest.MonkeyPatch, *results: Measured) -> Children:
    children = Children(*results)
    monkeypatch.setattr(module, "_measure_in_child", children)
    return children


@pytest.mark.usefixtures("cache")
def test_measured_once_for_a_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    children = measured_by(monkeypatch, Measured(GOOD, quiet=True))
    assert ceilings(MACHINE) == ceilings(MACHINE) == GOOD
    assert children.started == 1


@pytest.mark.parametrize("damage", ["", "{", '{"version": 1', '{"version":0,"fingerprint":"abc"}'])
def test_a_broken_or_old_file_is_measured_anew(
    monkeypatch: pytest.MonkeyPatch, cache: Path, damage: str
) -> None:
    cache.mkdir()
    file = cache / "ceilings-abc.json"
    file.write_text(damage)
    measured_by(monkeypatch, Measured(GOOD, quiet=True))
    assert ceilings(MACHINE) == GOOD
    assert ceilings(MACHINE) == GOOD


@pytest.mark.usefixtures("cache")
def test_beside_busy_neighbours_the_better_figures_of_several_sessions_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = measured_by(monkeypatch, Measured(POOR), Measured(GOOD, quiet=True))
    assert ceilings(MACHINE) == POOR
    both = Ceilings({"float32": 2e11, "bfloat16": 4e11}, 4e10, 1e9, 2e8, 5e-6)
    assert ceilings(MACHINE) == ceilings(MACHINE) == both == best_of(GOOD, POOR)
    assert children.started == 2


@pytest.mark.usefixtures("cache")
def test_a_machine_that_is_never_quiet_is_not_measured_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    children = measured_by(monkeypatch, *[Measured(POOR)] * module.MOST_TRIES)
    assert {repr(ceilings(MACHINE)) for _ in range(9)} == {repr(POOR)}
    assert children.started == module.MOST_TRIES


def test_the_ceilings_of_a_gpu_are_none_of_a_training_on_the_cpu() -> None:
    machine = replace(MACHINE, ceilings=replace(GOOD, device="cuda"))
    assert machine.training_on("cuda") == machine
    assert machine.training_on("cpu").ceilings == Ceilings({}, 0.0, 1e9, 2e8, 0.0)


def test_a_child_that_fails_costs_only_the_figures(
    monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    assert ceilings(MACHINE) == Ceilings()
    assert not list(cache.glob("ceilings-*"))


def test_figures_are_of_this_world(tmp_path: Path) -> None:
    import torch

    threads, quick = torch.get_num_threads(), dict.fromkeys(peaks.SECONDS, 0.05)
    try:
        found = peaks.measure(1, tmp_path, quick).ceilings
    finally:
        torch.set_num_threads(threads)
    assert 1e8 < found.matmul_flops["float32"] < 1e16
    assert 1e8 < found.memory_bytes_s < 1e14
    assert 1e-7 < found.dispatch_s < 1e-2
    assert found.disk_read_bytes_s >= 0.0
    assert found.jpeg_decode_pixels_s >= 0.0


def test_memory_is_no_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peaks, "file_system", lambda _: "tmpfs")
    assert peaks.disk_read(tmp_path, 0.1) == 0.0


@pytest.mark.slow
@pytest.mark.usefixtures("cache")
def test_the_child_process_measures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('a module of the user')")
    monkeypatch.chdir(tmp_path)
    assert ceilings(MACHINE).matmul_flops["float32"] > 0.0


def test_of_a_gpu_nobody_knows_whether_others_are_busy_on_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    threads = torch.get_num_threads()
    monkeypatch.setattr(peaks, "BUSY", 1.0)  # this machine has other things to do
    for name in ("memory_bandwidth", "disk_read", "jpeg_decode", "dispatch"):
        monkeypatch.setattr(peaks, name, lambda *_: 1.0)
    monkeypatch.setattr(peaks, "matmul_flops", lambda *_: {"float32": 1.0})
    for gpu in (False, True):
        monkeypatch.setattr(torch.cuda, "is_available", lambda gpu=gpu: gpu)
        assert peaks.measure(1, tmp_path).quiet is not gpu
    torch.set_num_threads(threads)
