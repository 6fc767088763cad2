"""Where an epoch of training ends other than after its last batch: sooner, or later."""

from __future__ import annotations

import ast
import dis
import functools
import inspect
import linecache
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from outpace.seams.host import Host
from outpace.seams.loader_record import Record
from outpace.seams.where import is_user_file

LOOPS = ("FOR_ITER", "SEND")
"""operations by which a ``for``, or a ``yield from``, asks for the next item"""


class Longer(Protocol):
    """Lets an epoch of training go on with the batches of another."""

    def drawn_in(self, frame: FrameType) -> None:
        """A batch is drawn there."""

    def more(self) -> bool:
        """Whether the epoch whose batches are all drawn goes on."""


def trained(host: Host, record: Record) -> bool:
    """Whether a step was made in the running epoch: else the script judges by its training data."""
    return record.begun is not None and host.steps > record.begun


def ends_here(host: Host, record: Record, asking: FrameType) -> bool:
    """Whether an epoch that runs dry ends here, after a batch: whoever asks takes it for its end."""
    if not record.trains or not record.given or not trained(host, record):
        return False
    return takes_end(asking)


def takes_end(asking: FrameType) -> bool:
    """Whether it is a ``for`` that asks, or what goes through all batches itself. Who asks by ``next`` may
    take their end for a fault: only those are told so that expect it, and no line of the user's that asks
    the loader itself.
    """
    frame: FrameType | None = asking
    while frame is not None:
        code = frame.f_code
        if dis.opname[code.co_code[frame.f_lasti]] not in LOOPS:
            users = frame is asking and is_user_file(code.co_filename)
            return not users and expects_end(code.co_filename, frame.f_lineno)
        if not code.co_flags & inspect.CO_GENERATOR:
            return True
        frame = frame.f_back  # of the generator's batches it is told as well
    return False


@functools.lru_cache(maxsize=256)
def expects_end(filename: str, line: int) -> bool:
    """Whether a line that asks by ``next`` is in a ``try`` with an ``except StopIteration``."""
    try:
        tree = ast.parse("".join(linecache.getlines(filename)) or "?")
    except (SyntaxError, ValueError):
        return False
    asks = [each for each in ast.walk(tree) if _asks(each) and _has(each, line)]
    tries = [each for each in ast.walk(tree) if isinstance(each, ast.Try)]
    return all(any(_expects(each, ask) for each in tries) for ask in asks)


def _asks(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Name):
        return node.func.id == "next" and len(node.args) == 1
    return isinstance(node.func, ast.Attribute) and node.func.attr == "__next__"


def _has(node: ast.AST, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or line)  # type: ignore[attr-defined, no-any-return]


def _expects(each: ast.Try, ask: ast.AST) -> bool:
    """Whether a ``try`` has it in its body, and takes the end."""
    inside = any(ask is part for statement in each.body for part in ast.walk(statement))
    handlers = (handler.type for handler in each.handlers if handler.type is not None)
    return inside and any("StopIteration" in ast.unparse(kind) for kind in handlers)


def lengthened(
    host: Host,
    longer: Longer,
    record: Record,
    draw: Callable[[], Any],
    begin_again: Callable[[], bool],
    asking: FrameType,
) -> Any:
    """One batch, of the next epoch where this one has none left and is to go on.

    ``begin_again``: whether there is a next one to draw from.
    """
    host.guard("loader", longer.drawn_in, asking)
    try:
        return draw()
    except StopIteration:
        if not trained(host, record) or not host.guard("loader", longer.more):
            raise
        if not begin_again():
            raise
    record.given = 0
    return draw()
