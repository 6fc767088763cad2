"""Which script a command line trains, and whether two train the same one."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.records.target import train_alike, trains


@pytest.mark.parametrize(
    ("line", "trained"),
    [
        ("train.py --model -m", "train.py"),
        ("-m pkg.train --config configs/base.py", "pkg.train"),
        ("/usr/bin/torchrun --nproc-per-node 2 train.py", "train.py"),
        ("torchrun -m pkg.train", "pkg.train"),
        ("python -m torch.distributed.run train.py", "train.py"),
        ("/usr/bin/make train", "/usr/bin/make"),
        ("", ""),
    ],
)
def test_what_is_trained(line: str, trained: str) -> None:
    assert trains(line.split()) == trained


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("vision/train.py", "nlp/train.py", False),
        ("vision/train.py", "nlp/../vision/train.py --epochs 3", True),
        ("gone/train.py", "nlp/train.py", True),  # made in another folder, maybe of the same script
        ("train.py", "evaluate.py", False),
        ("-m pkg.train --config a.py", "-m pkg.train --config b.py", True),
        ("-m other.train --config a.py", "-m pkg.train --config a.py", False),
        ("-m vision.train", "vision/train.py", True),
        ("torchrun -m pkg.train", "torchrun -m other.train", False),
        ("make train", "/usr/bin/make train", True),
    ],
)
def test_whether_two_are_the_same(tmp_path: Path, one: str, other: str, alike: bool) -> None:
    for folder in ("vision", "nlp"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "train.py").touch()
    assert train_alike(one.split(), other.split(), str(tmp_path)) is alike
    assert train_alike(other.split(), one.split(), str(tmp_path)) is alike
