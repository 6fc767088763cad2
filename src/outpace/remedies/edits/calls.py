"""Single calls and functions of a script changed: image files, values that are read, methods."""

from __future__ import annotations

import ast

from outpace.remedies.edits.arguments import argument, argument_changes
from outpace.remedies.edits.script import Change, Script, called, dotted, edited, line_of

OF_CHECKPOINT = (
    *("use_reentrant", "preserve_rng_state", "context_fn", "determinism_check"),
    *("debug", "early_stop"),
)
"""arguments of ``torch.utils.checkpoint.checkpoint`` that are its own"""
OPENERS = ("Image.open", "PIL.Image.open")


def open_images_by(source: str, function: str) -> str:
    """``Image.open(path).convert("RGB")`` becomes ``function(path)``."""

    def edit(script: Script) -> str:
        changes = []
        if function in script.names(script.tree):
            return script.text
        for call in script.every(ast.Call):
            opened = _opened(call)
            if opened is not None:
                text = f"{function}({script.of(opened.args[0])})"
                changes.append(Change(script.start(call), script.end(call), text))
        return script.changed(*changes)

    return edited(source, edit)


def _opened(call: ast.Call) -> ast.Call | None:
    """The inner call of ``Image.open(path).convert("RGB")``."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "convert" or not _is_rgb(call):
        return None
    inner = call.func.value
    if not isinstance(inner, ast.Call) or dotted(inner.func) not in OPENERS:
        return None
    return inner if len(inner.args) == 1 and not inner.keywords else None


def _is_rgb(call: ast.Call) -> bool:
    mode = call.args[0] if call.args else argument(call, "mode")
    return (
        len(call.args) + len(call.keywords) == 1
        and isinstance(mode, ast.Constant)
        and mode.value == "RGB"
    )


def keep_on_device(source: str, where: str | None) -> str:
    """``total += loss.item()`` becomes ``total += loss.detach()`` at the line that waits."""
    line = line_of(where)

    def edit(script: Script) -> str:
        for statement in script.every(ast.AugAssign):
            value = statement.value
            if (
                statement.lineno == line
                and isinstance(value, ast.Call)
                and called(value) == "item"
                and not value.args
            ):
                assert isinstance(value.func, ast.Attribute)
                begin, end = script.end(value.func.value), script.end(value)
                return script.changed(Change(begin, end, ".detach()"))
        return script.text

    return edited(source, edit)


def set_number_of_threads(source: str, threads: int, where: str | None) -> str:
    """``torch.set_num_threads`` is told another number at the line where the script calls it."""
    line = line_of(where)

    def edit(script: Script) -> str:
        numbers = [
            call.args[0]
            for call in script.every(ast.Call)
            if line is not None
            and call.lineno <= line <= (call.end_lineno or 0)
            and dotted(call.func) in ("torch.set_num_threads", "set_num_threads")
            and len(call.args) == 1
            and not call.keywords
        ]
        return script.changed(
            *(Change(script.start(one), script.end(one), str(threads)) for one in numbers)
        )

    return edited(source, edit)


def gradients_to_none(source: str) -> str:
    """``zero_grad(set_to_none=False)`` loses its argument: None is the default."""

    def edit(script: Script) -> str:
        changes: list[Change] = []
        for call in script.every(ast.Call):
            value = argument(call, "set_to_none", ("set_to_none",))
            if called(call) == "zero_grad" and isinstance(value, ast.Constant) and not value.value:
                changes += argument_changes(script, call, {"set_to_none": "True"}, ("set_to_none",))
        return script.changed(*changes)

    return edited(source, edit)


def without_anomaly_detection(source: str) -> str:
    """``set_detect_anomaly(True)`` and ``detect_anomaly()`` are told not to."""

    def edit(script: Script) -> str:
        changes = []
        for call in script.every(ast.Call):
            module, _, name = dotted(call.func).rpartition(".")
            if name == "set_detect_anomaly":
                changes += argument_changes(script, call, {"mode": "False"}, ("mode", "check_nan"))
            elif name == "detect_anomaly" and module:
                text = f"{module}.set_detect_anomaly(False)"
                changes.append(Change(script.start(call), script.end(call), text))
        return script.changed(*changes)

    return edited(source, edit)


def without_checkpointing(source: str) -> str:
    """``checkpoint(block, x, use_reentrant=False)`` becomes ``block(x)``; a model is told to keep its own."""

    def edit(script: Script) -> str:
        changes = []
        for call in script.every(ast.Call):
            name = dotted(call.func)
            if name.endswith(".gradient_checkpointing_enable"):
                text = f"{name.removesuffix('_enable')}_disable()"
                changes.append(Change(script.start(call), script.end(call), text))
            elif _is_checkpointed(call, script) and argument(call, "context_fn") is None:
                function, *given = call.args
                named = [k for k in call.keywords if k.arg not in OF_CHECKPOINT]
                text = ", ".join([*map(script.of, given), *map(script.of, named)])
                called_so = f"{script.of(function)}({text})"
                changes.append(Change(script.start(call), script.end(call), called_so))
        return script.changed(*changes)

    return edited(source, edit)


def _is_checkpointed(call: ast.Call, script: Script) -> bool:
    """Whether it is torch's ``checkpoint`` of a function that is named."""
    name = dotted(call.func)
    if not call.args or not isinstance(call.args[0], ast.Name | ast.Attribute | ast.Subscript):
        return False
    by_name = any(
        isinstance(statement, ast.ImportFrom)
        and statement.module == "torch.utils.checkpoint"
        and any(a.name == "checkpoint" and (a.asname or a.name) == name for a in statement.names)
        for statement in script.imports
    )
    torchs = argument(call, "use_reentrant") is not None and name.endswith("checkpoint")
    return by_name or torchs or name.endswith("checkpoint.checkpoint")


def decorate(source: str, where: str | None, decorator: str, trains: str | None = None) -> str:
    """A decorator on the function around a line, unless that function trains, as by a line."""
    line, other = line_of(where), line_of(trains)

    def edit(script: Script) -> str:
        around = [
            f
            for f in script.every(ast.FunctionDef)
            if line is not None and f.lineno <= line <= (f.end_lineno or 0)
        ]
        if not around or any(called(n) in ("backward", "step") for n in ast.walk(around[-1])):
            return script.text
        function = around[-1]
        if other is not None and function.lineno <= other <= (function.end_lineno or 0):
            return script.text
        at = script.line_start(function.lineno)  # below others, as a staticmethod
        indent = script.indent(function)
        return script.changed(Change(at, at, f"{indent}{decorator}{script.newline}"))

    return edited(source, edit)


def add_method(source: str, owner: str, beside: str, text: str) -> str:
    """A method after the method ``beside`` of the class ``owner``, unless it has the new one."""
    name = ast.parse(text).body[0]
    assert isinstance(name, ast.FunctionDef)

    def edit(script: Script) -> str:
        homes = []
        for kind in (each for each in script.every(ast.ClassDef) if each.name == owner):
            methods = {f.name: f for f in kind.body if isinstance(f, ast.FunctionDef)}
            if beside in methods:
                if name.name in methods:
                    return script.text
                homes.append(methods[beside])
        if len(homes) != 1:
            return script.text
        method = homes[0]
        assert method.end_lineno is not None
        at = script.line_start(method.end_lineno + 1)
        indent, unit = script.indent(method), script.unit
        lines = ["", *text.strip("\n").split("\n")]
        body = [_deep(line, indent, unit) for line in lines]
        head = "" if script.text[:at].endswith(("\n", "\r")) else script.newline
        return script.changed(Change(at, at, head + script.newline.join(body) + script.newline))

    return edited(source, edit)


def _deep(line: str, indent: str, unit: str) -> str:
    """A line written with four spaces a level, as deep as the script has it."""
    bare = line.lstrip(" ")
    levels = (len(line) - len(bare)) // 4
    return indent + unit * levels + bare if bare else ""
