"""What is held, what the script sets meanwhile, and what comes back."""

from __future__ import annotations

import pytest

from outpace.seams.switch import Switch


@pytest.fixture
def kept() -> dict[str, int]:
    return {"now": 1}


@pytest.fixture
def switch(kept: dict[str, int]) -> Switch:
    return Switch(lambda: kept["now"], lambda value: kept.update(now=value))


def test_the_scripts_own_comes_back(switch: Switch, kept: dict[str, int]) -> None:
    switch.hold(5)
    switch.hold(7)
    assert (kept["now"], switch.scripts()) == (7, 1)
    switch.hold(None)
    assert (kept["now"], switch.scripts()) == (1, 1)
    kept["now"] = 3
    switch.release()
    assert kept["now"] == 3, "nothing was held"


def test_what_the_script_sets_meanwhile_holds_afterwards(
    switch: Switch, kept: dict[str, int]
) -> None:
    switch.note(2)
    assert kept["now"] == 2
    switch.hold(5)
    switch.note(4)
    assert (kept["now"], switch.scripts()) == (5, 4)
    switch.release()
    assert kept["now"] == 4
