"""A script's text with its syntax tree: where things stand, and changes to the text alone.

Changes are made to the text between two places, so that comments and formatting stay. A change that
would not parse any more is not made.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import NamedTuple, TypeVar

from outpace.seams.where import first_line

_LINES = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_Node = TypeVar("_Node", bound=ast.AST)
WORK = (
    *(ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),
    *(ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith),
)
"""statements at the top level that imports usually come before"""
Located = ast.expr | ast.stmt | ast.alias | ast.keyword


class Change(NamedTuple):
    """Text to stand in place of what is between two offsets."""

    start: int
    end: int
    text: str


class Script:
    """A text that parses; ValueError where it does not."""

    def __init__(self, text: str) -> None:
        self.text = text
        try:
            self.tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise ValueError(f"the script does not parse: {error}") from error
        self.lines = lines_of(text)
        self._starts = [0]
        for line in self.lines:
            self._starts.append(self._starts[-1] + len(line))

    # --- places --------------------------------------------------------------------------------

    def offset(self, line: int, column: int) -> int:
        """Offset in the text of what ast calls line and column (bytes of UTF-8)."""
        head = self.lines[line - 1].encode()[:column] if line <= len(self.lines) else b""
        return self._starts[line - 1] + len(head.decode())

    def start(self, node: Located) -> int:
        """Where a node begins; a decorated function at its first decorator's line."""
        return self.offset(node.lineno, node.col_offset)

    def end(self, node: Located) -> int:
        """Where a node ends."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.offset(node.end_lineno, node.end_col_offset)

    def of(self, node: Located) -> str:
        """A node's text."""
        return self.text[self.start(node) : self.end(node)]

    def line_start(self, line: int) -> int:
        """Where a line begins."""
        return self._starts[min(line - 1, len(self.lines))]

    def indent(self, node: Located) -> str:
        """The white space in front of the line where a node begins."""
        return white(self.lines[node.lineno - 1])

    @cached_property
    def unit(self) -> str:
        """One level of indentation, as the script has it."""
        for statement in self.every(ast.stmt):
            text = self.indent(statement)
            if text:
                return "\t" if text.startswith("\t") else text
        return "    "

    @cached_property
    def newline(self) -> str:
        """How the script ends its lines."""
        return "\r\n" if self.lines and self.lines[0].endswith("\r\n") else "\n"

    def stands_alone(self, node: ast.stmt) -> bool:
        """Whether a statement has its lines to itself, and no text that runs over lines in it."""
        before = self.text[self.line_start(node.lineno) : self.start(node)]
        assert node.end_lineno is not None
        after = self.text[self.end(node) : self.line_start(node.end_lineno + 1)].strip()
        if before.strip() or (after and not after.startswith("#")):
            return False
        return not any(
            child.lineno != child.end_lineno and isinstance(child, ast.JoinedStr | ast.Constant)
            for child in ast.walk(node)
            if isinstance(child, ast.expr)
        )

    # --- the tree ------------------------------------------------------------------------------

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements among which one stands."""
        for _, value in ast.iter_fields(self.parents[statement]):
            if isinstance(value, list) and any(s is statement for s in value):
                return value
        return [statement]

    def every(self, kind: type[_Node]) -> Iterator[_Node]:
        """All nodes of a kind, in the order of the text; not those in f-strings.

        Before Python 3.12 the latter do not know where they stand.
        """
        found = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, kind)
            and not any(isinstance(outer, ast.JoinedStr) for outer in self.around(node))
        ]
        found.sort(key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
        yield from found

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """Each node's parent."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    def around(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around one, from the inside outwards."""
        while node in self.parents:
            node = self.parents[node]
            yield node

    def scope(self, node: ast.AST) -> ast.AST:
        """The function that a node is in, or the module."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        return next((outer for outer in self.around(node) if isinstance(outer, kinds)), self.tree)

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """The innermost statement that holds a node."""
        if isinstance(node, ast.stmt):
            return node
        return next((outer for outer in self.around(node) if isinstance(outer, ast.stmt)), None)

    @property
    def imports(self) -> list[ast.Import | ast.ImportFrom]:
        """The imports at the top level."""
        return [s for s in self.tree.body if isinstance(s, ast.Import | ast.ImportFrom)]

    def leading(self, names: Collection[str] = ()) -> list[ast.Import | ast.ImportFrom]:
        """The imports above all work: the first definition, loop or ``with``, or use of ``names``."""
        found = list[ast.Import | ast.ImportFrom]()
        for statement in self.tree.body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                found.append(statement)
            elif isinstance(statement, WORK) or not self.names(statement).isdisjoint(names):
                break
        return found

    def below_imports(self, names: Collection[str] = ()) -> int:
        """Where what is to be there before all work goes: below the leading imports, else at the top."""
        leading = self.leading(names)
        if leading:
            return self.line_start((leading[-1].end_lineno or 0) + 1)
        rest = self.tree.body[ast.get_docstring(self.tree) is not None :]
        if not rest:
            return len(self.text)
        return self.line_start(first_line(rest[0]))

    @staticmethod
    def names(node: ast.AST) -> set[str]:
        """The plain names in a node, those that it binds included."""
        return {
            name
            for each in ast.walk(node)
            for field in ("id", "name", "arg")
            if isinstance(name := getattr(each, field, None), str)
        }

    def imported(self, module: str) -> bool:
        """Whether ``import module`` stands above all work."""
        return any(
            alias.name.split(".")[0] == module and alias.asname is None
            for statement in self.leading((module,))
            if isinstance(statement, ast.Import)
            for alias in statement.names
        )

    # --- changing ------------------------------------------------------------------------------

    def changed(self, *changes: Change) -> str:
        """The text with changes made; as it was if they overlap or it would not parse."""
        text, last = self.text, len(self.text) + 1
        # From the end on; of what is put in at one place, the first given comes first.
        ordered = list(reversed(changes))
        ordered.sort(key=lambda c: (-c.start, -c.end))
        for change in ordered:
            if change.end > last:
                return self.text
            text = text[: change.start] + change.text + text[change.end :]
            last = change.start
        return text if parses(text) else self.text


def edited(source: str, edit: Callable[[Script], str]) -> str:
    """``edit`` of a script; the text as it was where it does not parse."""
    try:
        script = Script(source)
    except ValueError:
        return source
    return edit(script)


def lines_of(text: str) -> list[str]:
    """A text's lines as Python counts them, with their ends: others end lines at form feeds too."""
    return _LINES.findall(text)


def white(line: str) -> str:
    """The white space at a line's beginning."""
    return line[: len(line) - len(line.lstrip(" \t"))]


def parses(text: str) -> bool:
    """Whether a text is a Python module."""
    try:
        Script(text)
    except ValueError:
        return False
    return True


def dotted(node: ast.AST) -> str:
    """``a.b.c`` of names and attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        inner = dotted(node.value)
        return f"{inner}.{node.attr}" if inner else ""
    return ""


def called(node: ast.AST) -> str:
    """The last part of what a call calls: ``Adam`` of ``torch.optim.Adam(...)``."""
    return dotted(node.func).rsplit(".", 1)[-1] if isinstance(node, ast.Call) else ""


def is_standard(module: str) -> bool:
    """Whether a module is of the standard library."""
    return module.split(".", maxsplit=1)[0] in sys.stdlib_module_names


def line_of(where: str | None) -> int | None:
    """The line in ``file:line``."""
    tail = (where or "").rsplit(":", 1)[-1]
    return int(tail) if tail.isdigit() else None
