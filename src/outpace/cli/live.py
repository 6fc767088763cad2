"""``outpace live``."""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from outpace.cli.options import option
from outpace.cli.stdout import in_utf8
from outpace.cli.telling import colors
from outpace.errors import SessionError
from outpace.records.files import SCHEMA

EVERY_S = 0.25
KEPT = "session.json"
NEWEST = Path(".outpace")


class News(NamedTuple):
    """Where a session is, the newest word of it, how long ago that came, and how it stands: it is over, or
    its process is gone without having said so.
    """

    session: Path
    told: dict[str, Any]
    age_s: float
    over: bool
    gone: bool = False


Show = Callable[[News], None]


@click.command(
    "live",
    epilog="""\b
Examples:
  outpace live
  outpace live .outpace/last-run""",
)
@click.argument("session", required=False, type=click.Path(path_type=Path))
@option("--json", "as_json", is_flag=True, help="A JSON object a line, at each change.")
def command(session: Path | None, as_json: bool) -> int:
    """Look at a session while it runs, from another terminal (default: the newest in .outpace).

    Only its files are read. Leave with Ctrl-C; what runs goes on.
    """
    folder = session or NEWEST
    if news(folder) is None:
        if not begun(folder):
            raise SessionError(
                f"nothing has run in {folder}",
                "outpace diagnose, tune, plan, and run --deadline tell how far they are",
            )
        click.echo("a session has begun; nothing was told yet", err=True)
    drawn = sys.stdout.isatty() and in_utf8(sys.stdout)
    way = _lines if as_json else _screen if drawn else _phases
    last = None
    try:
        with way() as show:
            for last in changes(folder):
                show(last)
    except KeyboardInterrupt:
        return 0
    if last is None:
        raise SessionError(
            f"what had begun in {folder} ended before it told anything",
            "its own terminal says why",
        )
    if not as_json:
        _end(last)
    return 0


def news(folder: Path, now: float | None = None) -> News | None:
    """The newest word of the sessions in a folder; None where there is none that is one of ours."""
    from outpace.adapters.folder import in_use
    from outpace.report.live import newest
    from outpace.tune.files import SIZES, STATUS, read

    found = newest(folder)
    told = read(found[0]) if found is not None else None
    if found is None or told is None or not _is_ours(told):
        return None
    path, when = found
    session = folder
    if folder.name == NEWEST.name:
        session = folder / path.relative_to(folder).parts[0]
    last = [KEPT, SIZES, *([STATUS] if "steps" in told else [])]
    ends = [session / name for name in last]
    over = any(end.exists() and end.stat().st_mtime >= when for end in ends)
    if (over or in_use(session) is False) and any(
        in_use(other) for other in _sessions(folder) if other != session
    ):
        return None  # another has begun, and told nothing since
    return News(session, told, max(0.0, (now or time.time()) - when), over)


def begun(folder: Path) -> bool:
    """Whether a session is at work there."""
    from outpace.adapters.folder import in_use

    return any(map(in_use, _sessions(folder)))


def _sessions(folder: Path) -> list[Path]:
    """A session's folder, or those of all sessions, without the link to the latest."""
    if folder.name != NEWEST.name:
        return [folder]
    return [each for each in folder.glob("*/") if not each.is_symlink()]


def _is_ours(told: Any) -> bool:
    """Whether it says how far a session is: another program's file may have that name too."""
    try:
        _seen(told)
    except (AttributeError, KeyError, TypeError, ValueError, msgspec.ValidationError):
        return False
    return True


def changes(folder: Path) -> Iterator[News]:
    """The news, a few times a second until the session is over, or its process gone.

    Of several that run at once the first one found is followed, as long as it tells anything.
    """
    from outpace.adapters.folder import in_use
    from outpace.report.live import SILENT_S

    followed: Path | None = None
    while True:
        found = news(followed or folder)
        if found is None:
            if not begun(folder):
                return
        else:
            silent = found.age_s > SILENT_S
            newest = news(folder) if silent and not found.over else None
            of_all = newest is not None and newest.session == found.session
            gone = of_all and in_use(found.session) is False
            yield found._replace(gone=gone)
            if found.over or gone:
                return
            followed = None if silent else found.session
        time.sleep(EVERY_S)


def _seen(told: dict[str, Any]) -> Any:
    from outpace.report.live import Seen, of_experiments

    if "steps" not in told:
        return of_experiments(told)
    import msgspec

    from outpace.cli.run import said
    from outpace.records.plan import Progress

    found = msgspec.convert(told, Progress)
    whole = max(found.elapsed_s, found.elapsed_s + found.left_s)
    phase = "landing" if found.landing else "training"
    return Seen(phase, found.elapsed_s / whole if whole else 0.0, said(found), loss=found.loss)


@contextmanager
def _screen() -> Iterator[Show]:
    """A picture that is drawn anew."""
    from rich.console import Console
    from rich.live import Live

    from outpace.report.live import picture

    losses: dict[Path, dict[int, float]] = defaultdict(dict)
    console = Console(no_color=colors() is False)
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(found: News) -> None:
            seen, own = _seen(found.told), losses[found.session]
            if seen.loss is not None:
                own[found.told["steps"]] = seen.loss
            drawn = picture(str(found.session), seen, list(own.values()), found.age_s)
            live.update(drawn, refresh=True)

        yield show


@contextmanager
def _phases() -> Iterator[Show]:
    """A line for each tenth of each phase, where there is no terminal."""
    shown: tuple[str, int] | None = None

    def show(found: News) -> None:
        nonlocal shown
        seen = _seen(found.told)
        at = (seen.phase, int(10 * seen.share))
        if at != shown:
            shown = at
            _say(f"{seen.phase}  {100 * seen.share:.0f} %  {seen.note}".rstrip())

    yield show


@contextmanager
def _lines() -> Iterator[Show]:
    """The words themselves; what is not a number is null."""
    before = ""

    def show(found: News) -> None:
        nonlocal before
        line = msgspec.json.encode(
            {"schema": SCHEMA, "session": str(found.session), **found.told}
        ).decode()
        if line != before:
            before = line
            print(line if in_utf8(sys.stdout) else json.dumps(json.loads(line)), flush=True)

    yield show


def _say(line: str) -> None:
    from outpace.report.terminal import spelled

    print(spelled(line, ascii_only=not in_utf8(sys.stdout)), flush=True)


def _end(last: News) -> None:
    """How it ended."""
    if last.gone:
        _say(f"{last.session}: its process is gone, and did not say how it ended")
        return
    if "steps" in last.told:
        _say(f"{last.session}: {_seen(last.told).note}, then it ended")
        return
    file = last.session / KEPT
    if not file.exists():
        _say(f"{last.session}: measured; its own terminal has the answer")
        return
    from rich.console import Console

    from outpace.records.files import read_json
    from outpace.records.session import Session
    from outpace.report.terminal import print_session

    print_session(read_json(file, Session), Console(no_color=colors() is False))
