"""``outpace train``."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

import pytest

from tests.conftest import outpace

TEXT = """
import outpace, torch
from torch.nn import functional as F
from outpace.train.strategies import OneCycle

def accuracy(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()

def make(target=None, epochs=30):
    torch.manual_seed(0)
    x = torch.randn(240, 8)
    y = x[:, :3].argmax(1)
    return outpace.Trainer(
        torch.nn.Linear(8, 3), loss=F.cross_entropy, metric=accuracy, train=(x[:200], y[:200]),
        valid=(x[200:], y[200:]), batch_size=20, epochs=epochs, target=target, device="cpu",
        strategies=[OneCycle(rate=0.1)],
    )

def reached():
    return make(0.5)

def missed():
    print("mine")
    return make(1.1, epochs=1)

def nothing():
    return 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(textwrap.dedent(TEXT))
    return tmp_path


def test_it_trains_and_prints_the_result(folder: Path) -> None:
    done = outpace("train", "mine:reached", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "ended by target" in done.stdout
    assert "target reached after" in done.stdout
    assert done.stderr.startswith("outpace: ")


def test_json_and_a_target_that_is_missed(folder: Path) -> None:
    done = outpace("train", "--json", "--quiet", "--budget", "30s", "mine:missed", cwd=folder)
    assert (done.returncode, done.stderr) == (3, "mine\n")
    told = json.loads(done.stdout)
    assert told["schema"] == 1
    assert told["stopped"] == "epochs"
    assert told["history"][0]["step"] == 10


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine", "names no function"),
        ("mine:nobody", "mine has no nobody"),
        ("yours:make", "there is no module yours"),
        ("mine:nothing", "gives a int"),
    ],
)
def test_mistakes(folder: Path, name: str, said: str) -> None:
    done = outpace("train", name, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
