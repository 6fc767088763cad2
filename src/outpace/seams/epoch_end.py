"""Where an epoch of training ends other than after its last batch: sooner, or later."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from outpace.seams.host import Host
from outpace.seams.loader_record import Record
from outpace.seams.where import is_user_file


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
    """Whether an epoch that runs dry ends here, after a batch.

    Of the user's lines only a ``for`` can be told so; libraries know what to make of it.
    """
    if not record.trains or not record.given or not trained(host, record):
        return False
    operation = dis.opname[asking.f_code.co_code[asking.f_lasti]]
    return operation == "FOR_ITER" or not is_user_file(asking.f_code.co_filename)


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
