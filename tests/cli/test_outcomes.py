"""What a user meets when things are not as they should be: each a clear outcome."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from outpace.report.trace import is_trace
from tests.conftest import Outpace, outpace

TRAINING = """
    import sys, time
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(512, 16), torch.randn(512, 1))
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    STEPS = 3000
    step = 0
    for epoch in range(1000):
        for x, y in DataLoader(data, batch_size=16):
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            HERE
            if step >= STEPS:
                torch.save(model.state_dict(), "weights.pt")
                print("the end")
                sys.exit(0)
"""


def diagnose(path: Path, *more: str, seconds: str = "3s") -> tuple[int, dict, str]:
    done = outpace(
        "diagnose", "--json", "--time", seconds, *more, str(path), cwd=path.parent, timeout=120
    )
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def variant(here: str = "pass", steps: int = 3000) -> str:
    return TRAINING.replace("HERE", here).replace("STEPS = 3000", f"STEPS = {steps}")


def test_a_training_is_diagnosed(script: Callable[..., Path]) -> None:
    path = script(variant(steps=100_000))
    code, found, told = diagnose(path, seconds="4s")
    assert code == 0
    assert found["outcome"] == "done"
    assert found["schema"] == 1
    assert abs(sum(row["share"] for row in found["ledger"]) - 1) < 0.01
    assert found["steps"]["count"] > 10
    assert found["overhead"]["step_ratio"] > 0
    assert "Traceback" not in told


def test_a_trace_has_the_phases_of_steps(script: Callable[..., Path], tmp_path: Path) -> None:
    path = script(variant(steps=100_000))
    code, _, told = diagnose(path, "--trace", "t.json", "--steps", "4000", seconds="1s")
    assert code == 0, told
    assert is_trace(tmp_path / "t.json")
    names = {
        event["name"] for event in json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    }
    assert names >= {"forward", "backward", "optimizer"}
    spans = sorted([int(n) for n in re.findall(r"\d+", name)] for name in names if "step" in name)
    assert len(spans) == 5
    assert all(before[-1] + 1 == after[0] for before, after in pairwise(spans))


def test_three_steps_of_which_nothing_of_the_users_is_written(script: Callable[..., Path]) -> None:
    path = script(variant(steps=3))
    (path.parent / "weights.pt").write_bytes(b"precious")
    code, found, _ = diagnose(path, "--trace", "t.json", "--session", str(path.parent / "session"))
    assert (code, found["outcome"], found["steps"]["count"]) == (0, "done", 3)
    assert "t.json is not written: no step was left to trace" in found["notes"]
    assert (path.parent / "weights.pt").read_bytes() == b"precious"
    assert {p.name for p in path.parent.iterdir()} == {"train.py", "weights.pt", "session"}


def test_no_training(script: Callable[..., Path]) -> None:
    code, found, _ = diagnose(script("import torch\nprint(torch.ones(2).sum().item())"))
    assert (code, found["outcome"], found["bound"]) == (0, "no training", "none")


def test_no_torch(script: Callable[..., Path]) -> None:
    code, found, _ = diagnose(script("print('hello')"))
    assert (code, found["outcome"]) == (0, "no training")


def test_a_script_that_fails(script: Callable[..., Path]) -> None:
    path = script(variant("if step == 30: raise ValueError('bad day')"))
    code, found, told = diagnose(path)
    assert (code, found["outcome"], found["exit_code"]) == (1, "failed", 1)
    assert "ValueError: bad day" in told
    assert "outpace/seams" not in told


def test_a_script_that_exits(script: Callable[..., Path]) -> None:
    code, found, _ = diagnose(script("import torch, sys\nsys.exit(7)"))
    assert (code, found["exit_code"]) == (7, 7)


@pytest.mark.slow
def test_a_data_set_that_raises(script: Callable[..., Path]) -> None:
    path = script(
        """
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Bad(Dataset):
            def __len__(self): return 100
            def __getitem__(self, i):
                if i > 60: raise OSError("cannot read sample 61")
                return torch.randn(4)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in DataLoader(Bad(), batch_size=10):
            model(x).sum().backward()
            optimizer.step()
        """
    )
    code, found, told = diagnose(path)
    assert (code, found["outcome"]) == (1, "failed")
    assert "cannot read sample 61" in told


def test_a_killed_worker(script: Callable[..., Path]) -> None:
    path = script(
        """
        import os, signal
        import torch
        from torch.utils.data import DataLoader, Dataset
        class Bad(Dataset):
            def __len__(self): return 400
            def __getitem__(self, i):
                if i == 300: os.kill(os.getpid(), signal.SIGKILL)
                return torch.randn(4)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for x in DataLoader(Bad(), batch_size=10, num_workers=1):
            model(x).sum().backward()
            optimizer.step()
        """
    )
    code, found, told = diagnose(path)
    assert (code, found["outcome"]) == (1, "failed")
    torchs_words = ("killed by signal", "exited unexpectedly", "Connection", "EOFError")
    assert any(words in told for words in torchs_words), told


def test_a_loss_that_becomes_nan(script: Callable[..., Path]) -> None:
    path = script(
        variant("with torch.no_grad(): model[0].weight.fill_(float('nan')) if step == 9 else None")
    )
    code, found, _ = diagnose(path, "--steps", "60")
    assert (code, found["outcome"]) == (0, "done")
    assert [rule["rule"] for rule in found["learning"]] == ["nan"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diagnose", "trayn.py"], "trayn.py"),
        (["diagnose", "."], ". is a folder"),
        (["diagnose", "--time", "soon", "train.py"], "soon"),
        (["diagnose", "--tme", "5s", "train.py"], "--tme"),
        (["tune", "--skip", "magic", "train.py"], "magic"),
        (["run", "--recipe", "none.toml", "train.py"], "none.toml"),
        (["report", "nowhere"], "nowhere"),
        (["remedies", "magic"], "magic"),
        (["brew"], "brew"),
    ],
)
def test_mistakes_on_the_command_line(
    words: list[str], said: str, script: Callable[..., Path]
) -> None:
    path = script("print(1)")
    done = outpace(*words, cwd=path.parent)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_recipe_that_is_not_one(script: Callable[..., Path]) -> None:
    path = script("print(1)")
    (path.parent / "outpace.toml").write_text("remedies = 3")
    done = outpace("run", str(path), cwd=path.parent)
    assert done.returncode == 2
    assert "outpace.toml" in done.stderr


def test_a_recipe_is_not_overwritten(script: Callable[..., Path], in_process: Outpace) -> None:
    path = script(variant())
    (path.parent / "outpace.toml").write_text("mine")
    done = in_process("tune", str(path), cwd=path.parent)
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert (path.parent / "outpace.toml").read_text() == "mine"


def test_run_gives_the_scripts_own_exit_code_and_output(script: Callable[..., Path]) -> None:
    path = script(variant("if step == 20: print('leaving'); sys.exit(5)"))
    done = outpace("run", "--no-recipe", str(path), cwd=path.parent)
    assert done.returncode == 5
    assert done.stdout == "leaving\n"


def test_interrupt(script: Callable[..., Path]) -> None:
    path = script(variant())
    child = subprocess.Popen(
        [sys.executable, "-m", "outpace", "diagnose", "--time", "60s", str(path)],
        cwd=path.parent,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(path.parent.glob(".outpace/*/progress.json")):
        assert time.monotonic() < deadline, "it did not begin"
        time.sleep(0.2)
    os.killpg(child.pid, signal.SIGINT)
    child.communicate(timeout=60)
    assert child.returncode == 130


def test_help_is_quick_and_imports_no_torch() -> None:
    code = "import sys; sys.argv = ['outpace', '--help']\nfrom outpace.cli import group\n"
    code += "group.main(standalone_mode=False)\nprint('torch' in sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "False"
    assert "diagnose" in done.stdout


def test_options_behind_the_scripts_name_are_its_own_and_a_hint_says_so(
    script: Callable[..., Path],
) -> None:
    path = script(
        "import argparse\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--seed', type=int)\n"
        "print(1 / parser.parse_args().seed)\n"
    )
    words = ("--time", "3s", "--quiet", "-v", "--rate=1")
    done = outpace("diagnose", "train.py", *words, cwd=path.parent)
    assert done.returncode == 2
    assert "hint: --time and --quiet came after the script's name" in done.stderr
    for own, code in (("0", 1), ("1", 0)):
        done = outpace("diagnose", "train.py", "--seed", own, cwd=path.parent)
        assert done.returncode == code
        assert "after the script's name" not in done.stderr
