"""Which process is the target's: not the launcher that starts its ranks, whatever words a script is given."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from outpace.adapters.launch import environment

TELLS = "import os; print('OUTPACE_CHILD' in os.environ)"


@pytest.mark.parametrize(
    ("words", "is_target"),
    [
        (["train.py"], True),
        (["train.py", "--strategy", "deepspeed"], True),
        (["-u", "-W", "ignore", "train.py", "accelerate"], True),
        (["-X", "dev", "-m", "fit", "torchrun"], True),
        (["-c", TELLS, "mpirun"], True),
        (["train.py", "--run", "multiprocessing_important"], True),
        (["train.py", "-c", "multiprocessing_important"], True),
        (["-m", "fit", "-c", "multiprocessing_important"], True),
        (["-c", f"from multiprocessing.spawn import spawn_main; {TELLS}", "fork"], False),
        (["-u", f"-cfrom multiprocessing.spawn import spawn_main; {TELLS}"], False),
        (["./torchrun", "train.py"], False),
        (["-u", "-W", "ignore", "./torchrun", "train.py"], False),
        (["-m", "horovodrun", "train.py"], False),
        (["-u", "-mhorovodrun", "train.py"], False),
    ],
)
def test_only_the_program_tells(words: list[str], is_target: bool, tmp_path: Path) -> None:
    for name in ("train.py", "fit.py", "horovodrun.py", "torchrun"):
        (tmp_path / name).write_text(TELLS)
    env = environment(tmp_path / "spec", {})
    env.pop("RANK", None)
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(not is_target), done.stderr
    assert "OUTPACE_CHILD" not in os.environ
