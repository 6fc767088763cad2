"""Where a script makes and calls its model."""

from __future__ import annotations

import ast

from outpace.remedies.edits.lines import insert_line
from outpace.remedies.edits.loaders import variable
from outpace.remedies.edits.script import Change, Script, called, dotted, edited, line_of

HARMLESS = ("argmax", "shape", "size")
"""what an output in half precision tells as well"""
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def model_call(script: Script, where: str | None) -> ast.Call | None:
    """The call of the model at ``where``: of a plain name or attribute, the innermost that fits."""
    line = line_of(where)
    if line is None:
        return None
    here = [
        c
        for c in script.every(ast.Call)
        if c.lineno <= line <= (c.end_lineno or 0) and dotted(c.func) and c.args
    ]
    made = made_names(script)
    known = [c for c in here if dotted(c.func) in made or dotted(c.func).endswith(("model", "net"))]
    return known[0] if len(known) == 1 else None


def made_names(script: Script) -> set[str]:
    """Names that are given what a class in this script makes."""
    classes = {c.name for c in script.every(ast.ClassDef)}
    return {
        variable(script, call) for call in script.every(ast.Call) if called(call) in classes
    } - {""}


def after_model(source: str, where: str | None, line: str) -> str:
    """A line after the model is made and moved: ``line`` is formatted with its name."""

    def edit(script: Script) -> str:
        call = model_call(script, where)
        if call is None:
            return script.text
        name = dotted(call.func)
        made = [
            s
            for s in script.every(ast.stmt)
            if isinstance(s, ast.Assign)
            and len(s.targets) == 1
            and dotted(s.targets[0]) == name
            and isinstance(s.value, ast.Call)
        ]
        text = line.format(name=name)
        homes = {id(script.block(s)) for s in made}
        if len(homes) != 1 or text in script.text:
            return script.text
        return insert_line(script, made[-1], text)

    return edited(source, edit)


def under_autocast(source: str, where: str | None, device: str, dtype: str) -> str:
    """The statement that calls the model goes under ``torch.autocast``, and the loss after it.

    Not where what comes out in half precision is then computed with: a recipe turns it back before.
    """

    def edit(script: Script) -> str:
        call = model_call(script, where)
        statement = script.statement(call) if call is not None else None
        if not isinstance(statement, SIMPLE) or not script.imported("torch"):
            return script.text
        if _has_autocast(script, statement):
            return script.text
        body: list[ast.stmt] = [statement]
        following = _next(script, statement)
        if following is not None and _uses(following, statement):
            body.append(following)
        if not all(map(script.stands_alone, body)) or _goes_on(script, statement, call, body):
            return script.text
        end = body[-1].end_lineno
        assert end is not None
        indent, unit = script.indent(statement), script.unit
        moved = "".join(
            unit + line if line.strip() else line
            for line in script.lines[statement.lineno - 1 : end]
        )
        head = f'{indent}with torch.autocast(device_type="{device}", dtype=torch.{dtype}):'
        return script.changed(
            Change(
                script.line_start(statement.lineno),
                script.line_start(end + 1),
                head + script.newline + moved,
            )
        )

    return edited(source, edit)


def _has_autocast(script: Script, statement: ast.stmt) -> bool:
    contexts = [o for o in script.around(statement) if isinstance(o, ast.With)]
    return any("autocast" in ast.dump(i.context_expr) for o in contexts for i in o.items)


def _goes_on(
    script: Script, statement: ast.stmt, call: ast.Call | None, body: list[ast.stmt]
) -> bool:
    """Whether the output itself is computed with after these statements; a loss may be, which is no half."""
    if getattr(statement, "value", None) is not call:
        return False
    if not isinstance(statement, ast.Assign):
        return isinstance(statement, ast.Return)
    named = _named(statement)
    asked = [a for a in script.every(ast.Attribute) if isinstance(a.value, ast.Name)]
    losses = {dotted(a.value) for a in asked if a.attr == "backward"}
    harmless = {id(a.value) for a in asked if a.attr in HARMLESS}
    home, end = script.scope(statement), body[-1].end_lineno or 0
    return any(
        name.id in named - losses and name.lineno > end and id(name) not in harmless
        for name in script.every(ast.Name)
        if isinstance(name.ctx, ast.Load) and script.scope(name) is home
    )


def _next(script: Script, statement: ast.stmt) -> ast.stmt | None:
    """The statement after one in the same block."""
    block = script.block(statement)
    after = next(i for i, s in enumerate(block) if s is statement) + 1
    return block[after] if after < len(block) else None


def _named(statement: ast.Assign) -> set[str]:
    """What is assigned to, by its plain names."""
    return {n.id for t in statement.targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def _uses(statement: ast.stmt, before: ast.stmt) -> bool:
    """Whether a statement computes something (a loss) from what the one before it has named."""
    if not isinstance(statement, ast.Assign) or not isinstance(before, ast.Assign):
        return False
    named = _named(before)
    loaded = {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}
    ends = {called(n) for n in ast.walk(statement.value)} & {"item", "backward", "tolist", "step"}
    return bool(named & loaded) and not ends and isinstance(statement.value, ast.Call | ast.BinOp)
