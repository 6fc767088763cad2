"""What watching costs, from outside: step times that the script itself takes, watched or not.

"watched" has every seam in; "run" is what `outpace run` puts in for a recipe with no remedies.

    python bench/overhead.py [--pairs 7] [--only tiny]

Each script is run in pairs, plain and watched, by a wrapper that notes the time of every optimizer
step through torch's own hook and nothing else. Printed: ratio of the median step (drop the first
ten) and of CPU seconds a step, watched over plain, with intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from outpace.measure.statistics import paired_gain
from paired import ROOT

TINY = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(20_000, 32), torch.randn(20_000, 1))
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(12):
    for x, y in DataLoader(data, batch_size=32, shuffle=True):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

TIMER = """
import atexit, json, os, runpy, sys, time
out, most, mode, session, machine, script, *args = sys.argv[1:]
started = time.perf_counter_ns()
import torch
times = []
def note(*_):
    times.append((time.perf_counter_ns(), time.process_time_ns()))
    if len(times) >= int(most):
        with open(out, "w") as file:
            json.dump(times, file)
        os._exit(0)
from torch.optim.optimizer import register_optimizer_step_post_hook
register_optimizer_step_post_hook(note)
if mode != "plain":
    if mode == "watched":
        from outpace.tune.observed import begin
    else:
        from outpace.tune.apply import begin
    begin({"session": session, "machine": json.loads(machine), "started_ns": started})
sys.argv = [script, *args]
sys.path[0] = os.path.dirname(script)
runpy.run_path(script, run_name="__main__")
with open(out, "w") as file:
    json.dump(times, file)
"""

MODES = ("plain", "watched", "run")
CASES = {
    "tiny": (None, [], 6000),
    "image_classifier": ("image_classifier.py", [], 60),
    "char_gpt": ("char_gpt.py", [], 60),
    "flights": ("flights.py", [], 250),
    "mnist_cnn": ("mnist_cnn.py", [], 60),
}


def steps(script: Path, args: list[str], most: int, folder: Path, mode: str) -> tuple[float, float]:
    """Median wall and mean CPU seconds of a step, in a process of its own."""
    import msgspec

    from outpace.measure.machine import describe

    timer, out = folder / "timer.py", folder / "times.json"
    timer.write_text(TIMER)
    machine = msgspec.json.encode(describe()).decode()
    command = [
        sys.executable,
        str(timer),
        str(out),
        str(most),
        mode,
        str(folder),
        machine,
    ]
    subprocess.run([*command, str(script), *args], cwd=folder, check=True, capture_output=True)
    times = json.loads(out.read_text())[10:]
    walls = sorted(b[0] - a[0] for a, b in itertools.pairwise(times))
    return walls[len(walls) // 2] / 1e9, (times[-1][1] - times[0][1]) / (len(times) - 1) / 1e9


def main() -> None:
    """Run the pairs and print a row a script."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--only", choices=CASES)
    options = parser.parse_args()
    for name, (example, args, most) in CASES.items():
        if options.only not in (None, name):
            continue
        with tempfile.TemporaryDirectory() as text:
            folder = Path(text)
            script = folder / "tiny.py" if example is None else ROOT / "examples" / example
            if example is None:
                script.write_text(TINY)
            times: dict[str, list[tuple[float, float]]] = {mode: [] for mode in MODES}
            for index in range(options.pairs):
                for mode in MODES if index % 2 == 0 else reversed(MODES):
                    times[mode].append(steps(script, args, most, folder, mode))
            for mode in MODES[1:]:
                wall, cpu = (
                    paired_gain([w[i] for w in times[mode]], [p[i] for p in times["plain"]])
                    for i in (0, 1)
                )
                print(
                    f"{name:<18} {mode:<8} step {wall.speedup:.3f} [{wall.low:.3f}, {wall.high:.3f}]"
                    f"   CPU {cpu.speedup:.3f} [{cpu.low:.3f}, {cpu.high:.3f}]",
                    flush=True,
                )


if __name__ == "__main__":
    main()
