"""What `outpace run` shows of a training with a deadline."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.cli.progress import ProgressLine
from outpace.cli.run import Told, said
from outpace.records.plan import Estimate, Progress
from tests.conftest import RECIPE_ELSEWHERE, outpace


def progress(
    finish_s: float | None = None,
    *,
    elapsed_s: float = 20.0,
    of: int | None = 400,
    loss: float | None = 0.51234,
    landing: bool = False,
) -> Progress:
    """Of a budget of 100 s."""
    found = None if finish_s is None else Estimate(finish_s, finish_s - 10, finish_s + 10)
    return Progress(120, of, loss, elapsed_s, 100.0 - elapsed_s, found, landing)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (progress(50.0), "step 120 of 400 · loss 0.5123 · ends in 50s (40s to 1m) · 30s ahead"),
        (
            progress(110.0, of=None),
            "step 120 · loss 0.5123 · ends in 1m50s (1m40s to 2m) · 30s behind",
        ),
        (progress(50.0, landing=True), "step 120 of 400 · loss 0.5123 · lands in 1m20s"),
        (progress(elapsed_s=130.0, landing=True, loss=None), "step 120 of 400 · lands in 0s"),
        (progress(of=None, loss=None), "step 120"),
    ],
)
def test_a_line_of_progress(told: Progress, text: str) -> None:
    assert said(told) == text


def test_one_line_each_tenth_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as line:
        told = Told(line)
        for half_second in range(1, 241):  # 20 s more than there were
            told(progress(50.0, elapsed_s=half_second / 2))
    printed = capsys.readouterr().err.splitlines()
    assert len(printed) == 10
    assert all(each.startswith("outpace: step 120 of 400") for each in printed)
    assert printed[0].endswith("· 40s ahead")
    assert printed[-1].endswith("· 50s behind")


def test_nothing_is_shown_where_quiet_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine(quiet=True) as line:
        told = Told(line)
        told(progress(50.0, elapsed_s=90.0))
    assert capsys.readouterr().err == ""


def test_the_command_that_makes_a_recipe_does(tmp_path: Path) -> None:
    """It is quoted, and writes the recipe that was asked for, over the one that is there."""
    (tmp_path / "my train.py").write_text("print('trains')\n")
    done = outpace("run", "--recipe", "fast.toml", "my train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        "outpace tune --recipe fast.toml 'my train.py' makes one where a remedy pays" in done.stderr
    )
    (tmp_path / "outpace.toml").write_text(RECIPE_ELSEWHERE)
    done = outpace("run", "my train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trains\n")
    assert done.stderr.count("hint: outpace tune --force 'my train.py'") == 2
