"""The terminal view at 80 columns: order, width, colours, and every outcome."""

from __future__ import annotations

import io
import re
from collections.abc import Callable

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from outpace.records.evidence import Evidence
from outpace.records.session import Session
from outpace.report.terminal import print_session, spelled
from tests.report import report_sessions as made

ALL = [
    made.images_tuned,
    made.images_diagnosed,
    made.quiet,
    made.no_training,
    made.failed,
    made.nasty,
]


def printed(session: Session, *, terminal: bool = False, folder: str | None = None) -> str:
    file = io.StringIO()
    print_session(session, Console(file=file, width=80, force_terminal=terminal), folder)
    return file.getvalue()


@pytest.mark.parametrize("make", ALL)
def test_fits_80_columns_but_for_commands(make: Callable[[], Session]) -> None:
    head = printed(make()).split("\n  Next\n")[0]
    assert max(cell_len(line) for line in head.splitlines()) <= 80


@pytest.mark.parametrize("make", ALL)
def test_no_color_means_no_colour(
    make: Callable[[], Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]", printed(make(), terminal=True))


def test_text_from_outside_cannot_steer_the_terminal() -> None:
    assert "\x1b" not in printed(made.nasty())


def test_verdict_comes_first_then_ledger_findings_trials_proof_next() -> None:
    said = printed(made.images_tuned(), folder=".outpace/latest")
    order = [
        "3.42× as fast (3.27–3.58, measured), and the training loss is proven no",
        "Where the time went",
        "What would be gained",
        "Remedies tried",
        "Quality",
        "Overhead",
        "Note",
        "Next",
        "outpace run --recipe outpace.toml image_classifier.py --epochs 2",
        "outpace report .outpace/latest -o report.html",
    ]
    places = [said.index(part) for part in order]
    assert places == sorted(places)


def test_a_ledger_of_the_whole_run_says_so() -> None:
    session = made.images_diagnosed()
    run = msgspec.structs.replace(session.evidence.run, wall_s=20.0)
    evidence = msgspec.structs.replace(session.evidence, run=run)
    assert "58.2 s, 212 steps" in printed(session)
    said = printed(msgspec.structs.replace(session, evidence=evidence))
    assert "58.2 s: the whole run of 1,560 steps, from 212 steps seen" in said


def test_why_a_remedy_was_left_out() -> None:
    said = printed(made.images_tuned())
    assert "measured slower: two workers and two compute threads share two cores" in said
    assert "compiling took longer (48 s) than the run would gain (31 s)" in said


def test_none_comes_with_the_share_of_the_ceiling() -> None:
    said = " ".join(printed(made.quiet()).replace("┃", "").split())
    assert "No bottleneck was found." in said
    assert "A step reaches 63.3 % of this machine's float32 matrix speed" in said


def test_where_nothing_was_tried_nothing_is_said_of_bottlenecks() -> None:
    few = made.quiet(evidence=Evidence(machine=made.MACHINE))
    said = printed(few)
    assert "No experiment was made." in said
    assert "bottleneck" not in said
    assert "more than the noise" not in said


def test_no_training_and_failed_say_so_and_what_to_try() -> None:
    assert "No training was found." in printed(made.no_training())
    said = printed(made.failed())
    assert "The target failed with exit code 1." in said
    assert "python -m pkg.train --lr 1e-3" in said


def test_an_ascii_terminal_gets_plain_characters() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    print_session(made.images_tuned(), Console(file=file, width=80))
    raw = file.buffer
    assert isinstance(raw, io.BytesIO)
    assert b"3.42x as fast" in raw.getvalue()
    assert b"o predicted, * measured" in raw.getvalue()
    assert spelled("∞ for 0.53", ascii_only=True) == "inf for 0.53"


@pytest.mark.parametrize("make", ALL)
def test_an_ascii_terminal_never_fails_on_a_name(make: Callable[[], Session]) -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    print_session(make(), Console(file=file, width=80))


@pytest.mark.parametrize("width", [34, 40, 46, 50, 56, 60, 80, 100])
def test_figures_are_whole_however_narrow_a_terminal_is(width: int) -> None:
    session = made.images_tuned()
    gain = made.measured(80.0, 20.0, 90.0)
    finding = msgspec.structs.replace(session.findings[0], gain=gain)
    row = msgspec.structs.replace(session.ledger[1], seconds=3540.0 + 14)
    session = msgspec.structs.replace(
        session, findings=(finding, *session.findings[1:]), ledger=(row, *session.ledger[2:])
    )
    file = io.StringIO()
    print_session(session, Console(file=file, width=width))
    said = file.getvalue()
    for figure in ("58.6 %", "59 min 14 s", "over 30× 20.0–over 30", "1.19× 1.14–1.24"):
        assert figure in said
    assert "2.38× 2.29–2.47" in said
