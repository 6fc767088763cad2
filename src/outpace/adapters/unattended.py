"""What a program reads from where nobody is there to answer."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from subprocess import DEVNULL

END = b"\x04"
"""what ends a terminal's input"""
READS = 64
"""that are told that it has ended"""


@contextmanager
def unattended() -> Iterator[int]:
    """An input that has ended, for `subprocess.Popen`. Where ours is a terminal it is one of that size: a
    script that asks for its terminal's is given the same answer as in a person's own.
    """
    master = slave = None
    with suppress(OSError, ValueError, AttributeError, ImportError):
        if os.isatty(sys.stdin.fileno()):
            import fcntl
            import termios

            size = fcntl.ioctl(sys.stdin.fileno(), termios.TIOCGWINSZ, bytes(8))
            master, slave = os.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
            os.write(master, END * READS)
    try:
        yield DEVNULL if slave is None else slave
    finally:
        for end in (master, slave):
            if end is not None:
                os.close(end)
