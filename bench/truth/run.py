"""The truth bench: scripts with a planted bottleneck, and whether `outpace diagnose` finds it.

    python bench/truth/run.py [--seeds 0 1 2 | --quick | --only parse_json] [--hog] [--repeats 2]

Each script in cases/ is run with the planted thing and without it (AMOUNT 0), in turns: what the
plant costs is measured, never assumed. A dose that costs nothing that can be shown is dropped and
listed. Then the script is diagnosed, unmodified, and the verdict is held against the label in its
docstring; so it is without the plant, where the planted cause must not come first.

A seed is a pass over all cases, an hour on two cores: all that is random in a script is by it. A
pass takes one dose of each; the passes of three seeds take all three. What is done is kept in
.outpace/truth, so that a run that was stopped, or made in shards, goes on, by the same code of
outpace: a machine's pace changes within hours, and a verdict is held against times of its own pass.
Beside the table of --output it is written once more, as RESULTS.jsonl; what is in there of this
processor is taken up, and other passes by the same code are put in the table as they are, so that passes
can be days apart and on several machines; with --alike those by other versions of the code too.
--repeats gives each verdict again, for whether it is the same. --quick takes the largest dose of a
few cases.

What a training is bound by is the plant where it takes half of the time or more. A smaller one has
to be found; what comes before it may only be what the script is bound by without it. How often the
planted bound itself comes first is told beside that.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Mapping
from datetime import date
from pathlib import Path

from cases import Case, all_cases, beside_a_hog
from keeping import Kept, code_of
from passes import SEEDS, Pass, earlier, of
from peers import PEERS
from results import HALF, Row, Truth, results, truth_of
from timing import time_dose
from verdict import judged, outpace

from outpace.measure.machine import describe

QUICK = ("collate_slow", "control_compute", "memory_elementwise", "outside_sleep", "parse_json")
CODE = code_of("diagnose")


class Bench:
    """Truths, verdicts and what peers say, each as it is kept or made now."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.kept = Kept(options.again, options.hog)

    def truth(self, case: Case, amount: str, seed: int) -> Truth:
        """What the plant costs."""
        rounds = self.options.rounds
        times = self.kept.once(
            f"times/{CODE}-{of(case, amount, seed)}",
            lambda folder: time_dose(case, amount, seed, rounds, folder),
        )
        return truth_of(times[amount], times["0"])

    def verdict(self, case: Case, amount: str, seed: int, repeat: int) -> Row:
        """A verdict and how right it is."""

        def make(folder: Path) -> Row:
            told = outpace(
                "diagnose", case.target(amount, seed), folder, "--time", self.options.time
            )
            facts = {"case": case.name, "amount": amount, "seed": seed, "repeat": repeat}
            return facts | {"code": CODE, "hog": self.options.hog, **judged(case, told)}

        return dict(self.kept.once(f"verdicts/{CODE}-{of(case, amount, seed)}-{repeat}", make))

    def peers(self, case: Case, amount: str, seed: int) -> dict[str, str] | None:
        """The bound that each peer names; None where they are not to be asked, and were not before.

        They start a script without torchrun: what trains in several ranks is no question for them.
        """
        name = f"peers/{of(case, amount, seed)}"
        if case.ranks > 1 or not (self.options.peers or self.kept.file(name).exists()):
            return None

        def make(folder: Path) -> dict[str, str]:
            args = case.arguments(amount, seed)
            return {name: told(case.path, args, folder) for name, told in PEERS.items()}

        return dict(self.kept.once(name, make))

    def run(self, case: Case, amount: str, seed: int) -> tuple[Truth | None, list[Row]]:
        """The truth about a dose, and verdicts with it and without."""
        truth = self.truth(case, amount, seed) if amount and case.timed else None
        if truth is not None and not truth.shown:
            print(f"  {case.name} {amount}: dropped, {truth}", flush=True)
            return truth, []
        doses = [amount, "0"] if amount and self.options.twins else [amount]
        repeats = range(self.options.repeats)
        rows = [self.verdict(case, dose, seed, repeat) for repeat in repeats for dose in doses]
        half = truth is not None and truth.speedup >= HALF
        if (half or not amount) and (told := self.peers(case, amount, seed)) is not None:
            rows[0]["peers"] = told
        for row in rows:
            said = f"{row['bound']}, {row['cause']}"
            gain = (
                f"{row['gain']['speedup']:.2f}x told of the cause"
                if row["gain"]
                else "it is not told"
            )
            of = "no plant" if row["amount"] in ("", "0") else f"truth {truth}"
            print(f"  {case.name} {row['amount']}: {said}; {gain}, {of}", flush=True)
        return truth, rows


def chosen(options: argparse.Namespace) -> list[tuple[Case, str, int]]:
    """Case, dose and seed of each thing to do."""
    found = []
    for seed in options.seeds:
        for index, case in enumerate(all_cases("gpu" if options.gpu else "cases")):
            if options.only and case.name not in options.only:
                continue
            if options.quick and not options.only and case.name not in QUICK:
                continue
            doses = case.amounts[-1:] if options.quick else case.amounts
            found.append((case, doses[(index + seed) % len(doses)] if doses else "", seed))
    part, _, parts = options.shard.partition("/")
    return found[int(part) - 1 :: int(parts)]


def how_run(bench: Bench, truths: Iterable[Truth], before: Mapping[int, Pass]) -> str:
    """On what, how thoroughly, and how long it took."""
    machine, options = describe(), bench.options
    took = ", ".join(f"{kind} {s / 60:.0f} min" for kind, s in bench.kept.seconds().items())
    rounds = {truth.rounds for truth in truths} or {0}
    pairs = f"{min(rounds)} to {max(rounds)}" if len(rounds) > 1 else f"{max(rounds)}"
    doses = "the largest dose of each" if options.quick else f"{len(options.seeds)} of 3 passes"
    others = "".join(
        f" Seed {seed} was made before, on {one.cpu}, by code {one.code}."
        for seed, one in before.items()
    )
    return (
        f"{machine.cpu}, {machine.cores} cores, {date.today()}: {doses}, {pairs} rounds"
        f"{', beside a program that keeps a core busy' if options.hog else ''}; {took}.{others}"
    )


def main() -> None:
    """Run what is not kept yet, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0],
        help=f"passes; {' '.join(map(str, SEEDS))} take every dose",
    )
    parser.add_argument("--quick", action="store_true", help="a few cases, largest dose")
    parser.add_argument("--only", action="append", default=[], help="names of cases")
    parser.add_argument(
        "--hog", action="store_true", help="beside a program that keeps a core busy"
    )
    parser.add_argument("--gpu", action="store_true", help="the cases in gpu/ instead")
    parser.add_argument(
        "--no-twins", dest="twins", action="store_false", help="no verdicts without the plant"
    )
    parser.add_argument("--peers", action="store_true", help="ask other tools too")
    parser.add_argument(
        "--rounds", type=int, default=6, help="pairs of runs for a truth, at most; 4 at least"
    )
    parser.add_argument(
        "--time", default="20", help="of a verdict: what diagnose takes by itself for some minutes"
    )
    parser.add_argument("--output", type=Path, help="a file for the table, as RESULTS.md")
    parser.add_argument("--repeats", type=int, default=1, help="of each verdict")
    parser.add_argument("--shard", default="1/1", help="part of the work, as 2/4")
    parser.add_argument("--again", action="store_true", help="forget what is kept")
    parser.add_argument(
        "--alike",
        nargs="+",
        default=[],
        metavar="CODE",
        help="versions whose passes go into the table too: what differs is to be told beside it",
    )
    options = parser.parse_args()
    work = chosen(options)
    bench = Bench(options)
    if options.output is not None and not options.again:
        bench.kept.take_up(options.output.with_suffix(".jsonl"))
    true: dict[tuple[str, str, int], Truth] = {}
    rows: list[Row] = []
    failed: list[str] = []
    begun = time.perf_counter()
    for index, (case, amount, seed) in enumerate(work):
        gone = (time.perf_counter() - begun) / 60
        print(f"{index + 1} of {len(work)}: {case.name}, {gone:.0f} minutes gone", flush=True)
        try:
            with beside_a_hog(options.hog):
                truth, verdicts = bench.run(case, amount, seed)
        except RuntimeError as error:
            print(f"  {case.name} {amount}: FAILED, {error}", flush=True)
            failed.append(f"{case.name} {amount}".rstrip())
            continue
        if truth is not None:
            true[case.name, amount, seed] = truth
        rows += verdicts
    before: dict[int, Pass] = {}
    if options.output is not None and not (options.quick or options.only or options.gpu):
        written = options.output.with_suffix(".jsonl")
        codes = [CODE, *options.alike]
        before = earlier(written, all_cases(), codes, hog=options.hog, but=options.seeds)
    for one in before.values():
        true |= one.true
        rows += one.rows
    how = how_run(bench, true.values(), before)
    text = results(
        all_cases("gpu" if options.gpu else "cases"), true, rows, how, twins=options.twins
    )
    if failed:
        text += f"\nFailed: {', '.join(failed)}.\n"
    print(text)
    if options.output is not None:
        options.output.write_text(text)
        bench.kept.write(options.output.with_suffix(".jsonl"))


if __name__ == "__main__":
    main()
