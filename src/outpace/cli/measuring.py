"""What `diagnose` and `tune` have in common: their target, their folder, and how they end."""

from __future__ import annotations

import contextlib
import logging
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from outpace.cli.options import mark_latest, session_folder
from outpace.cli.progress import ProgressLine
from outpace.cli.stdout import echo_json
from outpace.cli.telling import tell_hint
from outpace.errors import Interrupted, UsageError
from outpace.records.session import Session
from outpace.records.target import Target

REPORTS = (".html", ".htm", ".md", ".markdown", ".json")


@dataclass(frozen=True)
class Given:
    """What the options that both have were set to."""

    target: Target
    folder: Path
    report: Path | None
    force: bool
    as_json: bool


def given(
    words: tuple[str, ...],
    session: Path | None,
    output: Path | None,
    force: bool,
    as_json: bool,
    verbose: bool,
) -> Given:
    """Check what can be checked before anything is measured."""
    from outpace.adapters.target import parse_target

    if verbose:
        logging.basicConfig(format="outpace: %(message)s", stream=sys.stderr)
        logging.getLogger("outpace").setLevel(logging.DEBUG)
    target = parse_target(words)
    if output is not None:
        check_report(output, force)
    return Given(target, session_folder(session, target.name), output, force, as_json)


def check_report(path: Path, force: bool, suffixes: tuple[str, ...] = REPORTS) -> None:
    """That a report can be written there is known before anything is measured."""
    if path.suffix.lower() not in suffixes:
        known = ".html, .md or .json" if suffixes == REPORTS else ".html"
        raise UsageError(f"{path} does not say what to write", f"name a file that ends in {known}")
    check_file(path, force)


def check_file(path: Path, force: bool, *, trace: bool = False) -> None:
    """The same for a file of any name."""
    from outpace.report import check_place, not_written

    check_place(path, force=force, trace=trace)
    if not path.absolute().parent.is_dir():
        raise UsageError(f"there is no folder {path.parent}", "make it first")
    try:
        tempfile.TemporaryFile(dir=path.absolute().parent).close()
    except OSError as error:
        raise not_written(path, error, "name a file elsewhere") from error


@contextlib.contextmanager
def kept(folder: Path, *, quiet: bool) -> Iterator[ProgressLine]:
    """Show progress meanwhile; raises Interrupted at Ctrl-C, which says what there is."""
    session = folder / "session.json"
    before = _written_at(session)
    with ProgressLine(quiet=quiet) as progress:
        try:
            yield progress
            return
        except KeyboardInterrupt:
            pass
        finally:
            if folder.parent.name == ".outpace":
                with contextlib.suppress(OSError):
                    folder.rmdir()  # nothing came of it
    if _written_at(session) not in (None, before):
        from outpace.report.words import command

        mark_latest(folder)
        report = command("outpace", "report", str(folder))
        raise Interrupted("interrupted", f"what was measured by then: {report}")
    raise Interrupted("interrupted before anything was measured")


def misplaced(target: Target) -> list[str]:
    """The target's arguments that are options of this command."""
    ctx = click.get_current_context(silent=True)
    params = ctx.command.params if ctx is not None else ()
    own = {name for each in params for name in (*each.opts, *each.secondary_opts)}
    words = target.args if target.kind != "command" else ()
    return [word for word in words if word.startswith("--") and word.split("=")[0] in own]


def _written_at(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return path.stat().st_mtime_ns
    return None


def show(session: Session, options: Given) -> int:
    """Print a session, and write its report; the target's own exit code where it failed."""
    if (options.folder / "session.json").exists():
        mark_latest(options.folder)
    if not options.as_json:
        from rich.console import Console

        from outpace.report.terminal import print_session

        print_session(session, Console(stderr=True), folder=str(options.folder))
    if options.report is not None:
        from outpace.report import write_report

        write_report(session, options.report, force=options.force)
        click.echo(f"wrote {options.report}", err=True)
    if options.as_json:  # last: what is on stdout by then stands beside no error
        echo_json(session)
    # 2: what argparse and its like end with where they do not know an argument.
    if session.exit_code == 2 and (words := misplaced(options.target)):
        tell_hint(
            f"{' and '.join(words)} came after the script's name, and so to the script; what is meant for "
            "outpace stands before it"
        )
    sys.stdout.flush()
    return 130 if session.outcome == "interrupted" else session.exit_code or 0
