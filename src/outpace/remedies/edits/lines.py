"""Lines of their own put into a script: imports, switches, definitions."""

from __future__ import annotations

import ast
import difflib
import re
from functools import cache
from itertools import pairwise

from outpace.remedies.edits.script import Change, Script, edited, is_standard, line_of, lines_of

ELSEWHERE = 0
"""line of what is in another file than the script"""


def insert_after_imports(source: str, text: str) -> str:
    """Put lines after the imports at the top, above the first use of what they define; once only.

    ``torch`` is imported where they name it, and the script does not have it.
    """
    tree = ast.parse(text)
    defined = [s.name for s in tree.body if isinstance(s, ast.FunctionDef | ast.ClassDef)]

    def edit(script: Script) -> str:
        if re.search(rf"^[ \t]*{re.escape(text.strip())}", script.text, re.MULTILINE):
            return script.text
        at = script.below_imports(defined)
        newline = script.newline
        body = newline.join(text.strip("\n").split("\n")) + newline
        head = "" if not at or script.text[:at].endswith(("\n", "\r")) else newline
        blank = newline * (2 if body.startswith(("def ", "class ", "@", "async ")) else 1)
        rest = script.text[at:]
        there = len(rest) - len(rest.lstrip("\r\n"))
        return script.changed(Change(at, at, head + blank + body + blank[there:]))

    if "torch" in Script.names(tree):
        source = add_import(source, "torch")
    return edited(source, edit)


def names_any(source: str, names: tuple[str, ...]) -> bool:
    """Whether a script's code, and not only a comment of it, has one of these names in it."""
    try:
        text = ast.dump(ast.parse(source))
    except (SyntaxError, ValueError):
        return False
    return any(name in text for name in names)


def insert_before_imports(source: str, text: str) -> str:
    """Put lines before the first import (``from __future__`` and the docstring stay first)."""

    def edit(script: Script) -> str:
        if text.strip() in script.text:
            return script.text
        mine = [s for s in script.leading() if getattr(s, "module", "") != "__future__"]
        at = script.line_start(mine[0].lineno) if mine else script.below_imports()
        if mine and script.text[at : script.start(mine[0])].strip():
            return script.text
        newline = script.newline
        return script.changed(
            Change(at, at, newline.join(text.strip("\n").split("\n")) + 2 * newline)
        )

    return edited(source, edit)


def add_import(source: str, module: str, name: str = "") -> str:
    """``import module`` or ``from module import name``, beside its like."""

    def edit(script: Script) -> str:
        if not name:
            if script.imported(module):
                return script.text
            return _add_line(script, module, f"import {module}", module)
        for statement in script.leading((name,)):
            if isinstance(statement, ast.ImportFrom) and statement.module == module:
                if any(a.name == name and a.asname is None for a in statement.names):
                    return script.text
                plain = statement.lineno == statement.end_lineno and statement.names[-1].name != "*"
                if plain and ")" not in script.of(statement):
                    return _add_name(script, statement, name)
        return _add_line(script, module, f"from {module} import {name}", name)

    return edited(source, edit)


def _add_name(script: Script, statement: ast.ImportFrom, name: str) -> str:
    """One more name in an import: in its place where the names are in order, else at the end."""
    names = statement.names
    after = [a for a in names if _order(a.name) < _order(name)]
    in_order = all(_order(a.name) < _order(b.name) for a, b in pairwise(names))
    if in_order and not after:
        start = script.start(names[0])
        return script.changed(Change(start, start, f"{name}, "))
    end = script.end(after[-1] if in_order else names[-1])
    return script.changed(Change(end, end, f", {name}"))


def _order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, as import sorters have it."""
    return (0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2, name)


def _add_line(script: Script, module: str, line: str, name: str) -> str:
    """A new import after the last that sorts before it, in the group where it belongs."""
    leading = script.leading((name,))
    like = [
        s
        for s in leading
        if is_standard(_module(s)) == is_standard(module) and _module(s) != "__future__"
    ]
    plain = line.startswith("import ")
    before = [s for s in like if (isinstance(s, ast.ImportFrom), _module(s)) < (not plain, module)]
    newline = script.newline
    if before:
        end = before[-1].end_lineno
        assert end is not None
        at = script.line_start(end + 1)
        head = "" if script.text[:at].endswith(("\n", "\r")) else newline
        return script.changed(Change(at, at, f"{head}{line}{newline}"))
    others = [s for s in leading if _module(s) != "__future__"]
    if not others:
        at = script.below_imports((name,))
        return script.changed(Change(at, at, f"{line}{newline}"))
    first = like[0] if like else others[0]
    at = script.line_start(first.lineno)
    gap = "" if like or not is_standard(module) else newline
    return script.changed(Change(at, at, f"{line}{newline}{gap}"))


def _module(statement: ast.Import | ast.ImportFrom) -> str:
    if isinstance(statement, ast.ImportFrom):
        return "." * statement.level + (statement.module or "")
    return statement.names[0].name


def insert_line(script: Script, after: ast.stmt, line: str) -> str:
    """A line after a statement that stands alone, as deep as that statement."""
    if not script.stands_alone(after):
        return script.text
    assert after.end_lineno is not None
    at = script.line_start(after.end_lineno + 1)
    head = "" if script.text[:at].endswith(("\n", "\r")) else script.newline
    return script.changed(Change(at, at, f"{head}{script.indent(after)}{line}{script.newline}"))


def moved(where: str | None, before: str, after: str) -> str | None:
    """``file:line`` of a line of ``before`` as it stands in ``after``; None where it is gone."""
    line = line_of(where)
    if line == ELSEWHERE:
        return where
    if where is None or line is None:
        return None
    found = _lines(before, after).get(line)
    return None if found is None else f"{where.rpartition(':')[0]}:{found}"


@cache
def _lines(before: str, after: str) -> dict[int, int]:
    """Line of ``before`` -> line of ``after``; a changed line is the one in its place."""
    one, other = ([line.rstrip("\r\n") for line in lines_of(text)] for text in (before, after))
    found: dict[int, int] = {}
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    for kind, i1, i2, j1, j2 in matcher.get_opcodes():
        for i in range(i1, i2):
            if kind == "equal":
                found[i + 1] = j1 + i - i1 + 1
            elif kind == "replace":
                like = [j for j in range(j1, j2) if other[j].strip() == one[i].strip()]
                found[i + 1] = (like[0] if like else min(j1 + i - i1, j2 - 1)) + 1
    return found
