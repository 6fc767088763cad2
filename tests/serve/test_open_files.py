from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest
from torch.utils.data import DataLoader, Dataset, Subset

from outpace.serve.open_files import holds_open_file
from outpace.serve.probe import gather_time, making_time, probe


class OpenedLate(Dataset[int]):
    """Opens its file when the first sample is drawn."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(bytes(64))
        self.path = path
        self.file: BinaryIO | None = None

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = self.path.open("rb")
        self.file.seek(index)
        return self.file.read(1)[0]


@pytest.mark.parametrize(
    "tried", [probe, making_time, lambda loader: gather_time(loader, "cache", 1 << 20)]
)
def test_a_data_set_that_was_tried_opens_its_file_again(tmp_path: Path, tried: Any) -> None:
    """Else workers that are forked afterwards would share it."""
    data = OpenedLate(tmp_path / "numbers")
    tried(DataLoader(Subset(data, range(32)), batch_size=8))
    assert data.file is None


def test_what_was_open_before_stays_open(tmp_path: Path) -> None:
    data = OpenedLate(tmp_path / "numbers")
    data[0]
    file = data.file
    probe(DataLoader(data, batch_size=8))
    assert data.file is file
    assert holds_open_file(Subset(Subset(data, range(4)), range(2)))
