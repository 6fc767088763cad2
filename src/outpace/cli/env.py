"""``outpace env``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from outpace.cli.options import option
from outpace.cli.stdout import echo_json
from outpace.records.counted import counted

if TYPE_CHECKING:
    from outpace.measure.doctor import DataLoading
    from outpace.records.machine import Machine

GIB = 2**30


@click.command("env", epilog="Example: outpace env --json")
@option("--start", is_flag=True, help="Measure what a worker process costs to start: some seconds.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(start: bool, as_json: bool) -> int:
    """This machine, the most it gives (measured once and kept), and what data loading meets here."""
    import msgspec

    from outpace.cli.progress import ProgressLine
    from outpace.cli.telling import colors
    from outpace.measure.ceilings import MEASURING, ceilings
    from outpace.measure.doctor import data_loading, hints
    from outpace.measure.machine import describe

    machine = describe()
    with ProgressLine() as progress:
        top = ceilings(machine, lambda: progress(MEASURING, 0, 1))
    machine = msgspec.structs.replace(machine, ceilings=top)
    loading = data_loading()
    if start:
        loading = with_starts(loading)
    told = hints(loading)
    if as_json:
        facts = {**msgspec.to_builtins(loading), "hints": told}
        echo_json({"schema": 1, **msgspec.to_builtins(machine), "data_loading": facts})
        return 0
    head = click.style("hint", fg="cyan", bold=True)
    for name, text in machine_rows(machine):
        click.echo(f"{name:<16} {text}")
    for fact, name, text in loading_rows(loading, asked=start):
        click.echo(f"{name:<16} {text}")
        if fact in told:
            click.echo(f"{'':<16} {head}: {told[fact]}", color=colors())
    return 0


def with_starts(loading: DataLoading) -> DataLoading:
    """Also what a worker costs to start."""
    import msgspec

    from outpace.cli.progress import ProgressLine
    from outpace.measure.starts import starts

    with ProgressLine() as progress:
        progress("starting worker processes", 0, 1)
        return msgspec.structs.replace(loading, starts=starts())


def machine_rows(machine: Machine) -> list[tuple[str, str]]:
    """What the machine is and gives."""
    most = machine.ceilings
    rows = [
        (
            "machine",
            f"{machine.cpu}, {counted(machine.cores, 'core')}, {machine.memory_bytes / GIB:.1f} GiB",
        ),
        ("software", f"{machine.system}, python {machine.python}, torch {machine.torch}"),
        ("fingerprint", machine.fingerprint),
    ]
    rows += [
        ("accelerator", f"{a.name}, {a.memory_bytes / GIB:.0f} GiB") for a in machine.accelerators
    ]
    if most is not None:
        rows += [(f"matmul {k}", f"{v / 1e9:,.0f} GFLOP/s") for k, v in most.matmul_flops.items()]
        rows.append(("memory", f"{most.memory_bytes_s / 1e9:.1f} GB/s"))
        if most.disk_read_bytes_s:
            rows.append(("disk read", f"{most.disk_read_bytes_s / 1e6:,.0f} MB/s"))
        if most.jpeg_decode_pixels_s:
            rows.append(("JPEG decode", f"{most.jpeg_decode_pixels_s / 1e6:.0f} megapixels/s"))
        rows.append(("one operator", f"{most.dispatch_s * 1e6:.1f} us forward and backward"))
    return rows


def loading_rows(loading: DataLoading, *, asked: bool) -> list[tuple[str, str, str]]:
    """What data loading meets: the fact, its name and its text. ``asked``: for the cost of starts."""
    from outpace.measure.doctor import limited_memory

    shared = loading.shared_memory
    room = (
        f"{_size(shared.bytes)} in {shared.path}, {_size(shared.free_bytes)} of it free"
        if shared is not None
        else "not limited by a file system here"
    )
    by = "the cgroup's quota" if loading.cores < loading.affinity_cores else "affinity"
    all_cores = loading.cores == loading.machine_cores
    cores = (
        "all of the machine's"
        if all_cores
        else f"of the machine's {loading.machine_cores}, by {by}"
    )
    memory = (
        f"{_size(loading.memory_bytes)} by the cgroup, of the machine's "
        f"{_size(loading.machine_memory_bytes)}"
        if limited_memory(loading)
        else "none below the machine's own"
    )
    soft, hard = (f"{n:,}" if n is not None else "any number" for n in _files(loading))
    return [
        ("shared_memory", "shared memory", room),
        ("cores", "cores to use", f"{loading.cores}, {cores}"),
        ("memory_bytes", "memory limit", memory),
        (
            "open_files",
            "open files",
            f"{soft}, at most {hard}; tensors shared by {loading.sharing}",
        ),
        ("start_method", "workers start", _starting(loading, asked)),
    ]


def _files(loading: DataLoading) -> tuple[int | None, int | None]:
    return loading.open_files, loading.most_open_files


def _starting(loading: DataLoading, asked: bool) -> str:
    """How workers start, and what one costs, by this way first."""
    own = loading.start_method
    if not asked:
        return f"by {own} (--start measures what one costs)"
    costs = [
        f"{method} {_seconds(start.seconds)}"
        + (f" and {_size(start.own_bytes)} of its own" if start.own_bytes is not None else "")
        for method, start in loading.starts.items()
    ]
    return f"by {own}; " + (
        "one costs by " + ", by ".join(costs) if costs else "not measured: it failed"
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{1e3 * seconds:.0f} ms"


def _size(count: int) -> str:
    """Bytes as GiB, or as MiB where they are few."""
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count / 2**20:.0f} MiB"
