"""An epoch out of a feed, in the place of a DataLoader's iterator."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from threading import get_ident
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from outpace.seams.epoch_end import ends_here, lengthened
from outpace.seams.loader_record import Record
from outpace.seams.untraced import untraced

if TYPE_CHECKING:
    from outpace.seams.loader import LoaderSeam

Instead = Callable[[Exception], Callable[[], Iterator[Any]]]
"""given what was raised: what gives the batches of an epoch then"""


class Epoch:
    """One epoch's batches out of a feed, as the iterator of a DataLoader would give them."""

    def __init__(
        self,
        seam: LoaderSeam,
        record: Record,
        loader: DataLoader[Any],
        epoch: Callable[[], Iterator[Any]],
        instead: Instead | None = None,
    ) -> None:
        self.seam = seam
        self.record = record
        self.loader = loader
        """known while its epoch runs, also where the script has let it go"""
        self.epoch = epoch
        self.instead = instead
        """what gives the batches where the first one fails"""
        self.batches = epoch()

    def __iter__(self) -> Epoch:
        return self

    def __len__(self) -> int:
        if self.record.length is None:
            raise TypeError("this DataLoader has no length")
        return self.record.length

    def __next__(self) -> Any:
        seam, record = self.seam, self.record
        if get_ident() != seam.host.phases.owner:  # whose time is not looked into
            return self._or_instead(lambda: next(self.batches))
        if seam.dry:
            if record.runs_on(self) and ends_here(seam.host, record, sys._getframe(1)):
                raise StopIteration
            return untraced(self.draw)
        if seam.longer is not None and record.trains and record.runs_on(self):
            return lengthened(
                seam.host, seam.longer, record, self.draw, self.begin_again, sys._getframe(1)
            )
        return self.draw()

    def draw(self) -> Any:
        """One batch, timed."""
        return self._or_instead(
            lambda: self.seam.draw(self.record, lambda _: next(self.batches), self)
        )

    def _or_instead(self, draw: Callable[[], Any]) -> Any:
        instead, self.instead = self.instead, None
        try:
            return draw()
        except StopIteration:
            raise
        except Exception as error:
            if instead is None:
                raise
            self.epoch = instead(error)
        self.batches = self.epoch()
        return draw()

    def begin_again(self) -> bool:
        """Go on with the batches of another epoch."""
        self.batches = self.epoch()
        return True
