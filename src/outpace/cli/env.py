"""``outpace env``."""

from __future__ import annotations

import click

from outpace.cli.options import option


@click.command("env", epilog="Example: outpace env --json")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def command(as_json: bool) -> int:
    """This machine, and the most it gives: measured once and kept."""
    import msgspec

    from outpace.measure.ceilings import ceilings
    from outpace.measure.machine import describe
    from outpace.records.files import to_json

    machine = describe()
    machine = msgspec.structs.replace(machine, ceilings=ceilings(machine))
    if as_json:
        click.echo(to_json(machine))
        return 0
    most = machine.ceilings
    rows = [
        (
            "machine",
            f"{machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.1f} GiB",
        ),
        ("software", f"{machine.system}, python {machine.python}, torch {machine.torch}"),
        ("fingerprint", machine.fingerprint),
    ]
    rows += [
        ("accelerator", f"{a.name}, {a.memory_bytes / 2**30:.0f} GiB") for a in machine.accelerators
    ]
    if most is not None:
        rows += [(f"matmul {k}", f"{v / 1e9:,.0f} GFLOP/s") for k, v in most.matmul_flops.items()]
        rows.append(("memory", f"{most.memory_bytes_s / 1e9:.1f} GB/s"))
        if most.disk_read_bytes_s:
            rows.append(("disk read", f"{most.disk_read_bytes_s / 1e6:,.0f} MB/s"))
        if most.jpeg_decode_pixels_s:
            rows.append(("JPEG decode", f"{most.jpeg_decode_pixels_s / 1e6:.0f} megapixels/s"))
        rows.append(("one operator", f"{most.dispatch_s * 1e6:.1f} us forward and backward"))
    for name, text in rows:
        click.echo(f"{name:<16} {text}")
    return 0
