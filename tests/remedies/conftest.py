"""Pictures to train on, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.remedies.trainings import Result, make_pictures, train


@pytest.fixture(scope="package", autouse=True)
def one_thread() -> Iterator[None]:
    """Tiny models on one thread: several would wait for each other on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of JPEG files."""
    return make_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="package")
def plain(pictures: Path, one_thread: None) -> dict[str, Result]:
    """What the trainings give without outpace, on as many threads as with it."""
    return {kind: train(kind, pictures) for kind in ("rows", "workers", "images", "fixed_images")}
