"""Words, variables and pyproject.toml to what the commands call; what they print, and where."""

from __future__ import annotations

import importlib
import json
import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest

from outpace import cli
from outpace.cli.options import Duration, session_folder
from outpace.cli.progress import ProgressLine
from outpace.cli.settings import OPTIONS
from outpace.errors import NotProven, TargetError, UsageError
from outpace.plan.question import Question
from outpace.records.files import write_json
from outpace.records.session import Session
from outpace.records.target import Target
from outpace.remedies.catalog import all_remedies
from outpace.report.trace import chrome_trace
from tests.report.report_sessions import failed, images_diagnosed, images_tuned


class Called(dict[str, Any]):
    """What a command gave to the pipeline."""

    session: Session | None = None


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Called:
    """The pipeline's functions replaced by ones that note how they were called."""
    import outpace.api

    noted = Called()

    def fake(name: str, session: Callable[[], Session]) -> Callable[..., Session]:
        def function(target: Target, **settings: Any) -> Session:
            noted.update(settings, command=name, target=target)
            found = noted.session or session()
            write_json(settings["session"] / "session.json", found)
            return found

        return function

    def run(target: Target, **settings: Any) -> int:
        noted.update(settings, command="run", target=target)
        return 5

    monkeypatch.setattr(outpace.api, "diagnose", fake("diagnose", images_diagnosed))
    monkeypatch.setattr(outpace.api, "tune", fake("tune", images_tuned))
    monkeypatch.setattr(outpace.api, "run", run)
    monkeypatch.chdir(tmp_path)
    for name in [n for n in os.environ if n.startswith("OUTPACE_")]:
        monkeypatch.delenv(name)
    (tmp_path / "train.py").touch()
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "train.py").touch()
    return noted


@pytest.fixture
def say(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Give words to the command line: exit code, stdout, stderr."""

    def main(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["outpace", *words])
        with pytest.raises(SystemExit) as end:
            cli.main()
        assert isinstance(end.value.code, int)
        return (end.value.code, *capfd.readouterr())

    return main


Say = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "kind", "name", "args"),
    [
        (["train.py", "--time", "3", "-q"], "script", "train.py", ("--time", "3", "-q")),
        (["train.py", "--", "-m"], "script", "train.py", ("--", "-m")),
        (["-m", "pkg.train", "--json", "-o", "x"], "module", "pkg.train", ("--json", "-o", "x")),
        (["--", "train.py", "--lr=1"], "script", "train.py", ("--lr=1",)),
        (["--", "-m", "pkg.train", "--", "1"], "module", "pkg.train", ("--", "1")),
        (["--", "python", "train.py", "--steps"], "script", "train.py", ("--steps",)),
        (["--", "sh", "-c", "true"], "command", "sh", ("-c", "true")),
    ],
)
@pytest.mark.parametrize(
    "ours",
    [
        [],
        ["--steps", "7", "-q"],
        ["--session=s", "--seed", "-3"],
        ["-qo", "r.md"],
        ["-or.md", "-q"],
    ],
)
def test_what_comes_after_the_target_is_the_targets(
    called: Called, say: Say, ours: list[str], words: list[str], kind: str, name: str, args: Any
) -> None:
    assert say("diagnose", *ours, *words)[0] == 0
    target = called["target"]
    assert (target.kind, Path(target.name).name, target.args) == (kind, name, args)
    assert called["steps"] == (7 if "--steps" in ours else None)
    assert called["seed"] == (-3 if "--seed" in ours else None)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("45s", 45), ("2m", 120), ("1h30m", 5400), ("1.5 h", 5400), ("2min", 120), (7, 7)],
)
def test_durations(text: Any, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["soon", "", "3x", "0", "-5s", "1h nothing", True])
def test_no_durations(called: Called, say: Say, text: str) -> None:
    code, _, told = say("diagnose", "--time", str(text), "train.py")
    assert code == 2
    assert "'--time'" in told
    assert not called


@pytest.mark.parametrize(
    ("text", "size"),
    [("500M", 500 << 20), ("8GiB", 8 << 30), ("1.5 g", 3 << 29), ("2TB", 2 * 10**12)],
)
def test_sizes(called: Called, say: Say, text: str, size: int) -> None:
    say("tune", "--ram", text, "--disk", text, "train.py")
    assert (called["ram_bytes"], called["disk_bytes"]) == (size, size)


def test_options_of_a_proof_and_of_a_landing_get_there(called: Called, say: Say) -> None:
    assert say("tune", "--seeds", "5", "--margin", "0.02", "train.py")[0] == 0
    assert (called["seeds"], called["margin"]) == (5, 0.02)
    words = ("--no-recipe", "--deadline", "1h", "--schedule", "cosine", "--session", "mine")
    assert say("run", *words, "train.py")[0] == 5
    assert (called["land"], called["session"]) == ("cosine", Path("mine"))


def test_what_to_type_first(called: Called, say: Say, tmp_path: Path) -> None:
    code, elsewhere, _ = say("demo")
    assert (code, "The repository has four scripts" in elsewhere) == (0, True)
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "image_classifier.py").touch()
    (tmp_path / "Makefile").touch()
    code, here, _ = say("demo")
    assert (code, "You are in the repository" in here) == (0, True)


def test_the_page_of_a_remedy_and_all_as_rows(called: Called, say: Say) -> None:
    code, page, _ = say("remedies", "bf16")
    assert code == 0
    assert page.startswith("bf16  (keeps: numerics; treats: ")
    code, printed, _ = say("remedies", "--json")
    rows = json.loads(printed)
    assert code == 0
    assert [row["name"] for row in rows] == [kind.name for kind in all_remedies()]
    assert all(row["page"] and row["treats"] for row in rows)
    (alone,) = json.loads(say("remedies", "bf16", "--json")[1])
    assert alone in rows


def test_the_version(called: Called, say: Say) -> None:
    from importlib.metadata import version

    code, out, _ = say("--version")
    assert (code, version("outpace") in out) == (0, True)


@pytest.mark.parametrize("text", ["nan", "inf", "1e999", "-1", "0", ""])
def test_no_numbers(called: Called, say: Say, text: str) -> None:
    code, _, told = say("tune", f"--margin={text}", "train.py")
    assert (code, "'--margin'" in told) == (2, True), told
    assert not called


@pytest.mark.parametrize("text", ["much", "", "8", "-8G", "0G", "G", "8 cows", "0.1M"])
@pytest.mark.parametrize("option", ["--ram", "--disk"])
def test_no_sizes(called: Called, say: Say, option: str, text: str) -> None:
    code, _, told = say("tune", f"{option}={text}", "train.py")
    assert code == 2
    assert f"'{option}'" in told
    assert not called


def test_flags_win_over_variables_over_pyproject(
    called: Called, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        """
        [tool.outpace]
        time = "10s"
        quiet = true
        [tool.outpace.tune]
        time = "20s"
        skip = ["bf16", "tf32"]
        require-proof = true
        recipe = "recipes/fast.toml"
        """
    )
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    say("diagnose", "../train.py")
    assert called["time_s"] == 10
    say("tune", "../train.py")
    assert (called["time_s"], called["skip"]) == (20, ("bf16", "tf32"))
    assert called["require_proof"] is True
    assert called["recipe"] == tmp_path / "recipes" / "fast.toml"
    monkeypatch.setenv("OUTPACE_TIME", "30s")
    monkeypatch.setenv("OUTPACE_SKIP", "fp16")
    say("tune", "../train.py")
    assert (called["time_s"], called["skip"]) == (30, ("fp16",))
    say("tune", "--time", "40", "../train.py")
    assert called["time_s"] == 40


def test_a_flag_wins_over_what_pyproject_says_instead_of_it(
    called: Called, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "fast.toml").touch()
    (tmp_path / "pyproject.toml").write_text(
        "[tool.outpace]\nrecipe = 'fast.toml'\ndeadline = '9h'"
    )
    assert say("run", "train.py")[0] == 5
    assert called["recipe"] == tmp_path / "fast.toml"
    assert called["deadline"].seconds == 9 * 3600
    assert say("run", "--no-recipe", "--by", "2999-01-01", "train.py")[0] == 5
    assert called["recipe"] is None
    assert called["deadline"].at is not None
    (tmp_path / "pyproject.toml").write_text("[tool.outpace.run]\nno-recipe = true")
    say("run", "--recipe", "fast.toml", "train.py")
    assert called["recipe"] == Path("fast.toml")
    code, _, told = say("run", "--recipe", "fast.toml", "--no-recipe", "train.py")
    assert code == 2
    assert "exclude each other" in told


def test_what_pyproject_says_for_other_command_lines_is_left_out(
    called: Called, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.outpace]\nreserve = ['deploy=2h']\nland = true\nsteps = 50\nhours = 5\ndevice = 'h100'"
    )
    assert say("run", "--no-recipe", "train.py")[0] == 5
    assert called.get("deadline") is called.get("land") is None
    assert say("run", "--no-recipe", "--deadline", "9h", "train.py")[0] == 5
    assert called["deadline"].seconds == 7 * 3600
    assert called["land"] == "plateau"
    assert say("run", "--no-recipe", "--land", "train.py")[0] == 2
    asked: list[Question] = []

    def measure(*_: Any) -> Any:
        raise TargetError("not measured here")

    monkeypatch.setattr("outpace.cli.plan.measure", measure)

    def check(question: Question) -> None:
        asked.append(question)

    monkeypatch.setattr(Question, "check_script", check)
    say("plan", "train.py")
    say("plan", "--steps", "7", "train.py")
    told = [(one.steps, one.hours, one.device) for one in asked]
    assert told == [(None, None, "h100"), (7, None, "h100")]


@pytest.mark.parametrize(
    ("settings", "words", "code"),
    [
        ("deadline = '9h'\nreserve = ['deploy=2h']", "--memory train.py", 2),
        ("by = '06:00'", "--memory train.py", 2),
        ("cost = '200usd'\nobjective = 'cost'\nepochs = 3", "--memory train.py", 2),
        ("memory = true\nbatch = 64", "--deadline 9h train.py", 2),
        ("memory = true\nbatch = 64", "--flops 1e21", 0),
        ("batch = 64", "train.py", 2),
        ("batch = 64", "--deadline 9h", 0),
        ("deadline = '9h'\nreserve = ['deploy=2h']", "--flops 5.76e23", 0),
        ("hours = 3\ncost = '200usd'\nserved-tokens = '1T'", "--deadline 9h", 0),
        ("flops = '1e21'", "--params 1B --tokens 20B", 0),
        ("unique-tokens = '1B'", "--flops 1e21", 0),
        ("steps = 50", "--epochs 3 train.py", 2),
        ("objective = 'scale'", "train.py", 2),
        ("cost = '200usd'\nobjective = 'cost'", "train.py", 2),
        ("device = 'l4'", "--fit runs.csv", 0),
    ],
)
def test_what_a_project_sets_for_its_other_plans_is_left_out(
    called: Called,
    say: Say,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: str,
    words: str,
    code: int,
) -> None:
    def measure(*_: Any) -> Any:
        raise TargetError("not measured here")

    monkeypatch.setattr("outpace.cli.plan.measure", measure)
    monkeypatch.setattr("outpace.cli.plan.measured_sizes", measure)
    (tmp_path / "pyproject.toml").write_text(f"[tool.outpace.plan]\n{settings}")
    sizes = [(n, d) for n in (1e6, 1e7, 1e8) for d in (1e8, 1e9, 1e10)]
    rows = (f"{n},{d},{1.8 + 480 / n**0.35 + 2085 / d**0.37}\n" for n, d in sizes)
    (tmp_path / "runs.csv").write_text("parameters,tokens,loss\n" + "".join(rows))
    ended, _, told = say("plan", *words.split())
    assert (ended, told) == (code, "error: not measured here\n" if code else "")
    flags = [f"--{key.strip()}={value}" for key, value in _told(settings) if value != "true"]
    refused = say("plan", *flags, *words.split())
    assert refused[0] == 2, "on the command line it is an error, and not left out in silence"
    assert "not measured here" not in refused[2]


def _told(settings: str) -> list[tuple[str, str]]:
    pairs = (line.split(" = ") for line in settings.splitlines())
    return [(key, value.strip("[]'")) for key, value in pairs]


def test_a_project_tells_the_price_of_its_machine_and_not_of_others(
    say: Say, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.outpace.plan]\nusd-per-hour = 0.2")
    asked = ("plan", "--device", "h100", "--deadline", "9h")
    assert "your price" not in say(*asked)[1]
    assert "$1.80 (your price)" in say(*asked, "--usd-per-hour", "0.2")[1]


def test_what_is_to_be_tried_counts_before_what_a_project_leaves_out(
    called: Called, say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.outpace.tune]\nskip = ['bf16', 'tf32']")
    assert say("tune", "--only", "bf16", "train.py")[0] == 0
    assert (called["only"], called["skip"]) == (("bf16",), ("tf32",))
    (tmp_path / "pyproject.toml").write_text("[tool.outpace.tune]\nonly = ['bf16', 'tf32']")
    assert say("tune", "--skip", "bf16", "train.py")[0] == 0
    assert (called["only"], called["skip"]) == (("tf32",), ("bf16",))
    assert say("tune", "--skip", "bf16,tf32", "train.py")[0] == 2
    monkeypatch.setenv("OUTPACE_SKIP", "tf32")
    assert say("tune", "train.py")[0] == 0
    assert (called["only"], called["skip"]) == (("bf16",), ("tf32",))
    monkeypatch.delenv("OUTPACE_SKIP")
    code, _, told = say("tune", "--only", "bf16", "--skip", "bf16", "train.py")
    assert (code, told.splitlines()[0]) == (2, "error: bf16 is to be tried, and is to be left out")


def test_one_value_in_pyproject_for_an_option_that_may_be_repeated(
    called: Called, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.outpace]\nskip = 'bf16,tf32'")
    say("tune", "train.py")
    assert called["skip"] == ("bf16", "tf32")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.outpace]\ntim = 3", "did you mean 'time'?"),
        ("[tool.outpace.tun]\ntime = 3", "did you mean 'tune'?"),
        ("[tool.outpace.tune]\nfoo = 3", "unknown key 'foo'"),
        ("[tool.outpace", "cannot be read"),
        ("[tool]\noutpace = 3", "not a table"),
        ("[tool.outpace]\ntime = 'soon'", "'soon' is not a duration"),
        ("[tool.outpace]\ntime = true", "--time takes a value"),
        ("[tool.outpace]\noutput = ['a.html']", "output in "),
        ("[tool.outpace]\nsteps = 30.5", "'30.5' is not a valid integer"),
        ("tool = 5  # outpace", ""),
    ],
)
def test_mistakes_in_pyproject(
    called: Called, say: Say, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    code, _, told = say("diagnose", "train.py")
    assert (code, said in told) == (2 if said else 0, True), told
    assert "mistake in outpace" not in told


def test_numbers_in_pyproject_are_read_as_they_would_be_typed(
    called: Called, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.outpace]\nsession = 5\njson = 1\nsteps = 40")
    assert say("diagnose", "train.py")[0] == 0
    assert (called["session"], called["steps"]) == (tmp_path / "5", 40)


def test_a_variable_wins_over_pyproject_for_the_document_of_an_error(
    say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, called: Called
) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.outpace]\njson = true")
    for variable, printed in (("0", ""), ("1", '"outcome": "error"')):
        monkeypatch.setenv("OUTPACE_JSON", variable)
        code, out, _ = say("diagnose", "gone.py")
        assert code == 2
        assert printed in out if printed else not out


def test_an_option_without_its_value_is_told(say: Say) -> None:
    code, _, told = say("plan", "--flops")
    assert code == 2
    assert "'--flops' requires an argument" in told


def test_a_report_that_cannot_be_written_is_told_before_anything_is_measured(
    called: Called, say: Say
) -> None:
    code, _, told = say("diagnose", "-o", "/proc/report.html", "train.py")
    assert (code, "cannot be written" in told) == (2, True), told
    assert not called


def test_every_option_can_be_set_in_pyproject() -> None:
    assert set(OPTIONS) == set(cli.COMMANDS)
    for name, listed in OPTIONS.items():
        command = importlib.import_module(f"outpace.cli.{name}").command
        options = [p for p in command.params if isinstance(p, click.Option)]
        assert set(listed.split()) == {max(p.opts, key=len).lstrip("-") for p in options}, name


def test_every_option_can_be_set_by_a_variable() -> None:
    for name, listed in OPTIONS.items():
        command = importlib.import_module(f"outpace.cli.{name}").command
        options = [p for p in command.params if isinstance(p, click.Option)]
        wanted = {"OUTPACE_" + word.replace("-", "_").upper() for word in listed.split()}
        if name == "plan":  # the length of a training; `diagnose` ends after so many
            wanted = (wanted - {"OUTPACE_STEPS"}) | {"OUTPACE_PLAN_STEPS"}
        assert {p.envvar for p in options} == wanted, name


def test_another_tools_broken_pyproject_is_left_alone(
    called: Called, say: Say, tmp_path: Path
) -> None:
    (tmp_path / "pyproject.toml").write_text("[broken")
    assert say("diagnose", "train.py")[0] == 0


def test_json_alone_is_on_stdout(called: Called, say: Say) -> None:
    code, out, told = say("diagnose", "--json", "train.py")
    assert code == 0
    assert json.loads(out)["schema"] == 1
    assert called["output"] == "stderr"
    assert told == ""


def test_the_verdict_is_on_stderr(called: Called, say: Say) -> None:
    code, out, told = say("tune", "train.py")
    assert (code, out) == (0, "")
    assert called["output"] == "inherit"
    assert ".outpace/" in told
    assert "\x1b[" not in told


def test_the_diff_is_on_stdout(called: Called, say: Say) -> None:
    _, out, _ = say("tune", "--diff", "train.py")
    assert out == images_tuned().diff


def test_where_there_is_no_diff_it_is_told(called: Called, say: Say, tmp_path: Path) -> None:
    called.session = msgspec.structs.replace(images_tuned(), diff="")
    _, out, told = say("tune", "--diff", "train.py")
    assert out == ""
    assert "no patch" in told
    called.clear()
    (tmp_path / "fit.py").write_text("")
    code, _, told = say("tune", "--diff", "-m", "fit")
    assert code == 2
    assert "fit is a module" in told
    assert "output" not in called, "before anything is measured"


def test_the_diff_has_the_scripts_letters_where_stdout_has_not(
    called: Called, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    called.session = msgspec.structs.replace(images_tuned(), diff="+größe = 'ł'\n")
    monkeypatch.setattr(sys, "stdout", open(1, "w", encoding="latin-1", closefd=False))  # noqa: SIM115
    code, out, _ = say("tune", "--diff", "train.py")
    assert (code, out) == (0, "+größe = 'ł'\n")


def test_sessions(called: Called, say: Say, tmp_path: Path) -> None:
    for _ in range(2):
        say("diagnose", "train.py")
    folders = {p.name for p in (tmp_path / ".outpace").iterdir()}
    assert len(folders) == 3
    assert (tmp_path / ".outpace" / "latest").resolve() == called["session"].resolve()
    say("diagnose", "--session", "mine", "train.py")
    assert called["session"] == Path("mine")
    assert {p.name for p in (tmp_path / ".outpace").iterdir()} == folders


def test_two_sessions_of_the_same_second_have_folders_of_their_own(called: Called) -> None:
    assert len({session_folder(None, "train.py") for _ in range(3)}) == 3
    assert session_folder(None, "pkg.train").name.endswith("-pkg-train")
    assert session_folder(None, "runs/train.v2.py").name.endswith("-train-v2")


def test_no_folder_is_left_where_nothing_came_of_it(
    called: Called, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import outpace.api

    def fails(*_: Any, **__: Any) -> None:
        raise UsageError("no")

    monkeypatch.setattr(outpace.api, "diagnose", fails)
    assert say("diagnose", "train.py")[0] == 2
    assert list((tmp_path / ".outpace").iterdir()) == []


def test_the_newest_session_can_be_measured_again(called: Called, say: Say, tmp_path: Path) -> None:
    say("diagnose", "train.py")
    newest = (tmp_path / ".outpace" / "latest").resolve()
    assert say("diagnose", "--session", ".outpace/latest", "train.py")[0] == 0
    assert (tmp_path / ".outpace" / "latest").resolve() == newest
    assert (newest / "session.json").exists()


def test_a_trace_and_a_report_are_two_files(called: Called, say: Say, tmp_path: Path) -> None:
    code, _, told = say("diagnose", "--trace", "x.json", "-o", "x.json", "train.py")
    assert (code, told.splitlines()[0]) == (2, "error: x.json is to be the trace and the report")
    assert not (tmp_path / ".outpace").exists()


def test_a_trace_replaces_traces_only(called: Called, say: Say, tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text("mine")
    for name, said in [("mine.json", "--force"), ("pkg", "directory"), ("no/t.json", "no folder")]:
        code, _, told = say("diagnose", "--trace", name, "train.py")
        assert (code, said in told) == (2, True), told
        assert not called, "found out before anything was measured"
    assert say("diagnose", "--trace", "mine.json", "--force", "train.py")[0] == 0
    (tmp_path / "mine.json").write_text(chrome_trace([]))
    assert say("diagnose", "--trace", "mine.json", "train.py")[0] == 0
    assert say("diagnose", "--trace", "new.json", "train.py")[0] == 0


def test_a_tuning_that_proves_nothing_is_told_all_the_same(
    called: Called, say: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    import outpace.api

    def unproven(target: Target, **settings: Any) -> None:
        raise NotProven("loss at most 3 % worse, margin 1 %", "more --time", session=images_tuned())

    monkeypatch.setattr(outpace.api, "tune", unproven)
    code, out, told = say("tune", "--json", "--require-proof", "train.py")
    assert (code, json.loads(out)["command"]) == (4, "tune")
    assert told == "error: loss at most 3 % worse, margin 1 %\nhint: more --time\n"
    assert "Remedies tried" in say("tune", "--require-proof", "train.py")[2]


def test_a_report_as_well(called: Called, say: Say, tmp_path: Path) -> None:
    assert say("diagnose", "-o", "report.md", "train.py")[0] == 0
    assert "image_classifier" in (tmp_path / "report.md").read_text()
    (tmp_path / "notes.md").write_text("mine")
    for name, said in [
        ("notes.md", "--force"),
        ("report.pdf", ".html, .md or .json"),
        ("no/r.md", "no folder"),
    ]:
        called.clear()
        code, _, told = say("diagnose", "-o", name, "train.py")
        assert (code, said in told) == (2, True), told
        assert not called, "found out before anything was measured"
    assert say("diagnose", "-o", "notes.md", "--force", "train.py")[0] == 0
    assert (tmp_path / "notes.md").read_text() != "mine"


def test_exit_codes(called: Called, say: Say, tmp_path: Path) -> None:
    called.session = failed()
    assert say("diagnose", "train.py")[0] == called.session.exit_code
    assert say("run", "--no-recipe", "train.py")[0] == 5
    assert called["recipe"] is None
    code, _, told = say("run", "train.py")
    assert (code, "outpace tune train.py" in told) == (2, True)
    (tmp_path / "outpace.toml").touch()
    assert say("run", "train.py")[0] == 5
    assert called["recipe"] == Path("outpace.toml")


def test_how_errors_are_told(
    called: Called, say: Say, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fails(error: BaseException) -> Callable[..., None]:
        def function(*_: Any, **__: Any) -> None:
            raise error

        return function

    import outpace.api

    monkeypatch.setattr(outpace.api, "diagnose", fails(UsageError("that happened", "do this")))
    assert say("diagnose", "train.py") == (2, "", "error: that happened\nhint: do this\n")
    assert "Traceback" in say("diagnose", "--verbose", "train.py")[2]
    import logging

    logging.getLogger("outpace").setLevel(logging.NOTSET)
    monkeypatch.setattr(outpace.api, "diagnose", fails(ZeroDivisionError("ours")))
    code, out, told = say("diagnose", "train.py")
    assert (code, out) == (2, "")
    assert "ZeroDivisionError: ours" in told
    assert told.splitlines()[-1] == "hint: please report it with the lines above"
    monkeypatch.setattr(outpace.api, "diagnose", fails(KeyboardInterrupt()))
    code, _, told = say("diagnose", "--session", "s", "train.py")
    assert (code, told) == (130, "error: interrupted before anything was measured\n")
    write_json(tmp_path / "s" / "session.json", images_diagnosed())
    code, _, told = say("diagnose", "--session", "s", "train.py")
    assert told == "error: interrupted before anything was measured\n", "another use's session"

    def interrupted(*_: Any, **__: Any) -> None:
        write_json(tmp_path / "s" / "session.json", images_diagnosed())
        raise KeyboardInterrupt

    monkeypatch.setattr(outpace.api, "diagnose", interrupted)
    code, out, told = say("diagnose", "--json", "--session", "s", "train.py")
    assert (code, json.loads(out)["outcome"]) == (130, "interrupted")
    assert told.splitlines()[-1] == "hint: what was measured by then: outpace report s"


@pytest.mark.parametrize("command", list(cli.COMMANDS))
def test_help(say: Say, command: str) -> None:
    code, out, told = say(command, "--help")
    assert (code, told) == (0, "")
    assert f"outpace {command}" in out
    assert "Example" in out


def test_a_script_where_a_command_belongs(say: Say) -> None:
    code, _, told = say("train.py", "--lr", "1")
    assert (code, "outpace tune train.py" in told) == (2, True)


# --- progress --------------------------------------------------------------------------------


def test_progress_elsewhere_is_a_line_a_phase(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressLine() as progress:
        for phase in ("watching", "trials"):
            for done in range(5):
                progress(phase, done, 5, "note")
    assert capfd.readouterr().err == "outpace: watching\noutpace: trials\n"
    with ProgressLine(quiet=True) as progress:
        progress("watching", 1, 2)
    assert capfd.readouterr().err == ""


DRAWS = """
from outpace.cli import progress as module
class Clock:
    now = 0.0
    @classmethod
    def monotonic(cls):
        return cls.now
module.time = Clock
with module.ProgressLine() as progress:
    for i in range(200):
        progress("watching", i, 200, "one arm")
        if i % 50 == 0:
            print("line", i, flush=True)
        Clock.now += 0.005
print("the end")
"""


def in_terminal(command: list[str], **env: str) -> str:
    """What a command writes to a terminal of 80 x 24."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update({"TERM": "xterm", "LINES": "24", "COLUMNS": "80", **env})
        os.execv(command[0], command)
    text = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        text += chunk
    os.waitpid(pid, 0)
    os.close(terminal)
    return text.decode()


def test_progress_on_a_terminal_keeps_to_the_last_row() -> None:
    text = in_terminal([sys.executable, "-c", DRAWS])
    assert text.count("\x1b[1;23r") == 1
    assert text.count("outpace  watching") == 5
    assert "\x1b[36m" in text
    # Without our own drawing, the target's lines are as they would be.
    plain = re.sub(r"\x1b7.*?\x1b8", "", text).replace("\n\x1b[1A", "", 1).replace("\r", "")
    assert plain == "line 0\nline 50\nline 100\nline 150\nthe end\n"
    assert text.index("\x1b[r") < text.index("the end")


def test_no_color_is_obeyed() -> None:
    assert "\x1b[36m" not in in_terminal([sys.executable, "-c", DRAWS], NO_COLOR="1")
    code = "from outpace.cli.telling import tell; tell('x', 'y')"
    assert "\x1b[" in in_terminal([sys.executable, "-c", code])
    assert "\x1b[" not in in_terminal([sys.executable, "-c", code], NO_COLOR="1")


def test_a_dumb_terminal_gets_lines() -> None:
    assert "\x1b" not in in_terminal([sys.executable, "-c", DRAWS], TERM="dumb")


# --- both ways to start it ---------------------------------------------------------------------

STARTS = {
    "outpace": [str(Path(sys.executable).parent / "outpace")],
    "python -m outpace": [sys.executable, "-m", "outpace"],
}


@pytest.mark.parametrize("start", list(STARTS))
def test_run_is_what_python_is(start: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import os, sys\n"
        "print(sys.argv, sys.path, os.getcwd(), sys.stdin.read(), sorted(os.environ.items()))\n"
        "sys.exit(3)\n"
    )
    words = ["train.py", "--lr", "1"]
    plain = [sys.executable, *words]
    ours = [*STARTS[start], "run", "--no-recipe", *words]
    expected, found = (
        subprocess.run(command, cwd=tmp_path, input=b"in", capture_output=True)
        for command in (plain, ours)
    )
    assert found.returncode == expected.returncode == 3
    assert (found.stdout, found.stderr) == (expected.stdout, expected.stderr)


@pytest.mark.parametrize("start", list(STARTS))
def test_ctrl_c(start: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\nprint('ready', flush=True)\ntime.sleep(60)\n")
    process = subprocess.Popen(
        [*STARTS[start], "run", "--no-recipe", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130
    assert told.splitlines()[-1] == "KeyboardInterrupt"
    assert told.count("Traceback") == 1
    assert "outpace/" not in told.replace(str(tmp_path), "")


def test_an_interrupt_that_the_target_meets_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import time\ntry:\n    print('ready', flush=True)\n    time.sleep(60)\n"
        "except KeyboardInterrupt:\n    print('saved')\n"
    )
    process = subprocess.Popen(
        [*STARTS["outpace"], "run", "--no-recipe", "train.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    # To outpace alone, as a supervisor does: passed on after a while.
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)  # it would sleep for 60 s
    assert (process.returncode, out) == (0, "saved\n")


def test_streams_that_are_closed_stop_no_training(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('trained'); open('done', 'w').close()")
    line = f"{sys.executable} -m outpace run --deadline 1h train.py <&- >&- 2>&-"
    assert subprocess.run(line, shell=True, cwd=tmp_path).returncode == 0
    assert (tmp_path / "done").exists()
