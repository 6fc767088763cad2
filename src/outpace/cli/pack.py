"""``outpace pack``."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from outpace.cli.options import on_command_line, option
from outpace.cli.progress import ProgressLine
from outpace.cli.stdout import echo_json, kept_clear
from outpace.cli.telling import tell
from outpace.errors import UsageError
from outpace.records.counted import counted

if TYPE_CHECKING:
    from outpace.serve.meta import Meta
    from outpace.serve.pack import Forecast
    from outpace.serve.verify import Verified

KINDS = ("auto", "records", "arrays", "table", "index")
STORES = {"records": "records", "arrays": "arrays", "table": "a table", "tars": "an index of tars"}
OF_PACKING = ("wanted", "resize", "float32", "on_error", "jobs", "force")
NAMED = 3
"""of what is wrong, so many are named"""


@click.command(
    "pack",
    epilog="""\b
Examples:
  outpace pack data/train packed
  outpace pack --resize 256 --on-error skip photos small
  outpace pack --float32 flights.csv flights
  outpace pack shards/*.tar index
  outpace pack mypkg.data:train_set packed
  outpace pack --verify packed""",
)
@option(
    "--as",
    "wanted",
    type=click.Choice(KINDS),
    default="auto",
    help="records: samples of any kind in one file; arrays: samples of one shape, images as their pixels; "
    "table; index: tars stay where they are (default: what suits the source).",
)
@option(
    "--resize",
    type=click.IntRange(min=1),
    help="Make images smaller whose shorter side is above this; a training then sees other pixels. Each "
    "keeps its format: PNG stays PNG, which takes more room than JPEG. As arrays: the middle square of each "
    "image in that many pixels a side.",
)
@option("--quality", type=click.IntRange(1, 100), help="Of resized JPEG and WebP (default: 90).")
@option(
    "--float32",
    is_flag=True,
    help="Floats of 64 bits in a table as 32: half the bytes. The same only to a script that makes float32 "
    "of them before anything else; columns that lose much are named.",
)
@option("--verify", "check", is_flag=True, help="Check every checksum, and the source for changes.")
@option(
    "--on-error",
    type=click.Choice(("raise", "skip")),
    default="raise",
    help="Leave out samples that cannot be read and rows of a CSV with too few or too many columns, and "
    "list them; JSON lines, Parquet, Arrow and an index of tars are taken whole (default: raise).",
)
@option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Threads that make samples (default: all cores; 8 for an address, 1 for module:name).",
)
@option("--force", is_flag=True, help="Replace an earlier pack under the same name.")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", "-q", is_flag=True, help="No progress.")
@click.argument("words", nargs=-1, required=True, metavar="SOURCE... DEST")
def command(
    words: tuple[str, ...],
    wanted: Any,
    resize: int | None,
    quality: int | None,
    float32: bool,
    check: bool,
    on_error: str,
    jobs: int | None,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> int:
    """Store a data set so that a training reads it fast, from any place, in any order.

    SOURCE is a folder of files, a .csv, .jsonl, .parquet or .arrow, a folder of parts of one, one or more
    WebDataset .tar, a folder of LitData, MDS or Hugging Face's save_to_disk, an address such as
    s3://bucket/photos, or a data set in Python as module:name. `outpace.Loader(DEST)` reads DEST.
    Interrupted, the same command goes on from where it was; a table begins anew. The exit code is 2 where
    --verify finds something wrong.
    """
    if len(words) == 1 and not check:
        raise UsageError(f"{words[0]}: packed to where?", "outpace pack SOURCE DEST")
    if len(words) == 1:
        named = [name for name in OF_PACKING if on_command_line(click.get_current_context(), name)]
        if named:
            flag = {"wanted": "as"}.get(named[0], named[0]).replace("_", "-")
            raise UsageError(f"--{flag} needs SOURCE and DEST", "outpace pack SOURCE DEST")
    if resize is None:
        if on_command_line(click.get_current_context(), "quality"):
            raise UsageError("--quality needs --resize", "say --resize 256 as well")
        quality = None  # a project's settings are of what it packs in other sizes
    if wanted == "arrays" and on_command_line(click.get_current_context(), "quality"):
        raise UsageError("--quality is of JPEG and WebP, arrays have pixels", "leave it out")
    from outpace.serve.pack import pack
    from outpace.serve.verify import verify

    dest = Path(words[-1])
    found = verified = None
    with kept_clear(as_json), Shown(quiet=quiet) as shown, kept(dest):
        if len(words) > 1:
            found = pack(
                words[:-1],
                dest,
                wanted,
                resize=resize,
                quality=quality or 90,
                float32=float32,
                skip=on_error == "skip",
                force=force,
                jobs=jobs,
                begin=shown.begin,
                progress=shown.progress,
            )
        if check:
            verified = verify(dest, shown.progress)
    if as_json:
        echo_json(as_document(dest, found, verified))
    else:
        if found is not None:
            show_packed(dest, found)
        if verified is not None:
            show_verified(dest, verified)
    return 0 if verified is None or verified.right else 2


@contextlib.contextmanager
def kept(dest: Path) -> Iterator[None]:
    """Tell one who interrupts what becomes of what is done."""
    try:
        yield
    except KeyboardInterrupt:
        from outpace.serve.partial import partial_of, target_of

        if partial_of(target_of(dest)).exists():
            click.echo("outpace: what is packed is kept: the same command goes on", err=True)
        raise


class Shown:
    """Forecast and progress on stderr."""

    def __init__(self, *, quiet: bool) -> None:
        self.line = ProgressLine(quiet=quiet)
        self.began: dict[str, tuple[float, int]] = {}

    def __enter__(self) -> Shown:
        self.line.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.line.__exit__(*error)

    def begin(self, told: Forecast) -> None:
        """What is going to be packed, in a line."""
        from outpace.report.words import size

        if self.line.quiet:
            return
        for line in (told.note, f"{amount(told)} ({told.reason}); {size(told.free)} are free"):
            if line:
                click.echo(f"outpace: {line}", err=True)

    def progress(self, phase: str, done: int, total: int) -> None:
        """How far a phase is, and when it will end."""
        now = time.monotonic()
        began, before = self.began.setdefault(phase, (now, done))
        note = ""
        if done > before and now - began >= 1:
            from outpace.plan.budget import duration

            note = f"{duration((now - began) / (done - before) * (total - done))} to go"
        self.line(phase, done, total, note)


def amount(told: Forecast) -> str:
    """``3,000 samples, about 61 MiB as records``."""
    from outpace.report.words import size

    samples = f"{counted(told.count, 'sample')}, " if told.count is not None else ""
    return f"{samples}about {size(told.bytes)} as {STORES[told.kind]}"


def show_packed(dest: Path, meta: Meta) -> None:
    """What has become of it."""
    from outpace.report.words import plain

    where = plain(str(dest))
    click.echo(f"{where}: {contents(meta)} as {STORES[meta.kind]}")
    click.echo(f"  {meta.grade}: {meta.why}")
    if meta.kind == "tars":
        from outpace.serve.shards import told
        from outpace.serve.tars import Tars

        if skew := told(Tars.packed(dest).sizes):
            click.echo(f"  {skew}")
    if meta.skipped:
        click.echo(
            f"  {counted(len(meta.skipped), 'source')} left out, all are in {plain(str(dest))}/meta.json:"
        )
        for one in meta.skipped[:NAMED]:
            click.echo(f"    {plain(one.path)}: {plain(one.reason)}")


def show_verified(dest: Path, verified: Verified) -> None:
    """What is wrong, else that nothing is."""
    from outpace.report.words import plain
    from outpace.serve.parts import listed

    meta, anew = verified.meta, f"pack it anew: outpace pack --force SOURCE {dest}"
    source = plain(meta.source.path)
    if verified.damaged:
        named = f"{counted(len(verified.damaged), 'part')} of {dest}: {listed(verified.damaged)}"
        tell(f"checksums are wrong of {named}", anew)
    if verified.missing:
        of = f"{len(verified.missing):,} of {counted(len(meta.shards), 'tar')}"
        back = f"put them back, or index them anew: outpace pack --force SOURCE {dest}"
        tell(f"{of} cannot be opened where they were: {listed(verified.missing)}", back)
    if verified.changed:
        of = f"{len(verified.changed):,} of {counted(meta.source.files, 'file')}"
        tell(f"{of} changed since packing: {listed(verified.changed)}", anew)
    if verified.right:
        said = {
            "same": "the source is as it was",
            "gone": f"the source is not there any more: {source}",
            "code": f"the source is code, which is not compared: {source}",
            "address": f"the source is behind an address, which is not compared: {source}",
        }[verified.source]
        click.echo(f"{contents(meta)}: all checksums right; {said}")


def contents(meta: Meta) -> str:
    """``3,000 records, 61 MiB``."""
    from outpace.report.words import size

    noun = {"table": "row", "records": "record"}.get(meta.kind, "sample")
    return f"{counted(meta.count, noun)}, {size(meta.bytes)}"


def as_document(dest: Path, packed: Meta | None, verified: Verified | None) -> dict[str, Any]:
    """For programs."""
    document: dict[str, Any] = {"schema": 1, "folder": str(dest.absolute())}
    if verified is None:
        return {**document, "packed": packed}
    names = ("right", "damaged", "missing", "changed", "source")
    found = {name: getattr(verified, name) for name in names}
    return {**document, "packed": verified.meta, "verified": found}
