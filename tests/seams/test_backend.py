"""The script's own switches: noted, held, and given back."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from outpace.seams import backend as module
from outpace.seams.backend import BackendSeam
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS
from outpace.serve.executors import fetch_threads


def test_where_the_script_sets_its_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", called.append)
    plain = torch.set_num_threads
    seam = BackendSeam(Host())
    seam.install()
    seam.install()
    torch.set_num_threads(1)
    where = seam.threads_where
    assert where is not None
    assert "test_backend.py:" in where
    seam.reconcile(replace(AS_IS, threads=2))
    assert seam.threads_where == where, "what an arm sets is not the script's"
    seam.remove()
    assert torch.set_num_threads == plain
    assert called[:2] == [1, 2]
    assert called[-1] == torch.get_num_threads()


def test_what_the_script_sets_later_does_not_undo_a_recipe() -> None:
    before = torch.get_num_threads()
    seam = BackendSeam(Host())
    seam.install()
    try:
        seam.reconcile(replace(AS_IS, threads=1))
        torch.set_num_threads(before + 1)
        assert torch.get_num_threads() == 1
        seam.reconcile(AS_IS)
        assert torch.get_num_threads() == before + 1, "the script's own come back"
    finally:
        seam.remove()
        torch.set_num_threads(before)


def with_threads(count: int, do: Callable[[BackendSeam], None]) -> None:
    """Do it while a Setup's number of threads is in force, and put the process's own back."""
    before = torch.get_num_threads()
    seam = BackendSeam(Host())
    seam.install()
    try:
        seam.reconcile(replace(AS_IS, threads=count))
        do(seam)
    finally:
        seam.remove()
        torch.set_num_threads(before)


def test_a_worker_limits_its_own_threads() -> None:
    def fork(seam: BackendSeam) -> None:
        child = os.fork()
        if not child:
            torch.set_num_threads(1)  # as a DataLoader's worker does
            os._exit(torch.get_num_threads())
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
        assert torch.get_num_threads() == 3

    with_threads(3, fork)


def test_threads_that_fetch_have_one_each_and_the_scripts_number_stays() -> None:
    own = torch.get_num_threads()

    def fetch(seam: BackendSeam) -> None:
        pool = fetch_threads(2)
        assert pool.submit(torch.get_num_threads).result() == 1
        pool.shutdown()
        assert torch.get_num_threads() == own + 1
        seam.reconcile(AS_IS)
        assert torch.get_num_threads() == own

    with_threads(own + 1, fetch)


def test_a_look_of_ours_that_fails_is_not_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, before = torch.set_num_threads, torch.get_num_threads()
    host = Host()
    host.add(BackendSeam(host))
    host.install()
    try:
        monkeypatch.setattr(module, "caller", lambda: 1 / 0)
        torch.set_num_threads(before + 1)
        assert torch.get_num_threads() == before + 1
        assert set(host.broken) == {"backend"}
        assert torch.set_num_threads is plain
    finally:
        host.remove()
        torch.set_num_threads(before)


def test_how_many_threads_sleep_goes_by_what_the_script_sets_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A recipe is at work before the script chooses its threads."""
    parked: list[int] = []

    class Parked:
        def __init__(self, threads: int) -> None:
            self.threads = threads
            parked.append(threads)

        def end(self) -> None:
            parked.append(0)

    monkeypatch.setattr(module, "ParkedTeams", Parked)
    before, host = torch.get_num_threads(), Host()
    seam = BackendSeam(host)
    seam.install()
    try:
        host.setup = replace(AS_IS, passive=True)
        seam.reconcile(host.setup)
        torch.set_num_threads(before + 1)
        assert parked == [before, 0, before + 1]
    finally:
        seam.remove()
        torch.set_num_threads(before)
    assert parked[-1] == 0
