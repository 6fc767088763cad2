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
from PIL import ImageFile
from tests.conftest import with_entry
from tests.remedies.trainings import hosted
from torch.utils import checkpoint
from torch.utils.data import DataLoader
from torch.utils.data._utils import fetch as fetchers
from torch.utils.data.dataloader import _BaseDataLoaderIter

from outpace.seams.recompute import HELD

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


STANDS_AT: list[tuple[Any, str]] = [
    *FUNCTIONS,
    *((DataLoader, name) for name in ("__init__", "__iter__")),
    (_BaseDataLoaderIter, "__next__"),
    (fetchers._MapDatasetFetcher, "fetch"),
    (ImageFile.ImageFile, "load"),
    (torch.nn.Module, "__call__"),
    (torch.autograd, "backward"),
    *((torch.amp.GradScaler, name) for name in ("scale", "update")),
    *((torch.optim.Optimizer, name) for name in ("zero_grad", "load_state_dict")),
    (torch.optim.Optimizer, "add_param_group"),
    (torch.Tensor, "item"),
    (torch.cuda, "synchronize"),
    (torch.distributed, "all_reduce"),
    (checkpoint, HELD),
]


@pytest.mark.parametrize(("owner", "name"), STANDS_AT)
def test_what_a_script_put_there_since_stays(owner: Any, name: str) -> None:
    """It may call ours, which then stays too, and is not put over it once more."""
    plain = vars(owner).get(name)
    with hosted() as host:
        ours = vars(owner)[name]

        def own(*args: Any, **kwargs: Any) -> Any:
            return ours(*args, **kwargs)

        assert ours is not plain
        setattr(owner, name, own)
        host.remove()
        assert vars(owner)[name] is own
        host.install()
        assert vars(owner)[name] is own
        setattr(owner, name, ours)
        assert not host.broken
    assert vars(owner).get(name) is plain


@pytest.mark.parametrize(
    ("owner", "name"), [(torch, "set_num_threads"), (random, "seed"), (np.random, "seed")]
)
def test_what_stands_in_the_place_of_a_builtin_binds_no_more_than_that(
    owner: Any, name: str
) -> None:
    with hosted():

        class Chosen:
            function = getattr(owner, name)

        assert Chosen().function is getattr(owner, name)
        Chosen().function(torch.get_num_threads())
