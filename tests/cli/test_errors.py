"""What a program, and a person, gets where a command came to no good."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from outpace.cli.settings import defaults
from outpace.cli.telling import failure_of
from tests.conftest import Outpace, outpace

ABSENT = ["diagnose", "absent.py"]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("OUTPACE_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diagnose", "--json", "absent.py"], "there is no file absent.py"),
        (["diagnose", "--json", "--tme", "3", "absent.py"], "--tme"),
        (["tune", "--json", "--only", "magic", "absent.py"], "magic"),
        (["plan", "--json"], "nothing was asked"),
        (["pack", "--json", "absent", "packed"], "there is no absent"),
        (["train", "--json", "absent:make"], "there is no module absent"),
        (["remedies", "--json", "magic"], "magic"),
        (["env", "--json", "--magic"], "--magic"),
    ],
)
def test_a_program_gets_a_document_of_an_error_too(
    words: list[str], said: str, here: Path, in_process: Outpace
) -> None:
    done = in_process(*words, cwd=here)
    found = json.loads(done.stdout)
    assert (found["schema"], found["outcome"]) == (1, "error")
    assert found["exit_code"] == done.returncode == 2
    assert said in found["message"]
    assert f"error: {found['message']}" in done.stderr
    assert found["hint"] is None or f"hint: {found['hint']}" in done.stderr


def test_a_document_is_one_whatever_the_encoding_of_stdout(here: Path) -> None:
    (here / "dätä 数").mkdir()
    (here / "dätä 数/1.bin").write_bytes(b"1")
    env = {"PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    done = outpace("pack", "--json", "dätä 数", "packed", cwd=here, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["packed"]["source"]["path"].endswith("dätä 数")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
def test_a_full_disk_behind_stdout_is_no_mistake_of_ours(here: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "outpace", "plan", "--json", "--flops", "1e21"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error: nothing more can be written: No space left on device\n")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "{}.py"],
        ["diagnose", "-m", "{}"],
        ["diagnose", "-o", "{}.md", "train.py"],
        ["tune", "--recipe", "{}.toml", "train.py"],
        ["run", "--recipe", "{}.toml", "train.py"],
        ["report", "{}"],
        ["pack", "{}", "packed"],
    ],
    ids=" ".join,
)
def test_a_path_that_cannot_be_looked_at_is_no_mistake_of_ours(
    words: list[str], here: Path, in_process: Outpace
) -> None:
    (here / "train.py").touch()
    long = "x" * 300
    done = in_process(*(word.format(long) for word in words), cwd=here)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    told, hint = done.stderr.splitlines()
    assert told.startswith("error: ")
    assert long in told
    assert told.endswith("File name too long")
    assert hint == "hint: name a shorter one"


def test_nor_is_a_working_folder_that_is_gone(here: Path) -> None:
    """Whoever starts a program may remove its folder at once."""
    (here / "gone").mkdir()
    code = "import os, outpace.cli as cli; os.rmdir(os.getcwd()); cli.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "env"],
        cwd=here / "gone",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == "error: the working folder is gone\nhint: go to one that is there\n"


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error", "progress.json"),
        PermissionError(errno.EPERM, "Operation not permitted"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "progress.json"),
    ],
)
def test_other_errors_of_files_are_mistakes_of_ours(
    error: OSError, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "mistake in outpace" in failure_of(error).message
    assert type(error).__name__ in capsys.readouterr().err


def test_a_pyproject_that_may_not_be_looked_at_is_as_none(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str | Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patch:  # root may look anywhere
        patch.setattr(os, "stat", refused)
        assert defaults(here) == {}


def test_also_where_a_variable_or_pyproject_asked_for_it(here: Path) -> None:
    assert outpace(*ABSENT, cwd=here).stdout == ""
    assert json.loads(outpace(*ABSENT, cwd=here, env={"OUTPACE_JSON": "1"}).stdout)
    (here / "pyproject.toml").write_text("[tool.outpace]\njson = true\n")
    assert json.loads(outpace(*ABSENT, cwd=here).stdout)


@pytest.mark.parametrize(
    "words",
    [
        ["diagnose", "absent.py", "--json"],
        ["run", "--no-recipe", "absent.py", "--json"],
        ["--json"],
    ],
)
def test_but_not_where_json_is_the_targets_word(words: list[str], here: Path) -> None:
    done = outpace(*words, cwd=here)
    assert (done.returncode, done.stdout) == (2, "")


def test_without_a_command_there_is_help(here: Path) -> None:
    done = outpace(cwd=here)
    assert done.returncode == 2
    assert (done.stdout + done.stderr).lstrip().startswith("Usage: ")
    assert "diagnose" in done.stdout + done.stderr


def test_what_is_no_utf8_in_an_argument_is_a_question_mark(here: Path) -> None:
    from outpace.records.files import read_json, write_json
    from outpace.records.target import Target

    write_json(here / "target.json", Target("script", "train.py", ("data\udce9",)))
    assert read_json(here / "target.json", Target).args == ("data?",)


def test_a_session_of_another_schema_is_not_taken_for_one_of_ours(here: Path) -> None:
    (here / "session.json").write_text('{"schema": 2}')
    done = outpace("report", ".", cwd=here)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
