"""How one batch is made from indices: item by item, by slicing, or from samples kept in memory.

The last two are used only where they give the very bits that the items give, which is tried on the
first batches, and on the first of each epoch; where they do not, the items are drawn as the script would.
A slice is compared ever more rarely later on too, and none is tried where a sample alone decides something.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from outpace.seams.generators import generators_in, generators_kept
from outpace.seams.host import on_stderr
from outpace.serve.deciding import decided_by_samples
from outpace.serve.pickled import pickled

Fetch = Callable[[Any], Any]
CHECKED = 2
"""batches that are compared with the items before the faster way is trusted"""


class Unlike(Exception):
    """A faster way does not give what the items give; says why.

    ``batch``: what they gave, where they were drawn.
    """

    def __init__(self, why: str, batch: Any = None) -> None:
        super().__init__(why)
        self.batch = batch


def same_bits(one: Any, other: Any) -> bool:
    """Whether two nested batches are equal in structure, types and bits; objects that do not compare
    are by what pickle makes of them, and by their tensors, which it tells apart by where they lie.
    """
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return False
        if one.layout != other.layout or one.is_nested != other.is_nested:
            return False
        if one.is_nested or one.layout is not torch.strided:
            return same_bits(_dense_parts(one), _dense_parts(other))
        if torch.equal(one, other):
            return True
        return (one.is_floating_point() or one.is_complex()) and bool(
            ((one == other) | (one.isnan() & other.isnan())).all()
        )
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        alike = one.dtype == other.dtype and one.shape == other.shape
        if alike and one.dtype.hasobject:  # whose bytes are addresses
            return same_bits(one.tolist(), other.tolist())
        return alike and one.tobytes() == other.tobytes()
    if isinstance(one, dict) and isinstance(other, dict):
        if type(one) is not type(other):
            return False
        return one.keys() == other.keys() and all(same_bits(one[k], other[k]) for k in one)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same_bits, one, other))
    if type(one) is not type(other):
        return False
    with contextlib.suppress(Exception):  # as of one that holds arrays
        if bool(one == other):
            return True
    with contextlib.suppress(Exception):
        (data, tensors), (others_data, others_tensors) = pickled(one), pickled(other)
        return data == others_data and same_bits(tensors, others_tensors)
    return False


def _dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """What a sparse or a nested tensor is made of."""
    if tensor.is_nested:
        return list(tensor.unbind())
    if tensor.layout is torch.sparse_coo:
        whole = tensor.coalesce()
        return [whole.indices(), whole.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def by_items(loader: DataLoader[Any]) -> Fetch:
    """The DataLoader's own way."""
    dataset, collate = loader.dataset, loader.collate_fn
    if loader._auto_collation:
        many = getattr(dataset, "__getitems__", None)

        def fetch(indices: Any) -> Any:
            return collate(many(indices) if many else [dataset[i] for i in indices])

        return fetch
    return lambda index: collate(dataset[index])


def _like(template: Any, value: Any) -> Any:
    """``value`` with the containers of the collated ``template`` and its leaves as tensors."""
    if isinstance(template, torch.Tensor):
        if isinstance(value, torch.Tensor | np.ndarray):
            return _laid_out(template, torch.as_tensor(value))
        raise Unlike(f"a slice gives {type(value).__name__}, not a tensor or an array")
    if isinstance(template, dict) and isinstance(value, dict):
        if template.keys() != value.keys():
            raise Unlike("a slice has other keys than the items")
        return type(template)({k: _like(template[k], value[k]) for k in template})
    if isinstance(template, tuple | list) and isinstance(value, tuple | list):
        if len(template) != len(value):
            raise Unlike("a slice has another number of parts than the items")
        parts = [_like(t, v) for t, v in zip(template, value, strict=True)]
        return type(template)(*parts) if hasattr(template, "_fields") else type(template)(parts)
    raise Unlike(
        f"a slice gives {type(value).__name__} where the items give {type(template).__name__}"
    )


def _laid_out(template: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """``value`` laid out as the collated one: a part of each row has gaps that a stack of them has not."""
    if template.layout is not torch.strided or value.layout is not torch.strided:
        return value
    if template.is_contiguous():
        return value.contiguous()
    if value.stride()[1:] != template.stride()[1:]:
        raise Unlike("a slice lies in memory otherwise than the collated items")
    return value


def drawn_again(dataset: Any) -> contextlib.AbstractContextManager[None]:
    """What is drawn inside comes a second time, and leaves the generators where the first has.

    Beside another thread the training draws meanwhile: what it drew may not be drawn again.
    """
    alone = threading.current_thread() is threading.main_thread()
    return generators_kept(*generators_in(dataset)) if alone else contextlib.nullcontext()


class Slices:
    """One ``dataset[indices]`` a batch. Raises Unlike where that is found not to give what the items give."""

    def __init__(self, loader: DataLoader[Any]) -> None:
        if not loader._auto_collation:
            raise NotImplementedError("the DataLoader does not make batches itself")
        self.dataset: Any = loader.dataset
        self.items = by_items(loader)
        self.decision = decided_by_samples(loader.dataset, loader.collate_fn)
        self.template: Any = None
        self.to_check = CHECKED
        self.fetched = 0
        self.sizes: set[int] = set()
        """of batches that were compared: one sample alone may lose a dimension"""

    def new_epoch(self) -> None:
        """Compare the next batch again: the data set may be another by now."""
        self.to_check = max(1, self.to_check)

    def fetch(self, indices: Sequence[int]) -> Any:
        """One batch. Of all the first, the second, the fourth and so on are compared."""
        if self.decision is not None:
            raise Unlike(self.decision)
        self.fetched += 1
        due = self.to_check or self.fetched.bit_count() == 1
        if not due and len(indices) in self.sizes:
            return _sliced(self.template, self.dataset, indices)
        self.template = wanted = self.items(indices)
        try:
            with drawn_again(self.dataset):
                got = _sliced(wanted, self.dataset, indices)
        except Unlike as unlike:
            raise Unlike(str(unlike), wanted) from unlike
        if not same_bits(wanted, got):
            raise Unlike("a slice differs from the collated items", wanted)
        self.to_check = max(0, self.to_check - 1)
        self.sizes.add(len(indices))
        return wanted


def _sliced(template: Any, dataset: Any, indices: Sequence[int]) -> Any:
    try:
        return _like(template, dataset[list(indices)])
    except Unlike:
        raise
    except Exception as error:
        raise Unlike(f"dataset[indices] raised {type(error).__name__}: {error}") from error


class Forgiving:
    """``fast``, and the items for good once it turns out not to give the same."""

    def __init__(self, fast: Fetch, items: Fetch, name: str) -> None:
        self.fast: Fetch | None = fast
        self.items = items
        self.name = name

    def __call__(self, indices: Any) -> Any:
        if self.fast is not None:
            try:
                return self.fast(indices)
            except Unlike as reason:
                self.fast = None
                on_stderr(f"outpace: {self.name} is left out: {reason}")
                if reason.batch is not None:  # drawn once more it may be another one
                    return reason.batch
        return self.items(indices)
