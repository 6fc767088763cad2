from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from outpace.plan.outlook import FORWARD, Outlook
from outpace.seams.host import Host
from outpace.seams.loader import LoaderSeam


def test_a_validation_that_was_not_met_yet_is_reckoned_with() -> None:
    host = Host()
    seam = LoaderSeam(host)
    host.seams["loader"] = seam
    seam.install()
    try:
        train = DataLoader(TensorDataset(torch.zeros(64, 2)), batch_size=8)
        valid = DataLoader(TensorDataset(torch.zeros(32, 2)), batch_size=16)
        list(train)
        record = seam.record_of(train)
        record.trains, host.batch_size = True, 8
        outlook = Outlook(host)
        outlook.pace.note(0.1)
        assert len(valid) == 2
        assert outlook.epoch() == 8
        assert outlook.validation() == pytest.approx(FORWARD * 0.1 * 32 / 8)
    finally:
        seam.remove()
