"""What the user's modules say by their text."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from outpace.measure.written import lays_flat, runs_anew, sets_cudnn


@pytest.mark.parametrize(
    ("line", "asked", "said"),
    [
        ("flat = parameters_to_vector(model.parameters())", lays_flat, True),
        ("flat = torch.cat([p.grad.view(-1) for p in parameters])", lays_flat, True),
        ("flat = torch.cat([p.data.view(-1) for p in parameters])", lays_flat, True),
        ("flat = [param.view(-1) for param in parameters]", lays_flat, True),
        ("x = x.view(x.size(0), -1)", lays_flat, False),
        ("loss = criterion(output.view(-1, n), target)", lays_flat, False),
        ("torch.backends.cudnn.benchmark = False", sets_cudnn, True),
        ("cudnn.deterministic=True", sets_cudnn, True),
        ("torch.use_deterministic_algorithms(True)", sets_cudnn, True),
        ("if torch.backends.cudnn.benchmark == True: pass", sets_cudnn, False),
    ],
)
def test_what_they_say(
    line: str,
    asked: Callable[[], bool],
    said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "helpers.py"
    path.write_text(line + "\n")
    module = ModuleType("helpers")
    module.__file__ = str(path)
    for name in list(sys.modules):  # the tests' own modules say all of it
        if name.startswith(("tests", "conftest", "__main__")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "helpers", module)
    assert asked() is said


@pytest.mark.parametrize("guarded", [True, False])
def test_whether_a_worker_would_train_too(
    guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text("if __name__ == '__main__':\n    train()\n" if guarded else "train()\n")
    main = ModuleType("__main__")
    main.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr("outpace.measure.written.forks", lambda: True)
    assert not runs_anew()
    monkeypatch.setattr("outpace.measure.written.forks", lambda: False)
    assert runs_anew() is not guarded
