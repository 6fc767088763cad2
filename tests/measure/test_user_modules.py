"""The user's modules are read as they stand, those that are not run yet among them."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.conftest import waiting_module

from outpace.measure.added import where_added
from outpace.measure.user_modules import file_of, user_modules
from outpace.tune.apply import reports

TEXT = "raise RuntimeError('it was run')\nimport outpace\noutpace.log(loss=1)\nkept.append(1)\n"


@pytest.fixture
def waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The file of a module that fails once it is run, which any attribute of it does."""
    file = tmp_path / "waiting_of_tests.py"
    file.write_text(TEXT)
    os.utime(file, (1e9, 1e9))  # what was edited since is not read
    module = waiting_module(file)
    for other in list(sys.modules):  # the tests' own modules may do so
        if other.startswith(("tests", "conftest", "__main__")):
            monkeypatch.delitem(sys.modules, other)
    monkeypatch.setitem(sys.modules, "waiting_of_tests", module)
    return str(file)


def added() -> bool:
    frame = inspect.currentframe()
    assert frame is not None
    return where_added("kept", frame).endswith("waiting_of_tests.py:4")


@pytest.mark.parametrize(
    "reads", [lambda: TEXT.splitlines(keepends=True) in list(user_modules()), reports, added]
)
def test_no_module_is_run_to_be_read(waiting: str, reads: Callable[[], bool]) -> None:
    assert reads()
    assert file_of(sys.modules["waiting_of_tests"]) == waiting


class WithoutFile(ModuleType):
    """Imports what it stands for as it is asked for anything."""

    def __getattr__(self, name: str) -> Any:
        raise ImportError(name)


class Slots:
    __slots__ = ()


class Hiding:
    @property
    def __dict__(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize("odd", [None, 1, Slots(), Hiding(), Hiding, WithoutFile("odd")])
def test_what_else_is_in_their_place_has_no_file(odd: Any, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "odd_of_tests", odd)
    assert file_of(odd) is None
    list(user_modules())
