"""What was done is kept, so that a run that was stopped, or made in parts, goes on."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cases import HERE

from outpace.measure.machine import describe
from outpace.records.files import write_text

ROOT = HERE.parents[1]
KEPT = ROOT / ".outpace" / "truth"
STARTED = re.compile(r'"(outpace(?:\.\w+)+):\w+"')
"""what is begun in a target by its name"""
NOT_RUN = {"diagnose": ("outpace.api", "outpace.tune.apply", "outpace.tune.trials")}
"""by a command, though what it imports does: the list of all commands, and what only others start"""
BESIDE_THEM = {"diagnose": "outpace.api.diagnosing"}
"""what it comes by through that list"""


def digest(paths: Iterable[Path], content: Callable[[Path], bytes] = Path.read_bytes) -> str:
    """A few letters that change with what is in the files."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(content(path))
    return whole.hexdigest()[:8]


def says(path: Path) -> bytes:
    """What a file of Python does, whatever its comments and docstrings."""
    tree = ast.parse(path.read_bytes())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = [line for line in body if not _is_text(line)]  # type: ignore[attr-defined]
    return ast.dump(tree).encode()


def _is_text(line: ast.stmt) -> bool:
    return (
        isinstance(line, ast.Expr)
        and isinstance(line.value, ast.Constant)
        and isinstance(line.value.value, str)
    )


def code_of(command: str) -> str:
    """The version of a command: a digest of all code that what it says can come by."""
    import grimp

    graph = grimp.build_graph("outpace", include_external_packages=False)
    # Remedies are found by their folder, and what runs in the target is started by its path.
    modules = {f"outpace.cli.{command}", "outpace.adapters.child"}
    modules |= graph.find_descendants("outpace.remedies")
    for each in NOT_RUN.get(command, ()):
        for imported in graph.find_modules_directly_imported_by(each):
            graph.remove_import(importer=each, imported=imported)
    modules |= {BESIDE_THEM[command]} if command in BESIDE_THEM else set()
    begin = set(modules)
    while begin:
        modules |= begin.union(*(graph.find_upstream_modules(each) for each in begin))
        begin = {name for each in modules for name in STARTED.findall(file_of(each).read_text())}
        begin -= modules.union(NOT_RUN.get(command, ()))
    files = map(file_of, modules)
    site = (ROOT / "src" / "outpace" / "adapters" / "site").glob("*.py")
    return digest([*files, *site], says)


def file_of(module: str) -> Path:
    """Where it is written."""
    path = ROOT / "src" / Path(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def written(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What is written beside a table, by its name and the processor; nothing where no file is."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(name, cpu): kept for name, cpu, kept in map(json.loads, lines)}


@dataclass
class Kept:
    """Does what is not done yet, and keeps it."""

    again: bool = False
    """forget what is kept"""
    hog: bool = False
    folder: Path = KEPT
    cpu: str = field(default_factory=lambda: describe().cpu)
    used: dict[str, Any] = field(default_factory=dict)
    """what was done, by its name, and the seconds that it took"""

    def once(self, name: str, make: Callable[[Path], Any]) -> Any:
        """What ``make`` gives in an empty folder, or gave before."""
        path = self.file(name)
        if self.again or not path.exists():
            begun = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                made = make(Path(folder))
            write_text(path, json.dumps({"made": made, "seconds": time.perf_counter() - begun}))
        kept = json.loads(path.read_text())
        self.used[str(path.relative_to(self.folder)).removesuffix(".json")] = kept
        return kept["made"]

    def file(self, name: str) -> Path:
        """The file of what is done."""
        return self.folder / f"{name}{'-hog' if self.hog else ''}.json"

    def seconds(self) -> dict[str, float]:
        """What was done took so long: times, verdicts, peers."""
        took: dict[str, float] = {}
        for name, kept in self.used.items():
            kind = name.partition("/")[0]
            took[kind] = took.get(kind, 0.0) + kept["seconds"]
        return took

    def take_up(self, path: Path) -> None:
        """Keep what was written beside an earlier table, of this processor."""
        for (name, cpu), kept in written(path).items():
            file = self.folder / f"{name}.json"
            if cpu == self.cpu and not file.exists():
                write_text(file, json.dumps(kept))

    def write(self, path: Path) -> None:
        """Write what was used, for others and for later passes, beside what other passes have left there."""
        found = written(path) | {(name, self.cpu): kept for name, kept in self.used.items()}
        lines = [json.dumps([*key, kept]) + "\n" for key, kept in sorted(found.items())]
        write_text(path, "".join(lines).replace(f"{ROOT}/", ""))
