"""Which functions run for a sample, whatever they are hidden in."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset

from outpace.serve.reached import Closed, reached, reached_or_closed
from tests.conftest import waiting_module
from tests.remedies.trainings import hosted


class Rows(Dataset[Any]):
    def __init__(self, tool: Any = None) -> None:
        self.tool = tool

    def __getitem__(self, index: Any) -> Any:
        return self.tool(index)


def clean(x: Any) -> Any:
    return x


def names(*makers: Any) -> set[str]:
    """The functions that are found, as far as they are of these tests."""
    found = reached(*makers)
    return {each.function.__qualname__ for each in found if each.function.__module__ == __name__}


def closed(*makers: Any) -> list[str]:
    return [each.why for each in reached_or_closed(*makers) if isinstance(each, Closed)]


class Clean(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


class Calling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.child = Clean()
        self.aside = Store()

    def forward(self, x: Any) -> Any:
        return self.child.other(x)


class Composed:
    """As transforms are put together elsewhere."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, x: Any) -> Any:
        for each in self.transforms:
            x = each(x)
        return x


def hook(module: nn.Module, args: Any) -> None:
    pass


def hooked() -> nn.Module:
    layer = nn.ReLU()
    layer.register_forward_pre_hook(hook)
    return layer


@pytest.mark.parametrize("seams", [False, True])
@pytest.mark.parametrize(
    "module",
    [Clean(), nn.Sequential(nn.ReLU(), nn.Sequential(Clean())), Composed(nn.ReLU(), Clean())],
    ids=["itself", "a child", "one of a list"],
)
def test_what_a_module_computes(module: Any, seams: bool) -> None:
    if not seams:
        assert "Clean.forward" in names(Rows(module))
        return
    with hosted():
        assert "Clean.forward" in names(Rows(module))


def test_hooks_of_a_module() -> None:
    assert "hook" in names(Rows(hooked()))


class Store:
    """An object that others have."""

    rows = 3

    def row(self, index: Any) -> Any:
        return self.found(index)

    def found(self, index: Any) -> Any:
        return index

    @property
    def first(self) -> Any:
        return self.found(0)

    def __contains__(self, index: Any) -> bool:
        return True


class Slots:
    __slots__ = ("store",)

    def __init__(self) -> None:
        self.store = Store()


class Tools:
    @staticmethod
    def clean(x: Any) -> Any:
        return x

    @classmethod
    def scale(cls, x: Any) -> Any:
        return cls.clean(x)

    @staticmethod
    @torch.no_grad()
    def quiet(x: Any) -> Any:
        return x


class Sample:
    def __init__(self, x: Any) -> None:
        self.x = x

    def scaled(self) -> Any:
        return self.x


class Through:
    """An object that passes on what it has not itself."""

    def __init__(self) -> None:
        self.inner = Store()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


STORE = Store()


def enclosing() -> Callable[[Any], Any]:
    store = Store()
    return lambda index: store.row(index) * 2


class OfItsClass(Rows):
    store = Store()

    def __getitem__(self, index: Any) -> Any:
        return self.store.row(index)


class Deep(Rows):
    def __getitem__(self, index: Any) -> Any:
        return self.tool.store.row(index)


class Several(Rows):
    def __getitem__(self, index: Any) -> Any:
        return self.tool[0].row(index)


class Direct(Rows):
    def __getitem__(self, index: Any) -> Any:
        return self.tool.row(index)


class ByText(Rows):
    def __getitem__(self, index: Any) -> Any:
        return getattr(self.tool, "row")(index)  # noqa: B009 - as scripts do


@pytest.mark.parametrize(
    ("maker", "wanted"),
    [
        (Direct(Store()), {"Store.row", "Store.found"}),
        (OfItsClass(), {"Store.row", "Store.found"}),
        (Deep(Slots()), {"Store.row"}),
        (Several([Store()]), {"Store.row"}),
        (Direct(Through()), {"Store.row"}),
        (ByText(Store()), {"Store.row"}),
        (Rows(enclosing()), {"Store.row"}),
        (lambda index: STORE.row(index) * 2, {"Store.row", "Store.found"}),
        (lambda index: index * STORE.first, {"Store.first", "Store.found"}),
        (lambda index: index in STORE, {"Store.__contains__"}),
        (lambda x: Tools.clean(x) * 2, {"Tools.clean"}),
        (lambda x: Tools.scale(x) * 2, {"Tools.scale", "Tools.clean"}),
        (lambda x: Tools.quiet(x) * 2, {"Tools.quiet"}),
        (lambda x: Sample(x).scaled(), {"Sample.__init__", "Sample.scaled"}),
        (Rows(Calling()), {"Calling.forward"}),
    ],
)
def test_methods_of_other_objects(maker: Any, wanted: set[str]) -> None:
    assert wanted <= names(maker)


def test_what_is_not_named_is_not_found() -> None:
    wanted = {"Direct.__getitem__", "Rows.__getitem__", "Store.row", "Store.found"}
    assert names(Direct(Store())) == wanted | {"Store.__contains__"}
    assert names(TensorDataset(torch.ones(3))) == set()
    assert not closed(TensorDataset(torch.ones(3)), torch.stack, np.stack)


class Above(Rows):
    def __init__(self, tool: Any = None) -> None:
        super().__init__(tool)

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(index)


def test_how_a_data_set_is_made_is_not_how_its_samples_are() -> None:
    assert names(Above()) == {"Above.__getitem__", "Rows.__getitem__"}


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator that does not tell what it wraps."""

    def inner(*args: Any) -> Any:
        return function(*args)

    return inner


class Compiled:
    """As numba keeps a function."""

    __call__ = len

    def __init__(self, function: Any) -> None:
        self.py_func = function


class Decorated(Rows):
    @torch.no_grad()
    def __getitem__(self, index: Any) -> Any:
        return self.clean(index)

    @functools.lru_cache  # noqa: B019 - as scripts do
    def clean(self, x: Any) -> Any:
        return self.last(x)

    @bare
    def last(self, x: Any) -> Any:
        return x


def test_what_decorators_hide() -> None:
    found = {each.function.__qualname__: each.owner for each in reached(Decorated())}
    for name in ("__getitem__", "clean", "last"):
        assert isinstance(found[f"Decorated.{name}"], Decorated)


@pytest.mark.parametrize(
    "hide",
    [
        torch.no_grad(),
        functools.lru_cache,
        functools.partial,
        bare,
        Compiled,
        np.vectorize,
        torch.jit.script,
        lambda function: functools.partial(bare, function),
    ],
)
def test_what_wrappers_hide(hide: Callable[..., Any]) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert any(name.endswith("doubled") for name in names(Rows(hide(doubled))))
    assert any(name.endswith("doubled") for name in names(hide(doubled)))


def with_default(x: Any, tool: Callable[[Any], Any] = clean, *, other: Any = STORE) -> Any:
    return tool(other.row(x))


def test_defaults_of_parameters() -> None:
    assert {"clean", "Store.row"} <= names(with_default)


def test_what_a_function_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def importing(x: Any) -> Any:
        from imported_of_tests import helped  # type: ignore[import-not-found]

        return helped(x)

    assert not closed(importing), "there is none such: that would fail, or is not run"
    (tmp_path / "imported_of_tests.py").write_text("raise RuntimeError('it was run')")
    monkeypatch.syspath_prepend(tmp_path)
    assert closed(importing) == ["imported_of_tests is not imported before it is used"]
    module = ModuleType("imported_of_tests")
    module.__file__, module.helped = str(tmp_path / "imported_of_tests.py"), clean  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "imported_of_tests", module)
    assert not closed(importing)
    assert "clean" in names(importing)


def test_what_is_installed_need_not_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a branch that is not taken imports one of several decoders."""

    def importing(x: Any) -> Any:
        from torch.utils import bottleneck  # it stands for one that nothing imported

        return bottleneck.read(x)  # type: ignore[attr-defined]

    monkeypatch.delitem(sys.modules, "torch.utils.bottleneck", raising=False)
    monkeypatch.delattr(torch.utils, "bottleneck", raising=False)
    assert not closed(importing)
    assert "torch.utils.bottleneck" not in sys.modules


FILES = {
    "__init__.py": "",
    "io.py": "def read(x): return x\ndef deeper(x): return read(x)",
    "data/__init__.py": "",
    "data/near.py": "def close(x): return x",
    "data/sets.py": """
def reads(x):
    from ..io import deeper
    return deeper(x)
def reads_near(x):
    from .near import close
    return close(x)
def reads_module(x):
    from .. import io
    return io.read(x)
def waits(x):
    from ..late import read
    return read(x)
def waits_for_module(x):
    from .. import late
    return late.read(x)
def waits_in_folder(x):
    import folder_of_tests.late
    return x
def too_far(x):
    from ....io import read
    return read(x)
def misses(x):
    from ..missing import read
    return read(x)
""",
    "late.py": "raise RuntimeError('it was run')",
    "../folder_of_tests/late.py": "raise RuntimeError('it was run')",
}


@pytest.fixture
def sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package of the user's that is imported but for ``late``."""
    for name, text in FILES.items():
        file = tmp_path / "package_of_tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("io", "data.near"):
        importlib.import_module(f"package_of_tests.{name}")
    yield importlib.import_module("package_of_tests.data.sets")
    for name in [each for each in sys.modules if each.startswith("package_of_tests")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("reads", {"reads", "read", "deeper"}),
        ("reads_near", {"reads_near", "close"}),
        ("reads_module", {"reads_module", "read"}),
        ("too_far", {"too_far"}),
        ("misses", {"misses"}),
    ],
)
def test_what_is_imported_from_the_package(sets: ModuleType, name: str, wanted: set[str]) -> None:
    function = getattr(sets, name)
    assert not closed(function)
    assert {each.function.__qualname__ for each in reached(function)} == wanted


@pytest.mark.parametrize(
    ("name", "late"),
    [
        ("waits", "package_of_tests.late"),
        ("waits_for_module", "package_of_tests.late"),
        ("waits_in_folder", "folder_of_tests.late"),
    ],
)
def test_what_the_package_has_not_imported_is_closed(
    sets: ModuleType, name: str, late: str
) -> None:
    assert closed(getattr(sets, name)) == [f"{late} is not imported before it is used"]
    assert late not in sys.modules


def test_a_local_function_is_given_no_object() -> None:
    """Its first parameter may be the sample, though a method has it."""
    found = {each.function.__qualname__: each.owner for each in reached(Rows(enclosing()))}
    assert found["enclosing.<locals>.<lambda>"] is None


@pytest.fixture
def extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """An extension module of the user's."""
    module = ModuleType("tool_of_tests")
    module.__file__ = str(tmp_path / f"tool{importlib.machinery.EXTENSION_SUFFIXES[0]}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def test_what_is_not_python_is_closed(extension: ModuleType) -> None:
    kind = type("Fast", (), {"__module__": extension.__name__, "__call__": len, "row": len})
    for maker in (Rows(kind()), Direct(kind()), Rows(kind), Rows(type("Made", (kind,), {})())):
        assert any("cannot be read" in why for why in closed(maker))
    assert closed(Rows(torch.jit.script(Clean())))
    assert not closed(Rows(len), Rows(np.add), Rows(torch.amax))


def test_a_module_that_waits_for_its_use_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "waiting_of_tests.py"
    file.write_text("raise RuntimeError('it was run')\ndef row(x): return x")
    monkeypatch.setitem(globals(), "WAITING", waiting_module(file))
    why = closed(lambda x: WAITING.row(x) * 2)  # type: ignore[name-defined]  # noqa: F821
    assert any("is not imported before it is used" in each for each in why)


def test_too_many_functions_are_closed() -> None:
    def one(number: int) -> Any:
        return type("Part", (), {"__call__": lambda self, x: number})()

    many = [[one(i) for i in range(60)] for _ in range(40)]
    assert any("more than 2000" in why for why in closed(Rows(many)))


def test_parts_that_have_each_other() -> None:
    parts: list[Any] = [clean]
    parts.append(parts)
    assert "clean" in names(Rows(parts))
