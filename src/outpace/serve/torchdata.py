"""The state of torchdata's StatefulDataLoader, read and written.

Only of data in their own order: where it shuffles, its order comes out of a generator of torch's. Its
state does not tell the epoch, and with workers not the size of its batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from outpace.errors import DataError

if TYPE_CHECKING:
    from outpace.serve.loader import Loader


def is_state(state: Mapping[str, Any]) -> bool:
    """Whether it is of a StatefulDataLoader, without workers or with them."""
    return "_num_yielded" in state or "_steps_since_snapshot" in state


def as_ours(state: Mapping[str, Any], loader: Loader) -> dict[str, Any]:
    """The state of ``loader`` where that one is. Raises DataError where ``loader`` shuffles or repeats."""
    own = loader.state_dict()
    refuse_others(own)
    if state["_iterator_finished"]:
        return {**own, "epoch": own["epoch"] + 1, "consumed": 0}
    consumed = drawn(state, loader.batch_size) * loader.world
    return {**own, "consumed": min(own["samples"], consumed)}


def drawn(state: Mapping[str, Any], batch_size: int) -> int:
    """Samples that a rank has drawn of its epoch. ``batch_size``: where only batches are counted."""
    if "_num_yielded" not in state:
        batches = state["_snapshot"]["_snapshot_step"] + state["_steps_since_snapshot"]
        return int(batches) * batch_size
    sampler = state["_sampler_iter_state"] or {}
    return int(sampler.get("samples_yielded", state["_num_yielded"] * batch_size))


def state_for(loader: Loader) -> dict[str, Any]:
    """What a StatefulDataLoader without workers goes on from where ``loader`` is.

    Raises DataError where that shuffles or repeats.
    """
    state = loader.state_dict()
    refuse_others(state)
    consumed, world = state["consumed"], loader.world
    if consumed % world and consumed < state["samples"]:
        raise DataError(
            f"{consumed} samples were drawn, which {world} ranks cannot have shared evenly",
            "go on with outpace.Loader to the end of the epoch",
        )
    own = -(-consumed // world)  # the last batch is filled up
    batches = -(-own // loader.batch_size)
    return {
        "_index_sampler_state": None,
        "_sampler_iter_state": {"samples_yielded": own},
        "_sampler_iter_yielded": batches,
        "_num_yielded": batches,
        "_IterableDataset_len_called": None,
        "_shared_seed": None,
        "fetcher_state": None,
        "dataset_state": None,
        "_iterator_finished": False,
    }


def refuse_others(own: Mapping[str, Any]) -> None:
    """Raises DataError where a Loader's state is of another order than that of the data."""
    if own["repeats"] is not None:
        raise DataError(
            "a StatefulDataLoader does not know what repeat() was given",
            "go from one to the other between two epochs, or without repeat()",
        )
    if own["shuffle"]:
        raise DataError(
            "a StatefulDataLoader shuffles by a generator of torch's, outpace.Loader by seed and epoch",
            "go from one to the other between two epochs, or with shuffle=False",
        )
