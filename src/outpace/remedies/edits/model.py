"""Where a script makes and calls its model."""

from __future__ import annotations

import ast
import itertools

from outpace.remedies.edits.lines import insert_line
from outpace.remedies.edits.loaders import variable
from outpace.remedies.edits.script import (
    Change,
    Script,
    called,
    dotted,
    edited,
    line_of,
    lines_of,
)

OUTPUT = "output"
OF_TORCH = ("F.", "torch.", "nn.functional.")
TENSOR = (
    *("T", "argmax", "backward", "detach", "dim", "flatten", "item", "log_softmax", "max", "mean"),
    *("permute", "reshape", "shape", "sigmoid", "size", "softmax", "squeeze", "std", "sum"),
    *("topk", "transpose", "unsqueeze", "view"),
)
"""what is asked of a tensor, and of nothing else that a model gives"""
PLAIN = (ast.Call, ast.keyword, ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Tuple)
"""what computes all that is in it, once"""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
SIMPLE = (ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Expr, ast.Return)


def model_call(script: Script, where: str | None) -> ast.Call | None:
    """The call of the model at ``where``: of a plain name or attribute, the innermost that fits."""
    line = line_of(where)
    if line is None:
        return None
    # Where an edit has put it under one of its own, the line is that of the ``with``.
    under = [w.body[0].lineno for w in script.every(ast.With) if w.lineno == line]
    here = [
        c
        for c in script.every(ast.Call)
        if any(c.lineno <= at <= (c.end_lineno or 0) for at in (line, *under))
        and dotted(c.func)
        and c.args
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
        # ``model = model.to(device)`` is the same one; another that is made later is not the one to train.
        anew = [s for s in made[1:] if name not in map(dotted, ast.walk(s.value))]
        if len(homes) != 1 or anew or text in script.text:
            return script.text
        return insert_line(script, made[-1], text)

    return edited(source, edit)


def under_autocast(source: str, where: str | None, device: str, dtype: str) -> str:
    """The model is called under ``torch.autocast``, and what it gives is in float32 again after that.

    The loss is computed outside, as a recipe has it. Only where what the model gives is plainly a tensor.
    """

    def edit(script: Script) -> str:
        call = model_call(script, where)
        statement = script.statement(call) if call is not None else None
        if call is None or not isinstance(statement, SIMPLE) or not script.imported("torch"):
            return script.text
        if _has_autocast(script, statement) or not script.stands_alone(statement):
            return script.text
        if _is_called_elsewhere(script, call):
            return script.text
        indent, newline = script.indent(statement), script.newline
        given = f'device_type="{device}", dtype=torch.{dtype}'
        scope = script.scope(call)
        may_validate = isinstance(scope, FUNCTIONS) and not _trains(scope)
        if may_validate or _asks_for_gradients(script, scope):  # it may serve validation too
            given += ", enabled=torch.is_grad_enabled()"
        head = f"{indent}with torch.autocast({given}):{newline}"
        begin = script.line_start(statement.lineno)
        end = script.line_start((statement.end_lineno or 0) + 1)
        if statement.value is call:
            name = _named(statement)
            if name is None or not _is_tensor(script, statement, name):
                return script.text
            moved = "".join(
                script.unit + line if line.strip() else line
                for line in lines_of(script.text[begin:end])
            )
            if not moved.endswith(newline):
                moved += newline
            back = f"{indent}{name} = {name}.float(){newline}"
            return script.changed(Change(begin, end, head + moved + back))
        if not _is_given_on(script, call, statement) or OUTPUT in script.names(script.tree):
            return script.text
        first = f"{indent}{script.unit}{OUTPUT} = {script.of(call)}{newline}"
        return script.changed(
            Change(begin, begin, head + first),
            Change(script.start(call), script.end(call), f"{OUTPUT}.float()"),
        )

    return edited(source, edit)


def _asks_for_gradients(script: Script, scope: ast.AST) -> bool:
    """Whether a function says itself in which of its parts gradients are recorded, or has the model judge."""
    calls = (part for part in ast.walk(scope) if isinstance(part, ast.Call))
    return any(called(each) in ("set_grad_enabled", "eval") for each in calls)


def _is_called_elsewhere(script: Script, call: ast.Call) -> bool:
    """Whether the same model is called once more in the same function, to learn as well."""
    others = (
        each
        for each in script.every(ast.Call)
        if each is not call
        and dotted(each.func) == dotted(call.func)
        and script.scope(each) is script.scope(call)
    )
    return any(not _has(script, each, ("no_grad", "inference_mode")) for each in others)


def _trains(scope: ast.AST) -> bool:
    """Whether a function goes backward."""
    asked = (each.func for each in ast.walk(scope) if isinstance(each, ast.Call))
    return any(isinstance(one, ast.Attribute) and one.attr == "backward" for one in asked)


def _has_autocast(script: Script, statement: ast.stmt) -> bool:
    return _has(script, statement, ("autocast",))


def _has(script: Script, node: ast.AST, names: tuple[str, ...]) -> bool:
    """Whether it stands in a ``with`` of one of these."""
    contexts = [o for o in script.around(node) if isinstance(o, ast.With)]
    items = [ast.dump(i.context_expr) for o in contexts for i in o.items]
    return any(name in item for item in items for name in names)


def _named(statement: ast.stmt) -> str | None:
    """The one plain name that a statement gives its value to."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target = statement.targets[0]
    return target.id if isinstance(target, ast.Name) else None


def _is_tensor(script: Script, statement: ast.stmt, name: str) -> bool:
    """Whether what is done with a name in its scope is done with a tensor, or with any object."""
    home = script.scope(statement)
    uses = [
        script.parents[each]
        for each in script.every(ast.Name)
        if each.id == name and isinstance(each.ctx, ast.Load) and script.scope(each) is home
    ]
    objects = (ast.Call, ast.keyword, ast.Compare)
    told = [_takes_tensors(script, use) for use in uses]
    return any(told) and all(
        yes or isinstance(use, objects) for use, yes in zip(uses, told, strict=True)
    )


def _takes_tensors(script: Script, use: ast.AST) -> bool:
    """Whether what is used so is a tensor: in arithmetic, by a method of tensors, or in a function or a loss
    of torch's.
    """
    if isinstance(use, ast.Attribute):
        return use.attr in TENSOR
    if isinstance(use, ast.BinOp):
        return True
    call = script.parents[use] if isinstance(use, ast.keyword) else use
    if not isinstance(call, ast.Call):
        return False
    if dotted(call.func).startswith(OF_TORCH) or called(call).endswith("Loss"):
        return True
    losses = (each for each in script.every(ast.Call) if called(each).endswith("Loss"))
    return dotted(call.func) in {variable(script, each) for each in losses} - {""}


def _is_given_on(script: Script, call: ast.Call, statement: ast.stmt) -> bool:
    """Whether it is a tensor that a call gives, in a statement that computes it once, whatever comes."""
    return _takes_tensors(script, script.parents[call]) and _is_plain(script, call, statement)


def _is_plain(script: Script, call: ast.Call, statement: ast.stmt) -> bool:
    """Whether nothing between a call and its statement may leave it out, or repeat it."""
    between = itertools.takewhile(lambda outer: outer is not statement, script.around(call))
    return all(isinstance(outer, PLAIN) for outer in between)
