"""A sample as bytes and back: msgpack, with extensions for tuples, numpy arrays and torch tensors.

Nests of dict, list, tuple, None, bool, int, float, str, bytes, arrays, numpy scalars and dense tensors
come back as they were (tensors on the CPU, without gradients), file names that are not UTF-8 among the str.
Anything else is refused, classes derived from these among it: objects of other classes could only be kept by
pickle, which runs code when it is read.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError

TUPLE, ARRAY, SCALAR, TENSOR, NAME = 1, 2, 3, 4, 5
PLAIN = (bool, int, float, str, bytes, type(None))


def encode(sample: Any) -> bytes:
    """Raises DataError for what cannot be kept."""
    try:
        return _encoder.encode(_plain(sample))
    except (OverflowError, UnicodeEncodeError, TypeError, ValueError) as error:
        raise DataError(f"cannot be packed: {error}") from error


def decode(data: bytes | memoryview) -> Any:
    """What ``encode`` was given; msgspec.DecodeError for what it did not write.

    Arrays and tensors stay where they lie in ``data`` if that may be written to.
    """
    return _decoder.decode(data)


def is_tensor(value: Any) -> bool:
    """Whether it is a dense tensor, and nothing besides. Without importing torch."""
    torch = sys.modules.get("torch")
    if torch is None or type(value) not in (torch.Tensor, torch.nn.Parameter):
        return False
    return value.layout is torch.strided and not value.is_nested and not value.is_quantized


def is_array(value: Any) -> bool:
    """Whether it is an array or a numpy scalar, and nothing besides; where an array lies does not count."""
    return type(value) in (np.ndarray, np.memmap) or isinstance(value, np.generic)


def tensor_bytes(value: Any) -> tuple[str, NDArray[np.uint8]]:
    """The name of a tensor's type, and its bytes: numpy does not know all of torch's types."""
    import torch

    flat = value.detach().cpu().contiguous().resolve_conj().resolve_neg().flatten()
    return str(value.dtype).removeprefix("torch."), flat.view(torch.uint8).numpy()


def plain_array(value: Any) -> NDArray[Any]:
    """An array whose type has a name that says it all."""
    array = np.asarray(value)
    if array.dtype.hasobject or array.dtype.kind == "V":
        raise DataError(f"cannot be packed: it holds an array of {array.dtype}")
    return array


def refused(value: Any) -> DataError:
    """What is told of an object of another class."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return DataError(
        f"cannot be packed: it holds a {kind}",
        "samples are made of numbers, text, bytes, arrays and tensors, in dicts, lists and tuples",
    )


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value if kind is not str or is_text(value) else _name(value)
    if kind is dict:
        return {key: _plain(inner) for key, inner in value.items()}
    if kind is list:
        return [_plain(inner) for inner in value]
    if kind is tuple:
        return _extension(TUPLE, [_plain(inner) for inner in value])
    if is_array(value):
        array = plain_array(value)
        code = SCALAR if isinstance(value, np.generic) else ARRAY
        return _extension(code, [array.dtype.str, array.shape, array.tobytes()])
    if is_tensor(value):
        name, data = tensor_bytes(value)
        return _extension(TENSOR, [name, tuple(value.shape), data.tobytes()])
    raise refused(value)


def is_text(value: str) -> bool:
    """Whether UTF-8 has it: names of files need not be."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _name(value: str) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(NAME, value.encode("utf-8", "surrogateescape"))


def _extension(code: int, content: list[Any]) -> msgspec.msgpack.Ext:
    return msgspec.msgpack.Ext(code, _encoder.encode(content))


def _restored(code: int, data: memoryview) -> Any:
    if code == TUPLE:
        return tuple(_decoder.decode(data))
    if code == NAME:
        return str(data, "utf-8", "surrogateescape")
    kind, shape, raw = _parts.decode(data)
    if code == TENSOR:
        import torch

        dtype = getattr(torch, kind)
        if not raw:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(_own(raw, dtype.itemsize), dtype=dtype).reshape(shape)
    numbers = np.dtype(kind)
    array = np.frombuffer(_own(raw, numbers.alignment), numbers).reshape(shape)
    return array[()] if code == SCALAR else array


def _own(raw: memoryview, alignment: int) -> memoryview | bytearray:
    """Bytes that may be written to, and lie as numbers of that type have to."""
    astray = alignment > 1 and raw and np.frombuffer(raw, np.uint8).ctypes.data % alignment
    return bytearray(raw) if raw.readonly or astray else raw


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ext_hook=_restored)
_parts = msgspec.msgpack.Decoder(tuple[str, tuple[int, ...], memoryview])
