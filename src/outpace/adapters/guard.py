"""The kernel's help in keeping the user's files: Landlock (Linux 5.19 and later, no privilege).

A thread that restricts itself may from then on write only beneath some folders, and a process that
it starts inherits this, with all that it starts in turn: C libraries, shells, spawned workers. So
the target is started from a short-lived thread, and what `outpace.seams.writes` could not redirect
fails with "permission denied" instead of overwriting something.

Limits: file modes and times are not guarded; ``sudo`` and the like do not work below it; files that
were open before stay open. The first version of Landlock (5.13) is not used: it would refuse to
move files between folders also where they may be written.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_QUERY = 1
BENEATH = 1
NO_NEW_PRIVILEGES = 38

WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
REMOVE_AND_MAKE = sum(1 << bit for bit in range(4, 13))
REFER = 1 << 13
OF_FILES = WRITE_FILE | TRUNCATE


def version() -> int:
    """The kernel's version of Landlock; 0 where there is none that serves."""
    if not sys.platform.startswith("linux"):
        return 0
    found = _system_call(CREATE_RULESET, None, 0, VERSION_QUERY)
    return found if found >= 2 else 0


def guarded(writable: Iterable[str], action: Callable[[], T]) -> T:
    """Do ``action`` in a thread that, like all that it starts, may write only to ``writable``.

    Raises OSError where the kernel refuses.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            _restrict(writable)
            results.append(action())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work, name="outpace-guard")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _restrict(writable: Iterable[str]) -> None:
    handled = WRITE_FILE | REMOVE_AND_MAKE | REFER | (TRUNCATE if version() >= 3 else 0)
    attributes = struct.pack("Q", handled)
    rules = _checked(CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in writable:
            _allow(rules, path, handled)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
        _checked(RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def _allow(rules: int, path: str, handled: int) -> None:
    try:
        folder = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        rights = handled if stat.S_ISDIR(os.fstat(folder).st_mode) else handled & OF_FILES
        _checked(ADD_RULE, rules, BENEATH, struct.pack("=Qi", rights, folder), 0)
    finally:
        os.close(folder)


def _system_call(number: int, *args: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in (number, *args)]
    return int(libc.syscall(*words))


def _checked(number: int, *args: object) -> int:
    found = _system_call(number, *args)
    if found < 0:
        raise OSError(ctypes.get_errno(), "Landlock refused")
    return found
