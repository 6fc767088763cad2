"""What other tools say of the same scripts: the bound that each of them names, "none", or "failed".

They name no cause and no gain. TraceML needs two lines in the script, as its manual says; they are
put into a copy. torch.profiler is read as Kineto's TensorBoard plug-in does: input where loading
takes more than 5 % of a step, else the largest part of its chart. Lightning warns of a DataLoader
with fewer than two workers where there are more cores. `always_io` is a dummy. A script is started
without torchrun: those that train in several ranks are not for them.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path

from cases import output_of

SECONDS = 120.0
FAILED = "failed"
TRACEML = {
    "INPUT_BOUND": "io",
    "H2D_BOUND": "io",
    "INPUT_STRAGGLER": "io",
    "COMPUTE_BOUND": "compute",
    "COMPUTE_STRAGGLER": "compute",
    "RESIDUAL_HEAVY": "outside",
}
PROFILED = """
import collections, json, runpy, sys
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile, schedule

out, script, *args = sys.argv[1:]
STEPS = 20

def union(spans):
    total, end = 0.0, float("-inf")
    for low, high in sorted(spans):
        total += max(0.0, high - max(low, end))
        end = max(end, high)
    return total

def read(found):
    events = found.profiler.kineto_results.events()
    spans = collections.defaultdict(list)
    for event in events:
        kind = "step" if event.name().startswith("ProfilerStep") else "operators"
        kind = "input" if event.name().startswith("enumerate(DataLoader)") else kind
        spans[kind].append((event.start_ns(), event.start_ns() + event.duration_ns()))
    step, loading = union(spans["step"]), union(spans["input"])
    computing = union(spans["input"] + spans["operators"]) - loading
    parts = {"io": loading, "compute": computing, "outside": max(0.0, step - loading - computing)}
    bound = "io" if loading > 0.05 * step else max(parts, key=parts.get)
    json.dump(bound, open(out, "w"))
    sys.exit()

plan = schedule(wait=10, warmup=2, active=STEPS, repeat=1)
profiler = profile(activities=[ProfilerActivity.CPU], schedule=plan, on_trace_ready=read)
register_optimizer_step_post_hook(lambda *_: profiler.step())
sys.argv = [script, *args]
with profiler:
    runpy.run_path(script, run_name="__main__")
"""
WARNED = """
import json, runpy, sys, types, warnings
import torch
from lightning.pytorch.trainer.connectors import data_connector

out, script, *args = sys.argv[1:]
trainer = types.SimpleNamespace(num_devices=1, reload_dataloaders_every_n_epochs=0)
begin = torch.utils.data.DataLoader.__iter__
told = []

def iterate(loader):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        data_connector._worker_check(trainer, loader, "train")
    told.append("io" if any("num_workers" in str(w.message) for w in caught) else "none")
    json.dump(told[0], open(out, "w"))
    sys.exit()

torch.utils.data.DataLoader.__iter__ = iterate
sys.argv = [script, *args]
json.dump("none", open(out, "w"))
runpy.run_path(script, run_name="__main__")
"""


def always_io(script: Path, args: list[str], folder: Path) -> str:
    """The dummy."""
    return "io"


def lightning(script: Path, args: list[str], folder: Path) -> str:
    """Its warning about workers, asked of the script's first DataLoader."""
    return _runner(WARNED, script, args, folder)


def profiler(script: Path, args: list[str], folder: Path) -> str:
    """torch.profiler over 20 steps, by the plug-in's threshold."""
    return _runner(PROFILED, script, args, folder)


def _runner(program: str, script: Path, args: list[str], folder: Path) -> str:
    runner, out = folder / "runner.py", folder / "bound.json"
    runner.write_text(program)
    out.write_text('"none"')
    ran = _run([sys.executable, str(runner), str(out), str(script), *args], folder)
    return str(json.loads(out.read_text())) if ran else FAILED


def _run(command: list[str], folder: Path) -> bool:
    """Whether it ended as it should; else it is said why, and not held against the tool."""
    try:
        output_of(command, folder, SECONDS)
    except RuntimeError as error:
        print(f"  {str(error).strip().splitlines()[-1]}")
        return False
    return True


def traceml(script: Path, args: list[str], folder: Path) -> str:
    """TraceML's primary diagnosis of the script with the two lines that it asks for."""
    if importlib.util.find_spec("traceml_ai") is None:
        print("  TraceML is not installed: pip install 'outpace[peers]'")
        return FAILED
    edited = folder / script.name
    edited.write_text(with_trace_step(script.read_text()))
    launcher = "from traceml_ai.launcher.cli import main; main()"
    command = [
        sys.executable,
        "-c",
        launcher,
        "run",
        str(edited),
        "--logs-dir",
        str(folder / "logs"),
    ]
    ran = _run([*command, *(["--args", *args] if args else [])], folder)
    found = list((folder / "logs").rglob("final_summary.json"))
    if not ran or not found:
        return FAILED
    return TRACEML.get(json.loads(found[0].read_text())["primary_diagnosis"]["kind"], "none")


def with_trace_step(source: str) -> str:
    """The script with `with trace_step(model):` around what each turn of the training loop does."""
    tree = ast.parse(source)
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and _learns(node)]
    innermost = loops[-1]  # ast.walk goes from the outside in
    step = ast.parse("with traceml.trace_step(model): pass").body[0]
    assert isinstance(step, ast.With)
    step.body, innermost.body = innermost.body, [step]
    first = 1 if ast.get_docstring(tree) else 0
    tree.body[first:first] = ast.parse(
        "import traceml_ai as traceml\ntraceml.init(mode='auto')"
    ).body
    return ast.unparse(ast.fix_missing_locations(tree))


def _learns(loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(loop)
    )


PEERS: dict[str, Callable[[Path, list[str], Path], str]] = {
    "TraceML": traceml,
    "torch.profiler": profiler,
    "Lightning's warning": lightning,
    "always io": always_io,
}
