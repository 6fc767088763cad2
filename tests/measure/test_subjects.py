"""What is measured, among all that the seams met."""

from __future__ import annotations

import pytest
import torch
from tests.remedies.trainings import hosted
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from outpace.measure.subjects import main_device, training_loader
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam


@pytest.mark.parametrize("slow", [0, 1])
def test_of_several_loaders_the_one_that_is_waited_for_most(slow: int) -> None:
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loaders = [DataLoader(TensorDataset(torch.randn(12, 3)), batch_size=2) for _ in range(2)]
    with hosted() as host:
        for (x,), (u,) in zip(*loaders, strict=True):
            (model(x).mean() + model(u).mean()).backward()
            optimizer.step()
        seam = host.seams["loader"]
        assert isinstance(seam, LoaderSeam)
        seam.record_of(loaders[slow]).wait += 10**12
        found = training_loader(host)
        assert found is not None
        assert found[0] is loaders[slow]


def test_the_device_of_an_optimizer_whose_first_group_is_empty() -> None:
    """As where all that has no weight decay has a group of its own, and a model has none of that."""
    weight = torch.zeros(1, device="meta", requires_grad=True)
    optimizer = torch.optim.SGD([{"params": []}, {"params": [weight]}], 0.01)
    host = Host()
    host.main_optimizer = lambda: optimizer
    assert main_device(host) == "meta"
