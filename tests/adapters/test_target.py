"""What the words on the command line name, and what is said where they name nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from outpace.adapters.launch import command_of
from outpace.adapters.target import parse_target
from outpace.errors import OutpaceError, TargetError, UsageError
from outpace.records.target import Target


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "fit.py").write_text("print(2)\n")
    (tmp_path / "notes.txt").write_text("no script\n")
    (tmp_path / "empty").mkdir()
    start = tmp_path / "start.sh"
    start.write_text("#!/bin/sh\n")
    start.chmod(0o755)
    (tmp_path / "trainer").write_text("#!/usr/bin/env python3\nprint(3)\n")
    return tmp_path


def parsed(project: Path, *words: str) -> tuple[str, str, tuple[str, ...]]:
    target = parse_target(words, str(project))
    assert target.cwd == str(project)
    return target.kind, target.name, target.args


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.py"], ("script", "train.py", ())),
        (["./train.py", "--lr", "1"], ("script", "./train.py", ("--lr", "1"))),
        (["pkg/fit.py", "-m", "x"], ("script", "pkg/fit.py", ("-m", "x"))),
        (["train.py", "--", "-q"], ("script", "train.py", ("--", "-q"))),
        (["trainer"], ("script", "trainer", ())),
        (["-m", "pkg.fit", "-m", "1"], ("module", "pkg.fit", ("-m", "1"))),
        (["--", "train.py"], ("script", "train.py", ())),
        (["python", "train.py", "a"], ("script", "train.py", ("a",))),
        (["python3", "-u", "train.py"], ("script", "train.py", ())),
        (["python", "-m", "pkg.fit", "b"], ("module", "pkg.fit", ("b",))),
        ([sys.executable, "train.py"], ("script", "train.py", ())),
        (["-m", "json.tool"], ("module", "json.tool", ())),
        (["python3", "-O", "train.py"], ("command", "python3", ("-O", "train.py"))),
        (["sh", "-c", "true"], ("command", "sh", ("-c", "true"))),
        (["./start.sh", "1"], ("command", "./start.sh", ("1",))),
        (["start.sh"], ("command", "./start.sh", ())),
    ],
)
def test_words(project: Path, words: list[str], expected: tuple[str, str, tuple[str, ...]]) -> None:
    assert parsed(project, *words) == expected


@pytest.mark.parametrize("words", [["train.py"], ["-m", "pkg.fit"]])
def test_output_that_was_to_be_unbuffered_is(project: Path, words: list[str]) -> None:
    assert command_of(parse_target(["python", "-u", *words], str(project)))[1] == "-u"
    assert "-u" not in command_of(parse_target(["python", *words, "-u"], str(project)))[:2]


def test_a_folder_of_the_name_of_an_installed_module_is_not_taken_for_it(project: Path) -> None:
    (project / "json").mkdir()
    assert parsed(project, "-m", "json.tool") == ("module", "json.tool", ())
    (project / "json" / "__init__.py").touch()
    with pytest.raises(TargetError, match=r"no module json\.tool"):
        parsed(project, "-m", "json.tool")


def test_an_absolute_path_stays_one(project: Path) -> None:
    path = str(project / "train.py")
    assert parse_target([path]) == Target("script", path, (), os.getcwd())


def test_another_interpreter_stays_a_command(project: Path) -> None:
    other = project / "bin" / "python"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert parsed(project, str(other), "train.py") == ("command", str(other), ("train.py",))


def test_a_program_of_our_own_environment(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = project / "bin" / "torchrun"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tool.parent / "python"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert parsed(project, "torchrun", "train.py") == ("command", str(tool), ("train.py",))


@pytest.mark.parametrize(
    ("words", "kind", "message", "hint"),
    [
        ([], UsageError, "no target", "train.py"),
        (["python"], UsageError, "no script", "train.py"),
        (["-m"], UsageError, "no module", "-m pkg.train"),
        (["-m", "pkg/fit.py"], TargetError, "no module's name", "-m pkg.fit"),
        (["-m", "pkg.fti"], TargetError, "no module pkg.fti", "did you mean -m pkg.fit?"),
        (["-m", "zzzzzz"], TargetError, "no module zzzzzz", "looked in"),
        (["trayn.py"], TargetError, "no file trayn.py", "did you mean train.py?"),
        (["train"], TargetError, "no file train", "did you mean train.py?"),
        (["pkg/fti.py"], TargetError, "no file pkg/fti.py", "did you mean pkg/fit.py?"),
        (["fit.py"], TargetError, "no file fit.py", "did you mean pkg/fit.py?"),
        (["gone/fit.py"], TargetError, "no file gone/fit.py", "no folder"),
        (["zzzzzz.py"], TargetError, "no file zzzzzz.py", "looked in"),
        (["zzzzzz"], TargetError, "no such command", "torchrun"),
        (["pkg"], TargetError, "pkg is a folder", "did you mean pkg/fit.py?"),
        (["empty"], TargetError, "empty is a folder", "name the script"),
        (["notes.txt"], TargetError, "no Python script", "torchrun"),
        (["python", "trayn.py"], TargetError, "no file trayn.py", "did you mean train.py?"),
    ],
)
def test_mistakes(
    project: Path, words: list[str], kind: type[OutpaceError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        parse_target(words, str(project))
    assert message in caught.value.message
    assert caught.value.hint is not None
    assert hint in caught.value.hint
