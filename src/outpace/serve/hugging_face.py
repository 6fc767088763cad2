"""A data set that Hugging Face's `datasets` saved to disk (`save_to_disk`), its rows in any order.

Its package finds the rows; they come as Arrow, so that no number is turned into a Python object, nor
into another type. Images and audio are given as their encoded bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import MissingExtra
from outpace.serve.reading import unreadable
from outpace.serve.strings import position

STATE, INFO = "state.json", "dataset_info.json"
SPLITS = "dataset_dict.json"
ENCODED = ("Image", "Audio", "Video")
"""features of files' bytes"""


@final
class HuggingFace:
    """Rows of a saved data set: dicts of numbers, arrays, text, bytes, lists.

    A batch has numbers, and lists of numbers that are equally long, as arrays, anything else as lists.
    ``classes`` are those of its one ClassLabel. Raises DataError where it cannot be read, MissingExtra
    without the package.
    """

    gives_batches = True

    def __init__(self, folder: str | Path) -> None:
        try:
            import datasets
        except ImportError:
            raise MissingExtra("datasets", "huggingface") from None
        self.folder = Path(folder)
        try:
            saved = datasets.load_from_disk(str(folder))
        except Exception as error:  # of pyarrow, of json and of its own
            raise unreadable(self.folder, error) from error
        self.rows = saved.with_format("arrow")
        chunks = {name: saved.data.column(name).chunks for name in saved.column_names}
        self.gaps = {name for name, found in chunks.items() if any(map(_has_gaps, found))}
        kinds = {name: type(kind).__name__ for name, kind in saved.features.items()}
        self.encoded = [name for name, kind in kinds.items() if kind in ENCODED]
        self.images = tuple(name for name, kind in kinds.items() if kind == "Image")
        labels = [name for name, kind in kinds.items() if kind == "ClassLabel"]
        one = saved.features[labels[0]] if len(labels) == 1 else None
        self.classes = tuple(one.names) if one is not None else None

    def __reduce__(self) -> Any:
        return HuggingFace, (self.folder,)

    @property
    def files(self) -> list[Path]:
        """All that the rows are made from."""
        state = json.loads((self.folder / STATE).read_text())
        names = [file["filename"] for file in state["_data_files"]]
        return [self.folder / name for name in (STATE, INFO, *names)]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([position(index, len(self))])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        columns = self.batch(indices)
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def batch(self, indices: Sequence[int] | NDArray[np.integer[Any]]) -> dict[str, Any]:
        """The rows of a batch, column by column."""
        try:
            table = self.rows[np.asarray(indices).tolist()]
            return {name: self._column(name, table.column(name)) for name in table.column_names}
        except (OSError, ValueError) as error:  # pyarrow's are such
            raise unreadable(self.folder, error) from error

    def _column(self, name: str, column: Any) -> Any:
        if name in self.encoded:
            return [_content(value) for value in column.to_pylist()]
        return numbers(column.combine_chunks(), gaps=name in self.gaps)

    def where(self, index: int) -> str:
        """``saved: row 7``."""
        return f"{self.folder}: row {index}"


def numbers(column: Any, *, gaps: bool) -> Any:
    """An Arrow array as numpy's where it is of numbers or of lists of them, else as a list; so is one that
    has ``gaps``, here or elsewhere.
    """
    import pyarrow as pa

    kind, types = column.type, pa.types
    if isinstance(kind, pa.ExtensionType):  # arrays of two dimensions and more
        found = column.to_numpy(zero_copy_only=False)
        return np.array(found) if found.dtype != object else list(found)
    if gaps:
        return column.to_pylist()
    if _number(kind):
        return np.array(column.to_numpy(zero_copy_only=False))  # Arrow's is not to be written to
    if not _several(kind) or not _number(kind.value_type):
        return column.to_pylist()
    flat = np.array(column.flatten().to_numpy(zero_copy_only=False))
    if types.is_fixed_size_list(kind):
        return flat.reshape(len(column), -1)
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    if not (lengths != lengths[0]).any():
        return flat.reshape(len(column), -1)
    return np.split(flat, np.cumsum(lengths)[:-1])


def _has_gaps(chunk: Any) -> bool:
    """Whether there is nothing in some place, of lists inside of one too."""
    inside = chunk.flatten() if _several(chunk.type) else chunk
    return bool(chunk.null_count or inside.null_count)


def _several(kind: Any) -> bool:
    """Whether it is of lists."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _number(kind: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    )


def _content(value: Any) -> Any:
    """The bytes of an encoded file, which `datasets` may keep outside of the row."""
    if value is None or value.get("bytes") is not None or not value.get("path"):
        return value["bytes"] if value is not None else None
    try:
        return Path(value["path"]).read_bytes()
    except OSError as error:
        raise unreadable(value["path"], error) from error
