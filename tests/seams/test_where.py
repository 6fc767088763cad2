"""Which files are the user's."""

from __future__ import annotations

import importlib.util
import os
import sys
import sysconfig
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
from tests.conftest import plainly

from outpace.seams.where import _libraries, is_user_file, locals_of, takes_locals


def test_what_torch_compile_writes_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generated = tmp_path / "cache" / "ab" / "cab.py"
    is_user_file.cache_clear()
    assert is_user_file(str(generated))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    is_user_file.cache_clear()
    assert not is_user_file(str(generated))
    assert is_user_file(str(tmp_path / "train.py"))
    assert not is_user_file("/tmp/torchinductor_me/ab/cab.py")
    assert not is_user_file(os.path.join(sysconfig.get_paths()["stdlib"], "json", "decoder.py"))
    is_user_file.cache_clear()


def test_packages_are_nowhere_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    is_user_file.cache_clear()
    assert not is_user_file("/usr/lib/python3/dist-packages/torch/nn/modules/module.py")
    where = SimpleNamespace(origin="/opt/built/torch/__init__.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: where)
    assert "/opt/built/torch/" in _libraries()


def test_names_that_exec_has_made_stay() -> None:
    """Up to Python 3.12 they are in the dict that a frame shows, and nowhere else."""

    class Held:
        """Something that the function lets go."""

    def work() -> tuple[float, weakref.ref[Held]]:
        exec("scale = 0.5")  # noqa: S102
        held = Held()
        gone = weakref.ref(held)
        found = locals_of(sys._getframe())
        assert found is not None
        assert found["held"] is held
        del found, held
        return eval("scale"), gone

    scale, gone = work()
    assert scale == 0.5
    assert gone() is None


GONE = """
    import os, sys, tempfile
    from outpace.seams.where import caller, is_user_file, short

    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
    print(caller() == f"{sys.argv[0]}:7", short("/a/b.py"), is_user_file("train.py"))
    """


def test_a_working_directory_that_is_gone(script: Callable[[str], Path]) -> None:
    path = script(GONE)
    done = plainly(path.absolute())
    assert done.stdout.split() == ["True", "/a/b.py", "True"], done.stderr


def test_a_debugger_that_shows_a_function_leaves_it_its_variables() -> None:
    """Up to Python 3.12 what a trace function is shown is written back after it."""

    def work() -> int:
        value = 3
        other = value + 1
        return value + other

    def look(frame: FrameType, event: str, arg: object) -> object:
        locals_of(frame)
        return look

    before = sys.gettrace()
    sys.settrace(lambda frame, *_: look if frame.f_code is work.__code__ else None)
    try:
        found = work()
    finally:
        sys.settrace(before)
    assert found == 7


@pytest.mark.parametrize(
    ("made", "taken"),
    [
        ("locals()", True),
        ("vars()", True),
        ("vars(given)", False),
        ("dict(vars(given), other=vars(given))", False),
        ("list(map(vars, given))", False),
        ("(vars(given), vars())", True),
    ],
)
def test_which_functions_take_their_own_variables(made: str, taken: bool) -> None:
    """``vars(args)`` is how scripts print what they were called with."""
    names: dict[str, Any] = {}
    exec(f"def main(given):\n    return {made}\n", names)  # noqa: S102
    assert takes_locals(names["main"].__code__) is taken
