"""A number of things in words."""

from __future__ import annotations


def counted(number: int, noun: str, nouns: str | None = None) -> str:
    """``1 step``, ``1,200 steps``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {nouns or noun + 's'}"
