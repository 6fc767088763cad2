from __future__ import annotations

import ast
from typing import Any

from outpace.serve.written import written


def marked(function: Any) -> Any:
    return function


class Kind:
    @staticmethod
    @marked
    def method() -> int:
        return 1


def test_functions_are_found_as_they_are_written() -> None:
    several = [lambda: 1, lambda: 2]
    assert [ast.unparse(each) for each in written(several[0].__code__)] == [
        "lambda: 1",
        "lambda: 2",
    ]
    (found,) = written(Kind.method.__code__)
    assert ast.unparse(found).splitlines()[2] == "def method() -> int:"
    assert not written(compile("x = 1", "nowhere", "exec"))
