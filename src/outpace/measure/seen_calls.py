"""Calls of a Python function, seen while it stays the same object: its code alone is another meanwhile.

A script may hold the function, compare it, pickle it, or have torch.jit.script read its source. Nothing of
that tells. Only a function without a closure can be seen so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any, final

Told = Callable[[tuple[Any, ...], dict[str, Any], Any], None]


@final
class SeenCalls:
    """``told`` gets a call's arguments and what it gave, from ``begin`` to ``end``."""

    def __init__(self, function: FunctionType, told: Told) -> None:
        self.function = function
        self._own = function.__code__
        self._signature = inspect.signature(function)
        plain = FunctionType(
            self._own, function.__globals__, function.__name__, function.__defaults__
        )
        plain.__kwdefaults__ = function.__kwdefaults__

        def seen(*args: Any, **kwargs: Any) -> Any:
            out = plain(*args, **kwargs)
            told(args, kwargs, out)
            return out

        self._seen = passing_on(seen, self._own)

    def begin(self) -> None:
        """From here on."""
        self.function.__code__ = self._seen
        # Which arguments there are is else told by the code.
        self.function.__signature__ = self._signature  # type: ignore[attr-defined]

    def end(self) -> None:
        """No more."""
        if self.function.__code__ is self._seen:
            self.function.__code__ = self._own
            del self.function.__signature__  # type: ignore[attr-defined]


def passing_on(to: Callable[..., Any], like: CodeType) -> CodeType:
    """Code that calls ``to`` with all that it is given, and whose source is said to be that of ``like``."""
    code = _pass_on.__code__
    constants = tuple(to if each == "to" else each for each in code.co_consts)
    return code.replace(
        co_consts=constants,
        co_name=like.co_name,
        co_filename=like.co_filename,
        co_firstlineno=like.co_firstlineno,
    )


def _pass_on(*args: Any, **kwargs: Any) -> Any:
    to: Any = "to"  # a constant: the globals will be those of another module
    return to(*args, **kwargs)
