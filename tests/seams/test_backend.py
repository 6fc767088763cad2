"""The script's own switches: noted, held, and given back."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from outpace.seams.backend import BackendSeam
from outpace.seams.host import Host
from outpace.seams.setup import AS_IS


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
