"""``outpace train``."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from outpace.cli.train import kept
from outpace.records.session import read_session
from outpace.records.training import Training
from tests.conftest import Outpace, outpace
from tests.report.report_trainings import trained
from tests.train.launching import ended, printed_by

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

def long():
    return make(1.1, epochs=100_000)

def nothing():
    return 3

def noisy():
    import os
    os.system("echo more")
    return make(epochs=1)

def broken():
    raise ZeroDivisionError("mine")

def other_targets():
    trainer = make(epochs=1)
    x, y = trainer.train
    trainer.train = (x, y.float())
    return trainer

def other_inputs():
    trainer = make(epochs=1)
    trainer.model = torch.nn.Linear(9, 3)
    return trainer

def ends():
    raise SystemExit(0)

def calls_back():
    trainer = make(epochs=1)
    trainer.callbacks = (lambda run: 1 / 0,)
    return trainer

def goes_elsewhere():
    import os
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    return make(0.5)

def wants(more):
    return make()

def fails(rank):
    import os, time
    def fail(run):
        if os.environ["RANK"] == rank:
            raise ZeroDivisionError("mine")
        time.sleep(0.01)
    trainer = make(epochs=100_000)
    trainer.callbacks = (fail,)
    return trainer

def first_fails():
    return fails("0")

def second_fails():
    return fails("1")

seven = 7
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


def test_json_and_a_target_that_is_missed(folder: Path, in_process: Outpace) -> None:
    done = in_process("train", "--json", "--quiet", "--budget", "30s", "mine:missed", cwd=folder)
    assert (done.returncode, done.stderr) == (3, "mine\n")
    told = json.loads(done.stdout)
    assert told["schema"] == 1
    assert told["stopped"] == "epochs"
    assert told["history"][0]["step"] == 10


def test_a_budget_ends_it(folder: Path, in_process: Outpace) -> None:
    done = in_process("train", "--json", "--quiet", "--budget", "1s", "mine:long", cwd=folder)
    assert (done.returncode, json.loads(done.stdout)["stopped"]) == (3, "budget")


def test_it_leaves_a_session_and_says_how_to_make_a_report_of_it(
    folder: Path, in_process: Outpace
) -> None:
    done = in_process("train", "mine:reached", cwd=folder)
    latest = folder / ".outpace" / "latest"
    name = latest.readlink().name
    assert name.endswith("-mine-reached")
    command = f"outpace report .outpace/{name} -o report.html"
    *_, weights, report = done.stderr.splitlines()
    assert report.endswith(command)
    assert weights == f"outpace: the best weights: .outpace/{name}/best.pt"
    torch.nn.Linear(8, 3).load_state_dict(torch.load(latest / "best.pt", weights_only=True))
    session = read_session(latest / "session.json")
    assert isinstance(session, Training)
    assert (session.what, session.stopped) == ("mine:reached", "target")
    assert session.time_to_target_s is not None
    assert outpace(*command.split()[1:], cwd=folder).returncode == 0
    assert "The target, accuracy 0.5, was reached" in (folder / "report.html").read_text()


@pytest.mark.parametrize("session", [None, "runs/a"])
def test_the_session_is_where_the_command_was_typed(
    folder: Path, session: str | None, in_process: Outpace
) -> None:
    """Hydra, for one, goes to a folder of its own."""
    words = ["--session", session] if session else []
    done = in_process("train", *words, "mine:goes_elsewhere", cwd=folder)
    assert done.returncode == 0, done.stderr
    home = folder / (session or ".outpace/latest")
    assert (home / "session.json").exists()
    assert list((folder / "elsewhere").iterdir()) == []


def test_what_json_prints_is_the_session(folder: Path, in_process: Outpace) -> None:
    done = in_process("train", "--json", "--quiet", "--session", "mine", "mine:missed", cwd=folder)
    assert done.stdout == (folder / "mine" / "session.json").read_text()
    assert not (folder / ".outpace").exists()
    again = in_process("train", "--quiet", "--session", "mine", "mine:reached", cwd=folder)
    assert (again.returncode, again.stderr) == (0, "")
    session = read_session(folder / "mine" / "session.json")
    assert isinstance(session, Training)
    assert session.what == "mine:reached"


def test_a_folder_of_another_origin_is_refused_before_training(
    folder: Path, in_process: Outpace
) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "session.json").write_text("mine")
    done = in_process("train", "--session", "other", "mine:reached", cwd=folder)
    assert done.returncode == 2
    assert "holds files, and none of a session" in done.stderr
    assert "ended by" not in done.stdout + done.stderr
    assert (folder / "other" / "session.json").read_text() == "mine"


@pytest.mark.parametrize("there", ["a file", "a link that leads nowhere"])
def test_where_no_folder_can_be_made_the_result_is_there_all_the_same(
    there: str, folder: Path, in_process: Outpace
) -> None:
    if there == "a file":
        (folder / ".outpace").touch()
    else:
        (folder / ".outpace").symlink_to("gone")
    done = in_process("train", "--quiet", "mine:reached", cwd=folder)
    assert done.returncode == 0
    assert "ended by target" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("outpace: the session folder .outpace/")
    assert "cannot be made" in line


def test_a_full_disk_is_told_in_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, record: object) -> None:
        if path.name == "session.json":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("outpace.cli.train.write_json", full)
    assert kept(trained(), None) is None
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("outpace: the session cannot be kept in .outpace/")
    assert line.endswith(": No space left on device")
    assert list((tmp_path / ".outpace").iterdir()) == []


def test_what_a_child_process_prints_is_not_in_the_document(
    folder: Path, in_process: Outpace
) -> None:
    done = in_process("train", "--json", "--quiet", "mine:noisy", cwd=folder)
    assert json.loads(done.stdout)["stopped"] == "epochs"
    assert done.stderr == "more\n"


@pytest.mark.parametrize("name", ["broken", "calls_back"])
def test_what_the_users_code_raises_is_not_our_mistake(
    name: str, folder: Path, in_process: Outpace
) -> None:
    done = in_process("train", "--json", "--quiet", f"mine:{name}", cwd=folder)
    assert done.returncode == json.loads(done.stdout)["exit_code"] == 1
    assert "Traceback" in done.stderr
    assert "mine.py" in done.stderr
    assert done.stderr.splitlines()[-1] == f"error: mine:{name} raised ZeroDivisionError"


@pytest.mark.parametrize("name", ["other_targets", "other_inputs"])
def test_what_a_library_raises_of_what_the_user_gave_is_not_our_mistake(
    name: str, folder: Path, in_process: Outpace
) -> None:
    done = in_process("train", "--json", "--quiet", f"mine:{name}", cwd=folder)
    assert done.returncode == json.loads(done.stdout)["exit_code"] == 1
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1] == f"error: mine:{name} raised RuntimeError"


def test_a_session_is_kept_though_nobody_reads_what_is_printed(folder: Path) -> None:
    with (folder / "said.txt").open("w") as said:
        child = subprocess.Popen(
            [sys.executable, "-m", "outpace", "train", "--quiet", "mine:reached"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=said,
        )
        assert child.stdout is not None
        child.stdout.close()
        child.wait(timeout=120)
    assert len([*folder.glob(".outpace/*/session.json")]) >= 1


def test_what_ends_the_program_is_told(folder: Path, in_process: Outpace) -> None:
    """As the usage error of a script that parses our words, which has nothing to do with them."""
    done = in_process("train", "--json", "--quiet", "mine:ends", cwd=folder)
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 1
    assert found["message"] == "mine:ends ended the program, with exit code 0"
    assert "__main__" in found["hint"]


def test_nor_is_a_module_that_cannot_be_imported(folder: Path, in_process: Outpace) -> None:
    (folder / "half.py").write_text("def make(:\n")
    done = in_process("train", "half:make", cwd=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "error: half:make raised SyntaxError"
    (folder / "absent_train.py").write_text("import absent\n")
    done = in_process("train", "absent_train:make", cwd=folder)
    assert "No module named 'absent'" in done.stderr
    assert "there is no module absent_train" not in done.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mine", "names no function"),
        ("./mine.py:make", "mine:make"),
        ("mine.py:make", "mine:make"),
        ("mine:seven", "mine:seven is a int"),
        ("mine:wants", "missing a required argument: 'more'"),
        ("mine:nobody", "mine has no nobody"),
        ("yours:make", "there is no module yours"),
        ("mine:nothing", "gives a int"),
    ],
)
def test_mistakes(folder: Path, name: str, said: str, in_process: Outpace) -> None:
    done = in_process("train", name, cwd=folder)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("way", ["--json", "--quiet"])
def test_of_several_ranks_one_prints_and_writes(
    way: str, torchrun: list[str], tmp_path: Path
) -> None:
    words = ["-m", "outpace", "train", way, "--quiet", "--session", str(tmp_path / "kept")]
    printed = printed_by([*torchrun[:-1], "2", *words, "tests.train.toys:trainer"])
    if way == "--json":
        assert json.loads(printed)["steps"] == 40
    else:
        assert printed.count("ended by epochs: 40 steps") == 1
    session = read_session(tmp_path / "kept" / "session.json")
    assert isinstance(session, Training)
    assert session.steps == 40
    assert len(list((tmp_path / "kept").iterdir())) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first_fails", "second_fails"])
def test_of_ranks_that_fail_one_prints_a_document(
    name: str, torchrun: list[str], folder: Path
) -> None:
    words = ["-m", "outpace", "train", "--json", "--quiet", f"mine:{name}"]
    done = ended([*torchrun, *words], 200, folder)
    assert done.returncode != 0
    assert json.loads(done.stdout)["outcome"] in ("error", "interrupted")
    assert "ZeroDivisionError" in done.stderr
