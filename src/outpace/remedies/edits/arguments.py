"""Arguments of a call changed in a script's text."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Collection, Mapping
from typing import NamedTuple

from outpace.remedies.edits.script import Change, Located, Script, called, dotted, edited, white

LINE_LENGTH = 100


def argument(call: ast.Call, name: str, positions: tuple[str, ...] = ()) -> ast.expr | None:
    """What a call passes as ``name``."""
    for keyword in call.keywords:
        if keyword.arg == name:
            return keyword.value
    if name in positions and positions.index(name) < len(call.args):
        return call.args[positions.index(name)]
    return None


def is_plain(call: ast.Call) -> bool:
    """Whether all arguments are written out: no ``*args``, no ``**kwargs``."""
    return not any(isinstance(a, ast.Starred) for a in call.args) and all(
        k.arg is not None for k in call.keywords
    )


def argument_changes(
    script: Script,
    call: ast.Call,
    arguments: Mapping[str, str | None],
    positions: tuple[str, ...] = (),
) -> list[Change]:
    """Changes that give a call these arguments; None leaves one out. None at all where unsure."""
    changes: list[Change] = []
    added: list[str] = []
    if not is_plain(call):
        return []
    for name, text in arguments.items():
        value = argument(call, name, positions)
        if text is not None and value is not None:
            changes.append(Change(script.start(value), script.end(value), text))
        elif text is not None:
            added.append(f"{name}={text}")
    for name in (name for name, text in arguments.items() if text is None):
        keyword = next((k for k in call.keywords if k.arg == name), None)
        if keyword is not None and added:
            changes.append(Change(script.start(keyword), script.end(keyword), added.pop(0)))
        elif keyword is not None:
            gone = {name for name, text in arguments.items() if text is None}
            changes.append(_removal(script, call, keyword, gone))
        elif argument(call, name, positions) is not None:
            return []
    if added:
        changes.append(_addition(script, call, added))
    changes = _merged(changes)
    return changes + _folding(script, call, changes)


def _merged(changes: list[Change]) -> list[Change]:
    """What is left out twice is left out once."""
    gone = sorted(each for each in changes if not each.text)
    merged: list[Change] = []
    for each in gone:
        if merged and each.start < merged[-1].end:
            merged[-1] = Change(merged[-1].start, max(merged[-1].end, each.end), "")
        else:
            merged.append(each)
    return [each for each in changes if each.text] + merged


def _removal(
    script: Script, call: ast.Call, keyword: ast.keyword, gone: Collection[str] = ()
) -> Change:
    """Leave an argument out: its whole line, or from the end of the argument before it that stays."""
    start, end = script.start(keyword), script.end(keyword)
    line = script.text[script.line_start(keyword.lineno) : start]
    rest = script.text[end : script.line_start((keyword.end_lineno or 0) + 1)]
    if not line.strip() and rest.strip() == ",":
        return Change(start - len(line), end + len(rest), "")
    parts: list[Located] = [*call.args, *call.keywords]
    stay = [p for p in parts if not (isinstance(p, ast.keyword) and p.arg in gone)]
    earlier = [script.end(p) for p in stay if script.end(p) <= start]
    later = [script.start(p) for p in parts if script.start(p) >= end]
    if earlier:
        return Change(max(earlier), end, "")
    return Change(start, min(later), "") if later else Change(start, end, "")


def _addition(script: Script, call: ast.Call, added: list[str]) -> Change:
    """New keyword arguments before the closing bracket: each on its line where the others are."""
    start, close = script.start(call), script.end(call) - 1
    last, bracket = _tokens(script.text[start : close + 1])[-2:]
    at = start + last.end
    if last.text == "(":
        return Change(at, at, ", ".join(added))
    if last.text == "," and bracket.row > last.row:
        indent = white(script.text[:at].rsplit("\n", 1)[-1])
        return Change(at, at, "".join(f"{script.newline}{indent}{a}," for a in added))
    return Change(at, at, (" " if last.text == "," else ", ") + ", ".join(added))


def _folding(script: Script, call: ast.Call, changes: list[Change]) -> list[Change]:
    """A call that gets too long for its line has its arguments on a line of their own."""
    line = script.lines[call.lineno - 1]
    grown = sum(len(c.text) - (c.end - c.start) for c in changes)
    close = script.end(call) - 1
    if call.lineno != call.end_lineno or len(line.rstrip()) + grown <= LINE_LENGTH:
        return []
    if script.text[close + 1 : script.line_start(call.lineno + 1)].strip():
        return []
    bracket = script.end(call.func) + script.text[script.end(call.func) : close].index("(") + 1
    indent = script.newline + white(line)
    return [Change(bracket, bracket, indent + script.unit), Change(close, close, indent)]


class _Token(NamedTuple):
    row: int
    end: int
    text: str


def _tokens(text: str) -> list[_Token]:
    """Row and end offset of each token that is neither comment nor white space."""
    found = []
    rows = [0]
    for line in io.StringIO(text, newline=""):
        rows.append(rows[-1] + len(line))
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.string.strip() and token.type != tokenize.COMMENT:
            row, column = token.end
            found.append(_Token(row, rows[row - 1] + column, token.string))
    return found


def set_optimizer_arguments(
    source: str, optimizer: str | None, arguments: Mapping[str, str | None]
) -> str:
    """Add or replace keyword arguments where a torch optimizer called ``optimizer`` is made."""

    def edit(script: Script) -> str:
        changes: list[Change] = []
        for call in script.every(ast.Call):
            if optimizer and called(call) == optimizer and _of_torch(script, call):
                changes += argument_changes(script, call, arguments)
        return script.changed(*changes)

    return edited(source, edit)


def _of_torch(script: Script, call: ast.Call) -> bool:
    name = dotted(call.func)
    if "." in name:
        return name.rsplit(".", 1)[0] in ("torch.optim", "optim")
    return any(
        isinstance(s, ast.ImportFrom)
        and (s.module or "").startswith("torch.optim")
        and any((a.asname or a.name) == name for a in s.names)
        for s in script.imports
    )
