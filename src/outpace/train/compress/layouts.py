"""Channels of a model, and where a tensor has them."""

from __future__ import annotations

from typing import NamedTuple, final


class Slot(NamedTuple):
    """Where a layer has channels: from feature ``offset`` on, ``width`` features to each."""

    layer: str
    offset: int
    width: int


@final
class Channels:
    """Channels that some layers make, carry and read. ``kept``: why none of them can be removed."""

    def __init__(self, size: int, kept: str | None = None) -> None:
        self.size, self.kept = size, kept
        self.makers: list[str] = []
        self.carriers: list[Slot] = []
        self.readers: list[Slot] = []
        self.into: Channels | None = None
        """the ones that these turned out to be"""

    def root(self) -> Channels:
        """The ones that these are."""
        return self if self.into is None else self.into.root()

    def join(self, other: Channels) -> None:
        """Both are removed together, or neither."""
        one, two = self.root(), other.root()
        if one is not two:
            two.into = one
            one.makers += two.makers
            one.carriers += two.carriers
            one.readers += two.readers
            one.kept = one.kept or two.kept


class Part(NamedTuple):
    """Channels, ``width`` features to each."""

    channels: Channels
    width: int


class Layout(NamedTuple):
    """The dimension that channels are in, and which, side by side."""

    dim: int
    parts: tuple[Part, ...]

    def slots(self, layer: str) -> list[tuple[Channels, Slot]]:
        """Where a layer that they come to has each part."""
        found, offset = [], 0
        for channels, width in self.parts:
            found.append((channels.root(), Slot(layer, offset, width)))
            offset += channels.size * width
        return found

    def widened(self, times: int) -> Layout:
        """So many features to what was one."""
        return Layout(self.dim, tuple(Part(c, width * times) for c, width in self.parts))
