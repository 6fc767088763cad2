"""A training under a recipe that a person may have written, and watched by somebody who may go away."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from outpace.api.running import _checked
from outpace.measure.machine import describe
from outpace.records.recipe import Applied, Recipe
from outpace.records.recipe_file import write_recipe
from outpace.records.target import Target

HERE = describe()
RECIPE = Recipe(
    schema=1,
    target="train.py",
    outpace="0",
    python="3.11",
    torch=HERE.torch,
    machine=f"{HERE.cpu}, {HERE.cores} cores",
    fingerprint=HERE.fingerprint,
)


def warned(tmp_path: Path, capfd: pytest.CaptureFixture[str], **changed: str) -> str:
    path = tmp_path / "outpace.toml"
    write_recipe(path, msgspec.structs.replace(RECIPE, **changed))
    _checked(path, Target("script", "train.py", (), str(tmp_path)))
    return capfd.readouterr().err


def test_what_is_another_here_is_told_as_such(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert warned(tmp_path, capfd) == ""
    assert "on another machine (abacus; here: " in warned(
        tmp_path, capfd, fingerprint="x", machine="abacus"
    )
    assert "with torch 1.0 (here: " in warned(tmp_path, capfd, fingerprint="x", torch="1.0")
    assert "with another GPU, or other memory" in warned(tmp_path, capfd, fingerprint="x")


def test_a_quote_that_was_left_open(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert warned(tmp_path, capfd, target="train.py --name it's") == ""
    assert "proven with other.py" in warned(tmp_path, capfd, target="other.py --name it's")


def test_variables_of_remedies_that_were_written_by_hand(tmp_path: Path) -> None:
    remedies = (Applied("allocator", "exact", {"malloc": "keep"}),)
    by_hand = msgspec.structs.replace(RECIPE, environment={"MINE": "1"}, remedies=remedies)
    write_recipe(tmp_path / "outpace.toml", by_hand)
    target = Target("script", "train.py", (), str(tmp_path))
    found = _checked(tmp_path / "outpace.toml", target).environment
    assert found.pop("MINE") == "1"
    assert found


SCRIPT = """
    import time
    import torch
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(150):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).square().mean().backward()
        optimizer.step()
        time.sleep(0.02)
    print("trained")
    """


def test_a_training_goes_on_where_nobody_reads_its_progress(
    script: Callable[..., Path],
) -> None:
    path = script(SCRIPT)
    command = [sys.executable, "-m", "outpace", "run", "--no-recipe", "--deadline", "10s", path]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command, cwd=path.parent, stdout=subprocess.PIPE, stderr=writer, text=True, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stdout) == (0, "trained\n")
