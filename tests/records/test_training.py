"""A training as data: it comes back from JSON as it was, but for what JSON has no word for."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from outpace.errors import SessionError
from outpace.records.files import read_json, write_json
from outpace.records.session import read_session
from outpace.records.training import Training, Tried
from tests.report import report_trainings as made
from tests.report.report_sessions import images_diagnosed


@pytest.mark.parametrize("make", [made.trained, made.reached, made.not_validated, made.of_seeds])
def test_it_comes_back_from_json(tmp_path: Path, make: type[Training]) -> None:
    write_json(tmp_path / "session.json", make())
    assert read_session(tmp_path / "session.json") == make()


def test_infinite_costs_come_back_as_none_and_say_the_same(tmp_path: Path) -> None:
    tried = Tried("a", "b", "worse", math.inf, 0.5, -math.inf, 1, 60, 1.0)
    write_json(tmp_path / "session.json", made.trained(tried=(tried,)))
    (read,) = read_json(tmp_path / "session.json", Training).tried
    assert (read.cost, read.base, read.gain) == (None, 0.5, None)
    assert read.told() == tried.told()


def test_each_kind_is_read_as_what_it_is(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", images_diagnosed())
    assert read_session(tmp_path / "a.json") == images_diagnosed()


@pytest.mark.parametrize(
    "text", ['{"schema": 1}', '{"schema": 1, "command": "plan"}', '{"command": "mine"}']
)
def test_anything_else_is_no_session(tmp_path: Path, text: str) -> None:
    (tmp_path / "session.json").write_text(text)
    with pytest.raises(SessionError, match=r"session\.json is no session of outpace") as caught:
        read_session(tmp_path / "session.json")
    assert "train" in (caught.value.hint or "")


def test_half_a_training_is_told_as_one(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text('{"schema": 1, "command": "train", "steps": 3}')
    with pytest.raises(SessionError, match=r"cannot be read: .*missing required field"):
        read_session(tmp_path / "session.json")
