"""Where a script makes its training DataLoader, and what it passes to it."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from outpace.remedies.edits.arguments import argument, argument_changes, is_plain
from outpace.remedies.edits.lines import ELSEWHERE, add_import, moved
from outpace.remedies.edits.script import Change, Script, called, dotted, edited, line_of

LOADER_POSITIONS = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
)
OF_WORKERS = ("prefetch_factor", "timeout", "multiprocessing_context")
"""arguments that a DataLoader without workers refuses"""
TOLD_OTHERWISE = ("batch_size", "sampler", "batch_sampler")
"""of a DataLoader, once its sampler is one of batches"""
LATER: tuple[type[ast.stmt], ...] = (ast.FunctionDef, ast.For, ast.While)
"""what is in these may run once the loader is made, wherever it stands"""
AROUND = ("enumerate", "tqdm", "track", "progress_bar", "Ahead")
"""what may be around a loader in a loop's head; the last one is an edit's own"""
NOT_TRAINING = ("val", "test", "eval", "dev", "hold")


def loader_calls(script: Script, where: str | None) -> list[ast.Call]:
    """The DataLoader made at ``where``, or those that are made for training."""
    calls = [c for c in script.every(ast.Call) if called(c) == "DataLoader"]
    line = line_of(where)
    if line == ELSEWHERE:
        return []
    there = [c for c in calls if line is not None and c.lineno <= line <= (c.end_lineno or 0)]
    return there or [c for c in calls if _trains(script, c)]


def _trains(script: Script, call: ast.Call) -> bool:
    """Whether a loader is one for training, by its name and by whether it shuffles."""
    shuffle = argument(call, "shuffle", LOADER_POSITIONS)
    if isinstance(shuffle, ast.Constant) and shuffle.value is True:
        return True
    name = variable(script, call).lower()
    if any(part in name for part in NOT_TRAINING):
        return False
    return "train" in name or argument(call, "sampler", LOADER_POSITIONS) is not None


def variable(script: Script, value: ast.expr) -> str:
    """The name that a call's result is given to; empty where it is none or several."""
    statement = script.statement(value)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        if statement.value is value:
            return dotted(statement.targets[0])
    elif isinstance(statement, ast.AnnAssign) and statement.value is value:
        return dotted(statement.target)
    return ""


def set_loader_arguments(
    source: str, where: str | None, arguments: Mapping[str, str | None]
) -> str:
    """Add or replace keyword arguments of the training DataLoader; None leaves one out."""

    def edit(script: Script) -> str:
        changes: list[Change] = []
        for call in loader_calls(script, where):
            changes += argument_changes(script, call, arguments, LOADER_POSITIONS)
        return script.changed(*changes)

    return edited(source, edit)


def has_workers(source: str, where: str | None) -> bool:
    """Whether the training DataLoader is made with a number of workers that is written there."""
    try:
        script = Script(source)
    except ValueError:
        return False
    counts = [
        argument(call, "num_workers", LOADER_POSITIONS) for call in loader_calls(script, where)
    ]
    return any(isinstance(count, ast.Constant) and bool(count.value) for count in counts)


def made_here(source: str, changed: str, where: str | None, workers: int) -> str:
    """``changed`` with the batches made in the training's own process, where the script has workers.

    ``source``, which it was made of, where that is not sure.
    """
    if not workers or changed == source:
        return changed
    none = {"num_workers": "0", **dict.fromkeys(("persistent_workers", *OF_WORKERS))}
    found = set_loader_arguments(changed, moved(where, source, changed), none)
    return source if found == changed else found


def wrap_data_set(source: str, where: str | None, function: str) -> str:
    """``DataLoader(train_set, ...)`` becomes ``DataLoader(function(train_set), ...)``."""

    def edit(script: Script) -> str:
        changes = []
        if function in script.names(script.tree):
            return script.text
        for call in loader_calls(script, where):
            data = argument(call, "dataset", LOADER_POSITIONS)
            if not is_plain(call) or data is None or _asks_of(script, call, "dataset"):
                return script.text
            text = f"{function}({script.of(data)})"
            changes.append(Change(script.start(data), script.end(data), text))
        return script.changed(*changes)

    return edited(source, edit)


def hands_samples_out(source: str, where: str | None) -> bool:
    """Whether what a DataLoader gives may be the samples themselves, which the script may then change:
    torch's own way to make a batch copies them.
    """
    try:
        script = Script(source)
    except ValueError:
        return False

    def given(call: ast.Call, name: str) -> ast.expr | None:
        return argument(call, name, LOADER_POSITIONS)

    def none(call: ast.Call) -> bool:
        size = given(call, "batch_size")
        return isinstance(size, ast.Constant) and size.value is None

    return any(given(c, "collate_fn") or none(c) for c in loader_calls(script, where))


def data_change(source: str, where: str | None) -> bool:
    """Whether the script changes the training's data set while it trains, as by ``data.set_epoch(3)``: what
    workers have, or what was kept of it, would then stay as it was.
    """
    try:
        script = Script(source)
    except ValueError:
        return False
    calls = loader_calls(script, where)
    data = [argument(call, "dataset", LOADER_POSITIONS) for call in calls]
    own = {_last(dotted(each)) for each in data if each is not None} - {""}
    others = {_last(name) for name in _other_loaders(script, calls)}
    made = max((call.lineno for call in calls), default=0)
    loops = [loop for kind in LATER for loop in script.every(kind)]

    def comes_later(line: int) -> bool:
        return line > made or any(loop.lineno <= line <= (loop.end_lineno or 0) for loop in loops)

    def is_own(name: str) -> bool:
        loader, dot, of = name.rpartition(".")
        return (bool(dot) and of == "dataset" and _last(loader) not in others) or _last(name) in own

    return any(
        is_own(dotted(asked.value)) and comes_later(asked.lineno) and _sets(script, asked)
        for asked in script.every(ast.Attribute)
    )


def _last(name: str) -> str:
    """``train_loader`` of ``self.train_loader``: it may be kept under another owner's name."""
    return name.rpartition(".")[2]


def _other_loaders(script: Script, calls: list[ast.Call]) -> set[str]:
    """Names of DataLoaders that are not the training's."""
    made = (each for each in script.every(ast.Call) if called(each) == "DataLoader")
    return {name for each in made if each not in calls and (name := variable(script, each))}


def _sets(script: Script, asked: ast.Attribute) -> bool:
    """Whether an attribute is set, or is a method that is called for what it does."""
    if not isinstance(asked.ctx, ast.Load):
        return True
    call = script.parents.get(asked)
    return isinstance(call, ast.Call) and isinstance(script.parents.get(call), ast.Expr)


def _asks_of(script: Script, call: ast.Call, of: str, attribute: str = "") -> bool:
    """Whether the script has ``loader.attribute`` somewhere, or any attribute of what the loader has ``of``
    it; under whichever name it is kept, if it is not another loader's.
    """
    name = _last(variable(script, call))
    others = {_last(each) for each in _other_loaders(script, [call])}

    def is_own(found: str) -> bool:
        if of:
            found, _, last = found.rpartition(".")
            if last != of:
                return False
        found = _last(found)
        return found == name or (found.lower().endswith("loader") and found not in others)

    return any(
        attribute in ("", asked.attr) and is_own(dotted(asked.value))
        for asked in script.every(ast.Attribute)
        if dotted(asked.value)
    )


def training_loops(script: Script, where: str | None) -> list[tuple[ast.For, ast.expr]]:
    """The loops that draw from the training DataLoader by its name, which is told too: plainly, enumerated or
    by a progress bar.
    """
    calls = loader_calls(script, where)
    names = {variable(script, call) for call in calls} - {"", *_bound_otherwise(script)}
    found = []
    for loop in script.every(ast.For):
        drawn = loop.iter
        while isinstance(drawn, ast.Call) and called(drawn) in AROUND and drawn.args:
            drawn = drawn.args[0]
        if dotted(drawn) in names:
            found.append((loop, drawn))
    return found


def _bound_otherwise(script: Script) -> set[str]:
    """Names of what is made of what they stood for, as by `accelerator.prepare(model, loader)`: that has ways
    of its own to tell the last batch, which one that is drawn ahead would mislead.
    """
    found: set[str] = set()
    for statement in script.every(ast.Assign):
        value = statement.value
        given = {dotted(each) for each in value.args} if isinstance(value, ast.Call) else set[str]()
        for target in statement.targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            found |= {dotted(part) for part in parts} & given
    return found


def wrap_loop(source: str, where: str | None, function: str) -> str:
    """``for batch in train_loader`` becomes ``for batch in function(train_loader)``."""

    def edit(script: Script) -> str:
        if function in script.names(script.tree):
            return script.text
        loops = training_loops(script, where)
        if _learns(script, script.tree) and not any(_learns(script, loop) for loop, _ in loops):
            return script.text  # those of a function that validates, whose loader has this name too
        return script.changed(
            *(
                Change(script.start(drawn), script.end(drawn), f"{function}({script.of(drawn)})")
                for _, drawn in loops
            )
        )

    return edited(source, edit)


def _learns(script: Script, node: ast.AST) -> bool:
    """Whether there is a backward pass in it, or in a function of the script's that it calls."""
    calls = _called_in(node)
    functions = (each for each in script.every(ast.FunctionDef) if each.name in calls)
    return "backward" in calls or any("backward" in _called_in(each) for each in functions)


def _called_in(node: ast.AST) -> set[str]:
    """Names of the functions and methods that are called in it."""
    asked = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    names = (getattr(each, "attr", getattr(each, "id", "")) for each in asked)
    return {str(name) for name in names}


def draw_slices(source: str, where: str | None) -> str:
    """The DataLoader draws ``dataset[indices]``: a batch sampler in the sampler's place."""

    def edit(script: Script) -> str:
        changes: list[Change] = []
        for call in loader_calls(script, where):
            made = _slicing(script, call)
            if made is None or any(_asks_of(script, call, "", each) for each in TOLD_OTHERWISE):
                return script.text
            changes += argument_changes(script, call, made, LOADER_POSITIONS)
        return script.changed(*changes)

    changed = edited(source, edit)
    if changed == source:
        return source
    for name in ("BatchSampler", "RandomSampler", "SequentialSampler"):
        if f"{name}(" in changed:
            changed = add_import(changed, "torch.utils.data", name)
    return changed


def _slicing(script: Script, call: ast.Call) -> dict[str, str | None] | None:
    """Arguments that make a DataLoader draw slices; None where it is not known how."""

    def given(name: str) -> ast.expr | None:
        return argument(call, name, LOADER_POSITIONS)

    data, size = given("dataset"), given("batch_size")
    unknown = ("sampler", "batch_sampler", "collate_fn", "generator")
    if data is None or not dotted(data) or size is None or any(map(given, unknown)):
        return None
    shuffle, drop = given("shuffle"), given("drop_last")
    if shuffle is not None and not isinstance(shuffle, ast.Constant):
        return None
    random = isinstance(shuffle, ast.Constant) and bool(shuffle.value)
    order = f"{'RandomSampler' if random else 'SequentialSampler'}({script.of(data)})"
    last = script.of(drop) if drop is not None else "False"
    return {
        "batch_size": "None",
        "shuffle": None,
        "drop_last": None,
        "sampler": f"BatchSampler({order}, {script.of(size)}, {last})",
    }


def copy_without_waiting(source: str, where: str | None) -> str:
    """``.to(device)`` and ``.cuda()`` of what the training loop draws get ``non_blocking=True``."""

    def edit(script: Script) -> str:
        changes: list[Change] = []
        if any(map(_waits, script.every(ast.FunctionDef))):
            return script.text  # what is drawn may be of that class
        for loop, _ in training_loops(script, where):
            drawn = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
            for call in (n for n in ast.walk(loop) if isinstance(n, ast.Call)):
                name = dotted(call.func)
                if name.count(".") == 1 and name.split(".")[0] in drawn and _copies(script, call):
                    changes += argument_changes(script, call, {"non_blocking": "True"})
        return script.changed(*changes)

    return edited(source, edit)


def _waits(function: ast.FunctionDef) -> bool:
    """Whether it is a ``to`` or ``cuda`` of the script's own, which may not be asked not to wait."""
    arguments = function.args
    names = {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}
    takes = "non_blocking" in names or arguments.kwarg is not None
    return function.name in ("to", "cuda") and not takes


def _copies(script: Script, call: ast.Call) -> bool:
    """Whether a call is ``.cuda()`` or ``.to(device)``, not ``.to(dtype)``, and not to the CPU: what is read
    there is not waited for.
    """
    if called(call) == "cuda":
        return True
    first = call.args[0] if call.args else argument(call, "device")
    if called(call) != "to" or first is None or dotted(first).startswith("torch."):
        return False
    return "cpu" not in script.of(first)
