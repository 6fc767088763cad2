"""Objects of any class on their way from a worker process: pickled, with their tensors apart.

A tensor that is pickled for another process goes by shared memory of its own, which the worker keeps open
for good where nobody reads the pickle; and it does not lie with the others of its batch.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from multiprocessing.reduction import ForkingPickler
from pickle import Unpickler
from typing import Any, final

import numpy as np
import torch

SIMPLE = (str, bytes, int, float, complex, bool, type(None))


def is_simple(value: Any) -> bool:
    """Whether there is nothing in it but what can be pickled for sure, and no tensor."""
    kind = type(value)
    if kind is dict:
        return all(is_simple(key) and is_simple(part) for key, part in value.items())
    if kind is list or kind is tuple:
        return all(map(is_simple, value))
    return kind in SIMPLE or (kind is np.ndarray and not value.dtype.hasobject)


def pickled(value: Any) -> tuple[bytes, list[torch.Tensor]]:
    """An object without its tensors, and these. Raises what its class raises where it cannot be pickled."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(value)
    return file.getvalue(), pickler.tensors


def unpickled(data: bytes, tensors: Sequence[Any]) -> Any:
    """The object again, with such tensors."""
    return _Unpickler(data, tensors).load()


@final
class _Pickler(ForkingPickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.tensors: list[torch.Tensor] = []

    def reducer_override(self, obj: Any) -> Any:
        """In the place of a tensor, its number; one that is met again is known by then."""
        if not isinstance(obj, torch.Tensor):
            return NotImplemented
        self.tensors.append(obj)
        return _numbered, (len(self.tensors) - 1,)


@final
class _Unpickler(Unpickler):
    def __init__(self, data: bytes, tensors: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(data))
        self.tensors = tensors

    def find_class(self, module: str, name: str) -> Any:
        """A class or a function by its name; that of tensors looks among those at hand."""
        ours = (module, name) == (__name__, _numbered.__name__)
        return self.tensors.__getitem__ if ours else super().find_class(module, name)


def _numbered(number: int) -> torch.Tensor:
    """Stands for a tensor in a pickle, which only `unpickled` reads."""
    raise NotImplementedError
