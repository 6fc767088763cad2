"""Whether a script looks at gradients itself: those that no optimizer has may be of use to it after all.

As where all of a model's gradients are clipped by one norm, though a part of them is stepped.
"""

from __future__ import annotations

import os
import re
import sys
from types import FrameType
from typing import Any

from outpace.measure.dispatch import address_of, tensors_in
from outpace.measure.user_modules import say
from outpace.seams.host import Host
from outpace.seams.unused import unused
from outpace.seams.where import is_user_file

NAMED = re.compile(r"\.grad\b(?!\s*\()")
"""the attribute; not ``torch.autograd.grad(...)``"""
ASKED = re.compile(r"\.requires_grad\b(?!\s*=[^=])")
"""the attribute, as it is read"""
MEASURING = os.path.dirname(__file__) + os.sep
EMPTYING = ("zero_", "_foreach_zero_", "detach", "detach_")
"""operators that ``zero_grad`` calls"""


def named_in_script() -> bool:
    """Whether the user's modules name the gradients of tensors."""
    return say(NAMED)


def asked_for_in_script() -> bool:
    """Whether the user's modules ask which tensors have any."""
    return say(ASKED)


class Readings:
    """Looks whether operators are given gradients that no optimizer has. ``met``: one was."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.met = False
        self._backwards = -1
        self._memory: dict[int, Any] = {}

    def see(self, name: str, args: Any) -> None:
        """Look at an operator outside of backward passes."""
        if self._backwards != self.host.backwards:
            self._backwards = self.host.backwards
            weights = {address_of(weight.grad): weight for _, weight in unused(self.host)}
            self._memory = {address: each for address, each in weights.items() if address}
        if self._memory and not self.met and name not in EMPTYING:
            given = any(self._is_gradient(address_of(tensor)) for tensor in tensors_in(args))
            self.met = given and not called_by_us()

    def _is_gradient(self, address: int) -> bool:
        """Whether one lies there still: what was freed is given out again."""
        weight = self._memory.get(address)
        return weight is not None and address_of(weight.grad) == address


def called_by_us() -> bool:
    """Whether what runs under a dispatch mode was called by what measures here, not by the script."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "__torch_dispatch__":
        frame = frame.f_back
    frame = frame and frame.f_back
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith(MEASURING):
            return True
        frame = frame.f_back
    return False
