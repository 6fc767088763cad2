"""Watching changes nothing: same prints, same losses, same weights, bit for bit."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import ROOT, plainly, with_entry

EXAMPLES = ROOT / "examples"

LOOP = """
    import random, sys
    import numpy as np, torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset
    random.seed(0); np.random.seed(0); torch.manual_seed(0)

    class Noisy(Dataset):
        def __len__(self): return 96
        def __getitem__(self, i):
            x = torch.full((3, 8, 8), i / 96.0) + random.random() + float(np.random.rand())
            return x + torch.rand(1), i % 4

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
                          nn.Dropout(0.5), nn.Linear(288, 4))
    OPTIMIZER
    loader = DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=WORKERS)
    for epoch in range(2):
        model.train()
        for x, y in loader:
            def closure():
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(x), y)
                loss.backward()
                return loss
            STEP
            print(repr(loss.item()))
        model.eval()
        with torch.no_grad():
            print(sum(model(x).argmax(1).eq(y).sum().item() for x, y in loader))
    torch.save(model.state_dict(), "weights.pt")
    torch.save(model, "whole.pt")
"""

USUAL = "loss = closure(); optimizer.step()"
VARIANTS = {
    "sgd": ("optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)", USUAL, 0),
    "adamw, two workers": ("optimizer = torch.optim.AdamW(model.parameters())", USUAL, 2),
    "lbfgs": (
        "optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)",
        "loss = optimizer.step(closure)",
        0,
    ),
    "by hand": (
        """class By:
        def zero_grad(self):
            for p in model.parameters(): p.grad = None
        def step(self):
            for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1)
    optimizer = By()""",
        USUAL,
        0,
    ),
}
FAST = ("adamw, two workers", "by hand")
"""with workers, and with steps that are no optimizer's of torch"""


@pytest.mark.parametrize(
    "variant", [pytest.param(v, marks=[pytest.mark.slow] * (v not in FAST)) for v in VARIANTS]
)
def test_small_loops(variant: str, script: Callable[..., Path], tmp_path: Path) -> None:
    optimizer, step, workers = VARIANTS[variant]
    text = LOOP.replace("OPTIMIZER", optimizer).replace("STEP", step)
    path = script(text.replace("WORKERS", str(workers)))
    plain = plainly(path)
    assert plain.returncode == 0, plain.stderr
    before = {name: (tmp_path / name).read_bytes() for name in ("weights.pt", "whole.pt")}
    for name in before:
        (tmp_path / name).unlink()
    code, printed = with_entry(path, tmp_path / "session")
    assert code == 0
    assert printed == plain.stdout
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content


CASES = {
    "char_gpt.py": ["--steps", "12"],
    "flights.py": ["--epochs", "1"],
    "mnist_cnn.py": ["--epochs", "1"],
    "image_classifier.py": ["--epochs", "1"],
}


def without_times(text: str) -> str:
    """Printed seconds differ from run to run; all else must not."""
    return re.sub(r"\d+\.\d+ ?(s|ms)\b", "TIME", text)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", CASES)
def test_examples(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # two busy threads beside another process crawl
    args = list(CASES[name])
    if name == "image_classifier.py":
        data = tmp_path / "images"
        made = subprocess.run(
            [sys.executable, EXAMPLES / "make_images.py", "--per-class", "20", "--data", data],
            capture_output=True,
            text=True,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        args += ["--data", str(data)]
    out = tmp_path / "weights.pt"
    plain = plainly(EXAMPLES / name, [*args, "--out", str(out)], cwd=tmp_path)
    assert plain.returncode == 0, plain.stderr
    before = torch.load(out)
    out.unlink()
    code, printed = with_entry(
        EXAMPLES / name, tmp_path / "session", args=[*args, "--out", str(out)]
    )
    assert code == 0, printed
    assert without_times(printed) == without_times(plain.stdout)
    after = torch.load(out)
    assert before.keys() == after.keys()
    for key, value in before.items():
        assert torch.equal(value, after[key]), key
