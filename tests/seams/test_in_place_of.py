"""What the seams replace is pickled as what it replaces: scripts hand such functions to processes."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.conftest import with_entry
from tests.remedies.trainings import hosted

from outpace.seams.host import Host
from outpace.seams.save import SaveSeam

FUNCTIONS: list[tuple[Any, str]] = [
    *((torch, name) for name in ("set_num_threads", "set_anomaly_enabled", "manual_seed", "save")),
    *((random, "seed"), (np.random, "seed"), (np.random, "default_rng")),
    *((torch.cuda, "manual_seed"), (torch.cuda, "manual_seed_all")),
]


@pytest.mark.parametrize(("owner", "name"), FUNCTIONS)
def test_it_is_found_again_by_its_name(owner: Any, name: str) -> None:
    plain = getattr(owner, name)
    with hosted():
        ours = getattr(owner, name)
        assert ours is not plain
        pickled = pickle.dumps(ours)
        assert pickle.loads(pickled) is ours
        assert ours.__doc__ == plain.__doc__
    assert pickle.loads(pickled) is plain, "where nothing of ours is"


SPAWNS = """
    import multiprocessing, torch

    def threads(_):
        return torch.get_num_threads()

    if __name__ == "__main__":
        context = multiprocessing.get_context("spawn")
        with context.Pool(1, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            print(pool.map(threads, [0]))
    """


def test_a_process_that_is_spawned_with_one(script: Callable[[str], Path], tmp_path: Path) -> None:
    code, printed = with_entry(
        script(SPAWNS), tmp_path / "session", "outpace.tune.apply:begin", remedies=[]
    )
    assert code == 0, printed
    assert printed.splitlines()[-1] == "[1]"


def test_methods_of_tensors_are_found_again() -> None:
    plain = torch.Tensor.numpy
    with hosted():
        pickled = pickle.dumps(torch.Tensor.numpy)
        assert pickle.loads(pickled) is torch.Tensor.numpy
    assert pickle.loads(pickled) is plain


def test_what_a_script_put_there_since_stays() -> None:
    """It may call ours, which then stays too."""
    plain, seam = torch.save, SaveSeam(Host())

    def own(*args: Any, **kwargs: Any) -> None:
        ours(*args, **kwargs)

    try:
        seam.install()
        ours = torch.save
        torch.save = own
        seam.remove()
        assert torch.save is own
        seam.install()
        assert torch.save is own
        torch.save = ours
        seam.remove()
        assert torch.save is plain
    finally:
        torch.save = plain
