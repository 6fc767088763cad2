"""Remedies that need new processes are tried as far as the time reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from outpace.tune.new_process import try_new_processes
from tests.remedies.some_evidence import ALL


def test_time_that_is_used_up_is_no_negative_time(tmp_path: Path) -> None:
    for evidence in ALL.values():
        trials = try_new_processes(
            lambda *_: pytest.fail("there is no time for it"),
            evidence,
            [],
            folder=tmp_path,
            time_s=-100.0,
            only=("allocator", "wait_policy"),
            skip=(),
            tell=lambda *_: None,
        )
        if trials:
            break
    assert trials[0].reason.endswith("s would be needed, 0 are left")
