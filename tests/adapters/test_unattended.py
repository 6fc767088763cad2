from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios

TRIED = """
import subprocess, sys
from outpace.adapters.unattended import unattended

with unattended() as stdin:
    asked = "import os, sys; print(os.get_terminal_size(0), [sys.stdin.read() for _ in range(3)])"
    subprocess.run([sys.executable, "-c", asked], stdin=stdin, check=False, timeout=60)
"""


def tried(stdin: int) -> str:
    done = subprocess.run(
        [sys.executable, "-c", TRIED],
        stdin=stdin,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_a_terminal_of_the_same_size_whose_input_is_over() -> None:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    try:
        assert tried(slave) == "os.terminal_size(columns=111, lines=33) ['', '', '']\n"
    finally:
        os.close(master)
        os.close(slave)


def test_no_terminal_where_ours_is_none() -> None:
    assert "Inappropriate ioctl" in tried(subprocess.DEVNULL)
