"""The catalogue, with a remedy from elsewhere that says nothing of itself."""

from __future__ import annotations

import pytest

from outpace.cli.remedies import command
from outpace.remedies import catalog


class Mute:
    name = "mute"
    treats = ("parse",)
    keeps = "exact"
    advice_only = False


def test_a_remedy_without_a_docstring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(catalog, "all_remedies", lambda: [Mute])
    assert command.main([], standalone_mode=False) == 0
    assert capsys.readouterr().out == "mute  exact\n"
