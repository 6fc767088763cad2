"""How a target is run that measures: what follows it in a command, and what it asks."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from outpace.adapters.work import Work
from outpace.measure.machine import describe
from outpace.records.target import Target
from outpace.tune.children import run_for_losses
from outpace.tune.silence import hung
from tests.conftest import evidence_of, outpace

TRAINING = """
    import sys, torch
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for step in range(int(sys.argv[1])):
        optimizer.zero_grad()
        model(torch.randn(8, 4)).square().mean().backward()
        optimizer.step()
    """

EVALUATION = """
    import torch
    print(torch.ones(2).sum().item())
    """


def line(*scripts: tuple[Path, str], then: str = "true") -> str:
    """Scripts with an argument each, one after the other, and what follows them."""
    python = shlex.quote(sys.executable)
    words = [f"{python} {shlex.quote(str(path))} {argument}" for path, argument in scripts]
    return " && ".join([*words, then])


def shell(command: str, folder: Path) -> Work:
    target = Target("command", "sh", ("-c", command), str(folder))
    return Work(target, folder / "session", folder / "log", machine=describe())


def test_what_follows_a_training_that_was_cut_off_is_not_run(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path, after = script(TRAINING), tmp_path / "after"
    work = shell(line((path, "1000000"), then=f"touch {after}"), tmp_path)
    folder = tmp_path / "session" / "proof"
    losses, seconds, _ = run_for_losses(work.launch, [], folder, steps=5, every_step=True)
    assert losses is not None
    assert (len(losses.values), len(seconds)) == (5, 5)
    assert not after.exists()


@pytest.mark.parametrize("words", [("diagnose", "--steps", "5"), ("plan", "--memory", "--json")])
def test_also_by_the_commands(
    words: tuple[str, ...], script: Callable[..., Path], tmp_path: Path
) -> None:
    path, after = script(TRAINING), tmp_path / "after"
    command = line((path, "1000000"), then=f"touch {after}")
    done = outpace(*words, "--", "sh", "-c", command, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not after.exists()


def test_an_exit_code_stops_a_command_that_its_signal_does_not(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path, after = script(TRAINING), tmp_path / "after"
    command = f"trap '' TERM; {line((path, '1000000'), then=f'touch {after}')}"
    work = shell(command, tmp_path)
    losses, _, _ = run_for_losses(work.launch, [], tmp_path / "session" / "proof", steps=5)
    assert losses is not None
    assert not after.exists()


def test_a_run_that_tells_nothing_for_too_long_is_ended(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """It would be waited for without end, whatever time the user has given."""
    path = script("import time; time.sleep(600)")
    target = Target("script", str(path), (), str(tmp_path))
    work = Work(target, tmp_path / "s", tmp_path / "log", machine=describe())
    assert work.launch("builtins:len", {"silent_s": 1.0}, tmp_path / "a", {}) != 0
    assert hung(tmp_path / "a").startswith("hung for ")


def test_a_first_run_may_tell_nothing(script: Callable[..., Path], tmp_path: Path) -> None:
    """How long it needs for its first step is not known yet."""
    path = script("import time; time.sleep(2)")
    target = Target("script", str(path), (), str(tmp_path))
    work = Work(target, tmp_path / "s", tmp_path / "log", machine=describe())
    assert work.launch("builtins:len", {}, tmp_path / "a", {}) == 0
    assert hung(tmp_path / "a") == ""


@pytest.mark.slow
def test_what_evaluates_a_training_does_not_take_its_place(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    command = line((script(TRAINING), "30"), (script(EVALUATION, "eval.py"), ""))
    session = tmp_path / "session"
    words = ("diagnose", "--json", "--time", "2s", "--session", str(session))
    done = outpace(*words, "--", "sh", "-c", command, cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["outcome"], found["steps"]["count"]) == ("done", 30), done.stderr
    assert evidence_of(session).steps.count == 30
    work = shell(command, tmp_path)
    losses, seconds, _ = run_for_losses(work.launch, [], session / "proof", every_step=True)
    assert losses is not None
    assert (len(losses.values), len(seconds)) == (30, 30)


ASKS = """
    if input("overwrite? ") != "y":
        raise SystemExit(1)
    """


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="there are no terminals here")
def test_a_script_that_asks_gets_no_answer_when_it_is_run_again(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """It would wait for one, and nobody sees its question."""
    path = script(ASKS + TRAINING)
    words = [sys.executable, "-m", "outpace", "diagnose", "--time", "60s", str(path), "20"]
    terminal, its = os.openpty()
    try:
        with subprocess.Popen(
            words, cwd=tmp_path, stdin=its, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            os.write(terminal, b"y\n")
            try:
                stdout, stderr = process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                process.terminate()
                raise
    finally:
        os.close(terminal)
        os.close(its)
    assert stdout.decode().startswith("overwrite? ")
    assert process.returncode == 0, stderr
    assert "exit code 1 when it was run again" in " ".join(stderr.decode().split())


PREPARING = """
    import os, pathlib, subprocess

    os.makedirs("data", exist_ok=True)
    subprocess.run(["sh", "-c", "echo 1 > data/by_a_program"], check=True)
    pathlib.Path("data/by_the_script").write_text("2")
    pathlib.Path("elsewhere").write_text("3")
    """


def test_folders_that_the_user_allows_are_written_to(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    """By the script and by the programs that it starts."""
    path = script(PREPARING + TRAINING)
    words = [sys.executable, "-m", "outpace", "diagnose", "--steps", "5", "--allow", "data"]
    found = subprocess.run(
        [*words, str(path), "20"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert sorted(os.listdir(tmp_path / "data")) == ["by_a_program", "by_the_script"]
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_to_allow_that_is_a_file_is_refused(
    script: Callable[..., Path], tmp_path: Path
) -> None:
    path = script(TRAINING)
    words = [sys.executable, "-m", "outpace", "diagnose", "--allow", f"{path}/data", str(path)]
    found = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 2
    assert "--allow" in found.stderr
    assert "Traceback" not in found.stderr
