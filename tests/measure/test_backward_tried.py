"""Whether a script catches what a backward pass raises."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from outpace.measure.backward_tried import backward_tried

CASES = {
    "a guard": (
        """
        for x in batches:
            try:
                model(x).sum().backward()
            except RuntimeError:
                continue
            optimizer.step()
        """,
        True,
    ),
    "of any error": ("try:\n    scaler.scale(loss).backward()\nexcept:\n    pass", True),
    "of several errors": (
        "try:\n    loss.backward()\nexcept (ValueError, builtins.Exception) as error:\n    print(1)",
        True,
    ),
    "suppressed": ("with contextlib.suppress(RuntimeError):\n    loss.backward()", True),
    "around a function": (
        """
        def step(x):
            learn(model(x).sum())

        def learn(loss):
            loss.backward()

        try:
            step(x)
        except RuntimeError:
            skipped += 1
        """,
        True,
    ),
    "in one case alone": (
        """
        for x in batches:
            try:
                model(x).sum().backward()
            except RuntimeError as error:
                if "nan" in str(error):
                    optimizer.zero_grad()
                    continue
                raise
        """,
        True,
    ),
    "tried again before it is raised": (
        """
        try:
            loss.backward()
        except RuntimeError as error:
            try:
                rescue()
            finally:
                print(error)
            raise
        """,
        True,
    ),
    "left by a finally": (
        """
        for x in batches:
            try:
                model(x).sum().backward()
            finally:
                continue
        """,
        True,
    ),
    "of gradients that are asked for": (
        "try:\n    grads = torch.autograd.grad(loss, weights)\nexcept RuntimeError:\n    grads = None",
        True,
    ),
    "several errors at once": ("try:\n    loss.backward()\nexcept* RuntimeError:\n    pass", True),
    "none": ("loss.backward()", False),
    "of other errors": ("try:\n    loss.backward()\nexcept KeyError:\n    pass", False),
    "raised again": (
        "try:\n    loss.backward()\nexcept RuntimeError:\n    failed += 1\n    print(failed)\n    raise",
        False,
    ),
    "around something else": (
        "try:\n    save()\nexcept Exception:\n    pass\nloss.backward()",
        False,
    ),
    "cleaning up": ("try:\n    loss.backward()\nfinally:\n    done()", False),
    "no Python": ("loss.backward(", False),
}


@pytest.mark.parametrize("name", CASES)
def test_it_is_read_in_the_users_modules(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, tried = CASES[name]
    module = ModuleType("training")
    module.__file__ = str(tmp_path / "training.py")
    (tmp_path / "training.py").write_text(textwrap.dedent(text))
    for other in list(sys.modules):  # the tests' own modules may do so
        if other.startswith(("tests", "conftest", "__main__")):
            monkeypatch.delitem(sys.modules, other)
    monkeypatch.setitem(sys.modules, "training", module)
    assert backward_tried() is tried
