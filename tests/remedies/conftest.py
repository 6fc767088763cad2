"""Pictures to train on, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.remedies.trainings import Result, make_pictures, train


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of JPEG files."""
    return make_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def plain(pictures: Path) -> dict[str, Result]:
    """What the trainings give without outpace."""
    return {kind: train(kind, pictures) for kind in ("rows", "workers", "images", "fixed_images")}
