"""The serve bench: samples a second, CPU and memory of loaders on seven data sets.

    python bench/serve/run.py [--only jpeg320] [--loaders ours --loaders plain] [--quick]
        [--kit outpace] [--tuner] [--data FOLDER] [--output bench/serve/RESULTS.md]

Each loader reads what it converted beforehand into its own format, and does with a sample what kit.py
says, on the same cores. Each setting of its grid is tried for a short while and the best kept, and
one epoch checked: every sample once, and the classes in a batch against a perfect shuffle. Then come
rounds of all in turns, their order turned about each time, each in a process of its own: batches are
drawn with nothing else going on, first to warm up, then timed. The ratio is that to the DataLoader as
usual. `outpace.Loader` decodes a JPEG no further than to the bottom of what is cut out of it, to the same
bits. Loaders that are not installed are told as such: pip install 'outpace[rivals]'. LitData wants
torchvision, which has no release beside each torch: pip install --no-deps litdata==0.2.76 boto3
botocore jmespath lightning-utilities obstore s3transfer tifffile. DALI is nvidia-dali-cuda120, 425 MB.
Left out are MDS, as mosaicml-streaming wants numpy < 2.2 and brings 890 MB, and tf.data, 1.4 GB.

--kit outpace gives every loader the decoder of `outpace.serve.images` in place of simplejpeg and
torch. --tuner holds the workers that `outpace.Loader` chooses against every other number of them: how long it
took to choose, what share of the best's rate it has, how far the rates that it predicts for all are from
those measured (the median), and by how much the memory of the process and its workers grew, of what it may
(--ram; a quarter of what is free).
"""

import argparse
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any

from results import Arm, Measured, results
from rivals import NAMES, OURS, WORKERS, load, missing
from workloads import WORKLOADS, Workload

from outpace.measure.machine import describe

HERE = Path(__file__).resolve().parent
PATIENCE_S = 900.0
"""for one job"""
GRID_S = 2.0
"""that a setting is tried for, at most"""
LOOKS = 3
"""at each setting, in turns"""


class Failed(Exception):
    """A loader did not do its job; says why."""


def written_by(name: str) -> str:
    """The version of what has written a rival's data, where that is this project's own code."""
    if not name.startswith("ours"):
        return ""
    files = [HERE / "rivals" / f"{name}.py", *(HERE.parents[1] / "src/outpace/serve").rglob("*.py")]
    whole = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files)))
    return f"-{whole.hexdigest()[:8]}"


class Bench:
    """Does jobs in processes of their own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    def child(self, do: str, arm: Arm, work: Workload, **job: Any) -> dict[str, Any]:
        """The answer to a job. Raises Failed."""
        source = str(work.source(self.options.data))
        job |= {"do": do, "rival": arm.name, "work": work.name, "source": source}
        job |= {"folder": str(arm.folder), "setting": arm.setting}
        job |= {"cores": self.options.cores, "quick": self.options.quick}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "job.json")
            path.write_text(json.dumps(job))
            said = run([sys.executable, str(HERE / "child.py"), str(path)], self.options.kit)
            answer = path.with_suffix(".answer")
            if not answer.exists():
                raise Failed(said)
            return dict(json.loads(answer.read_text()))

    def convert(self, arm: Arm, work: Workload) -> None:
        """Find the loader's data, or have them made."""
        source = work.source(self.options.data)
        own = hasattr(load(arm.name), "convert")
        home = source.with_name(f"{arm.name}{written_by(arm.name)}") if own else source
        if not home.exists():
            arm.folder = home.with_suffix(".part")
            shutil.rmtree(arm.folder, ignore_errors=True)
            arm.folder.mkdir()
            self.child("convert", arm, work)
            arm.folder.rename(home)
        arm.folder = home

    def measured(self, arm: Arm, work: Workload, seconds: float) -> Measured:
        """One time."""
        warm = min(self.options.warm, seconds)
        return Measured(**self.child("measure", arm, work, seconds=seconds, warm=warm))

    def prepare(self, arm: Arm, work: Workload) -> Arm:
        """Its data, its best setting, and whether it gives what it should."""
        rival = load(arm.name)
        arm.trouble = getattr(rival, "WITHOUT", {}).get(work.name, "")
        if absent := missing(rival):
            arm.trouble = f"not installed: {', '.join(absent)}"
        if arm.trouble:
            return arm
        try:
            self.convert(arm, work)
            grid, times = getattr(rival, "GRID", WORKERS), {}
            seconds = min(GRID_S, self.options.seconds)
            for _ in range(LOOKS):
                for index, arm.setting in enumerate(grid if len(grid) > 1 else ()):
                    with contextlib.suppress(Failed):
                        found = self.measured(arm, work, seconds).seconds
                        times.setdefault(index, []).append(found)
            arm.setting = grid[min(times, key=lambda index: median(times[index]), default=0)]
            arm.checked = self.child("check", arm, work)
        except Failed as failed:
            arm.trouble = f"failed: {failed}"
        return arm

    def measure(self, work: Workload) -> list[Arm]:
        """Rounds of all, in turns."""
        names = [OURS] if self.options.tuner else self.options.loaders or NAMES
        arms = [self.prepare(Arm(name, load(name).TITLE), work) for name in names]
        if self.options.tuner and not arms[0].trouble:
            if self.options.ram is not None:
                arms[0].setting = arms[0].setting | {"ram": self.options.ram << 20}
            warm = seconds = self.options.seconds
            arms[0].told = self.child("tell", arms[0], work, seconds=seconds, warm=warm)
            arms += [Arm(OURS, arms[0].title, arms[0].folder, how) for how in load(OURS).EVERY]
        for index in range(self.options.rounds):
            for arm in arms if index % 2 == 0 else reversed(arms):
                if not arm.trouble:
                    try:
                        arm.rounds.append(self.measured(arm, work, self.options.seconds))
                    except Failed as failed:
                        arm.trouble = f"failed: {failed}"
            print(f"  round {index + 1} of {self.options.rounds}", flush=True)
        return arms


def run(command: list[str], kit: str) -> str:
    """What a command said last; all that it started is ended with it."""
    # One thread each for torch: the loaders' own workers are what fills the cores.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "OUTPACE_BENCH_KIT": kit}
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            command, stdout=said, stderr=said, cwd=HERE, env=env, start_new_session=True
        )
        try:
            child.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return f"not done after {PATIENCE_S:.0f} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        said.seek(0)
        lines = [line.strip() for line in said if line.strip()]
    return lines[-1] if lines else f"exit code {child.returncode}"


def arguments() -> argparse.Namespace:
    """Of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=WORKLOADS, help="a data set")
    parser.add_argument("--loaders", action="append", choices=NAMES, help="a loader")
    parser.add_argument("--quick", action="store_true", help="small data sets, two short rounds")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0, help="that are timed of each")
    parser.add_argument("--warm", type=float, default=2.0, help="seconds before them")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--kit", choices=("common", "outpace"), default="common")
    parser.add_argument("--tuner", action="store_true", help="our choice against all others")
    parser.add_argument("--ram", type=int, help="MiB for our loader's workers and batches")
    home = Path(tempfile.gettempdir(), "outpace-bench-serve")
    parser.add_argument("--data", type=Path, default=home, help="where data sets are kept")
    parser.add_argument("--output", type=Path, help="a file for the tables, as RESULTS.md")
    options = parser.parse_args()
    options.data = options.data.absolute()
    if options.quick:
        options.rounds, options.seconds, options.warm = 2, 1.5, 0.5
    return options


def main() -> None:
    """Measure, and write the tables."""
    options = arguments()
    bench = Bench(options)
    how = (
        f"{describe().cpu}, {options.cores} cores, {date.today()}: {options.rounds} rounds of "
        f"{options.seconds:g} s{', small data sets' if options.quick else ''}, kit {options.kit}."
    )
    done: dict[str, list[Arm]] = {}
    for name in options.only or WORKLOADS:
        work = WORKLOADS[name].quick() if options.quick else WORKLOADS[name]
        print(f"{work.title}, {work.count:,} samples", flush=True)
        done[work.title] = bench.measure(work)
        if options.output is not None:
            options.output.write_text(results(done, how))
    print(results(done, how))


if __name__ == "__main__":
    main()
