"""Libraries that open files in C: their calls are handed the place of the bytes.

A new one is a row of `outpace.seams.writes.rows`, or a function of `outpace.seams.writes.special`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ClassMethodDescriptorType, ModuleType
from typing import Any

from outpace.seams.in_place_of import in_place_of
from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.places import place_for, written
from outpace.seams.writes.rows import ROWS, Row
from outpace.seams.writes.special import SPECIAL

MODULES = frozenset([row.module for row in ROWS] + [module for module, _ in SPECIAL])


def _taking_place(overlay: Overlay, call: Any, row: Row) -> Any:
    @functools.wraps(call)
    def redirected(*args: Any, **kwargs: Any) -> Any:
        if len(args) > row.position:
            place = place_for(overlay, args[row.position], row.use)
            args = (*args[: row.position], place, *args[row.position + 1 :])
        elif row.keyword in kwargs:
            kwargs[row.keyword] = place_for(overlay, kwargs[row.keyword], row.use)
        found = call(*args, **kwargs)
        return [written(overlay, each) for each in found] if row.use == "folder" else found

    return redirected


class _Finder:
    """Changes a library when it was imported."""

    def __init__(self, imported: Callable[[str], None]) -> None:
        self.imported = imported

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec that the others find, with our change after the module has run."""
        if name not in MODULES:
            return None
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self._follow(name, spec.loader)
                return spec
        return None

    def _follow(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            self.imported(name)

        loader.exec_module = exec_module


def install(overlay: Overlay) -> Callable[[], None]:
    """Change the libraries, those not imported yet when they are; the function that undoes it."""
    undone: list[tuple[Any, str, Any]] = []
    """owner, name, and what it had there itself"""

    def put(name: str, dotted: str, make: Callable[[Overlay, Any], Any]) -> None:
        *way, last = dotted.split(".")
        owner: Any = sys.modules[name]
        for part in way:
            owner = getattr(owner, part, None)
        original = getattr(owner, last, None)
        if original is not None:
            changed = make(overlay, original)
            if isinstance(owner, ModuleType):
                changed = in_place_of(owner, last)(changed)
            else:
                changed.__module__, changed.__qualname__ = name, dotted  # as which it is pickled
            own = vars(owner).get(last)
            undone.append((owner, last, own))
            bound = isinstance(own, staticmethod | classmethod | ClassMethodDescriptorType)
            setattr(owner, last, staticmethod(changed) if bound else changed)

    def imported(name: str) -> None:
        for row in ROWS:
            if row.module == name:
                put(name, row.call, functools.partial(_of_row, row))
        for (module, dotted), make in SPECIAL.items():
            if module == name:
                put(name, dotted, make)

    # Beside TensorFlow its event files are written by that, in C++; this has them written in Python.
    stub = "tensorboard.compat.notf"
    written_in_python = stub not in sys.modules
    sys.modules.setdefault(stub, ModuleType(stub))
    finder = _Finder(imported)
    sys.meta_path.insert(0, finder)
    for name in MODULES & set(sys.modules):
        imported(name)

    def undo() -> None:
        if written_in_python:
            sys.modules.pop(stub, None)
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        for owner, last, own in reversed(undone):
            if own is None:
                delattr(owner, last)
            else:
                setattr(owner, last, own)

    return undo


def _of_row(row: Row, overlay: Overlay, call: Any) -> Any:
    return _taking_place(overlay, call, row)
