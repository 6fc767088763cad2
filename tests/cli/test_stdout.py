"""Stdout has the one document of ``--json``, whatever else is printed by whatever means."""

from __future__ import annotations

import json
import subprocess
import sys

PRINTS = """
import ctypes, os, subprocess, sys
from outpace.cli.stdout import echo_json, kept_clear

before = sys.stdout
with kept_clear(True):
    print("by print")
    print("to the stream before", file=before)
    print("to the first stream", file=sys.__stdout__)
    ctypes.CDLL(None).printf(b"by C\\n")
    subprocess.run(["echo", "by a child"], check=True)
echo_json({"as": "wanted"})
"""


def test_all_that_is_printed_meanwhile_goes_to_stderr() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRINTS], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {"as": "wanted"}
    for line in ("by print", "to the stream before", "to the first stream", "by C", "by a child"):
        assert f"{line}\n" in done.stderr
