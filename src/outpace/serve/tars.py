"""WebDataset tars read at random: an index of where each member lies, and no copy of anything.

Members that follow each other and have the same name up to the first dot of its last part are one
sample, as WebDataset has it. Compressed tars cannot be read so.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from outpace.errors import DataError
from outpace.serve.flags import shared_flags
from outpace.serve.meta import Meta, load_array, read_meta
from outpace.serve.reading import ReadAt, Which
from outpace.serve.samples import is_text
from outpace.serve.strings import PackedStrings, position
from outpace.serve.tar_members import folders_of, scanned

MEMBER = np.dtype(
    [("shard", "<u4"), ("field", "<u4"), ("offset", "<u8"), ("size", "<u8"), ("checksum", "<u4")]
)
NUMBER = re.compile(rb"\s*-?[0-9]+\s*")
MOST_OPEN = 256
CHECKSUMS = "checksums.part"


@final
class Tars:
    """The samples of tar files: ``{"__key__": "cat/0001", "jpg": bytes, "cls": 3}``.

    "cls" is the number in a member of that suffix; where there is none, and keys have folders, that of
    the folder among ``classes``: the first one in which keys differ.
    """

    meta: Meta
    """where it is packed"""

    def __init__(self, shards: Sequence[str | Path]) -> None:
        self.folder: Path | None = None
        members, first, keys, fields, files = scanned(shards)
        level, classes = (0, None) if "cls" in fields else folders_of(keys)
        index = np.array(members, MEMBER), np.array(first), PackedStrings(keys)
        self._set(shards, *index, fields, level, classes, files)

    @staticmethod
    def packed(folder: str | Path) -> Tars:
        """From the index that `outpace pack` wrote; a shard that has changed is found when it is read."""
        found = Tars.__new__(Tars)
        found.folder = folder = Path(folder)
        found.meta = meta = read_meta(folder)
        names = ("members", "first", "keys", "ends")
        parts = [load_array(folder / f"{name}.npy") for name in names]
        wanted = [(MEMBER, len(parts[0])), (np.int64, meta.count + 1)]
        wanted += [(np.uint8, len(parts[2])), (np.int64, meta.count + 1)]
        for name, part, (kind, length) in zip(names, parts, wanted, strict=True):
            # Of what tells where samples begin and end a wrong bit gives whole members of other ones.
            known = meta.structure.get("checksums", {}).get(name)
            if part.dtype != kind or part.shape != (length,) or checksum_of(part) != known:
                raise found._damaged(f"{name}.npy")
        index = parts[0], parts[1], PackedStrings.of(parts[2], parts[3])
        ways = meta.fields, meta.structure["level"], meta.classes
        found._set(meta.shards, *index, *ways, [None] * len(meta.shards))
        return found

    def _set(
        self,
        shards: Sequence[str | Path],
        members: NDArray[Any],
        first: NDArray[np.int64],
        keys: PackedStrings,
        fields: Sequence[str],
        level: int,
        classes: tuple[str, ...] | None,
        files: Sequence[Which | None],
    ) -> None:
        self.shards = [os.fspath(shard) for shard in shards]
        self.members, self.first, self.keys, self.fields = members, first, keys, tuple(fields)
        self.checked = shared_flags(len(members))
        keep = len(shards) <= MOST_OPEN
        pairs = zip(self.shards, files, strict=True)
        self._files = [ReadAt(shard, keep, file) for shard, file in pairs]
        self.level, self.classes = level, classes
        self._number = {name: i for i, name in enumerate(classes or ())}

    def __reduce__(self) -> Any:
        return (Tars.packed, (self.folder,)) if self.folder else (Tars, (self.shards,))

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, index: int) -> dict[str, Any]:
        at = position(index, len(self))
        key = self.keys[at]
        sample: dict[str, Any] = {"__key__": key}
        for number in range(int(self.first[at]), int(self.first[at + 1])):
            data = self.member(number)
            name = self.fields[int(self.members[number]["field"])]
            sample[name] = int(data) if name == "cls" and NUMBER.fullmatch(data) else data
        if self.classes is not None:
            folders = key.split("/")
            if len(folders) <= self.level or folders[self.level] not in self._number:
                raise self._damaged(f"the key {key!r}")
            sample["cls"] = self._number[folders[self.level]]
        return sample

    def member(self, number: int) -> bytes:
        """A member's bytes. Raises DataError where they are not those that were indexed."""
        shard, _, offset, size, checksum = self.members[number].tolist()
        data = bytes(self._files[shard](offset, size))
        if self.folder is not None and not self.checked[number]:
            if zlib.crc32(data) != checksum:
                raise DataError(
                    f"{self.shards[shard]}: member {self._name(number)} is not as it was indexed: its "
                    "checksum is wrong",
                    f"index it anew: outpace pack --force SOURCE {self.folder}",
                )
            self.checked[number] = True
        return data

    @property
    def sizes(self) -> list[int]:
        """Samples of each shard."""
        shards = self.members["shard"][self.first[:-1]]
        found: list[int] = np.bincount(shards, minlength=len(self.shards)).tolist()
        return found

    def checksums(self, index: int) -> list[int]:
        """Of a sample's members."""
        numbers = range(int(self.first[index]), int(self.first[index + 1]))
        return [zlib.crc32(self.member(number)) for number in numbers]

    def _damaged(self, what: str) -> DataError:
        """Of the index itself."""
        return DataError(
            f"{self.folder}: its index is damaged: {what} is not as it was written",
            f"index it anew: outpace pack --force SOURCE {self.folder}",
        )

    def _name(self, number: int) -> str:
        sample = min(int(np.searchsorted(self.first, number, side="right")), len(self)) - 1
        return f"{self.keys[sample]}.{self.fields[int(self.members[number]['field'])]}"

    def where(self, index: int) -> str:
        """``train-0.tar: cat/0001``."""
        shard = int(self.members[int(self.first[index])]["shard"])
        return f"{self.shards[shard]}: {self.keys[index]}"

    def gone(self) -> list[str]:
        """Shards that cannot be opened where they were."""
        return [shard for shard in self.shards if not os.access(shard, os.R_OK)]

    def damaged(self, progress: Callable[[int, int], None]) -> list[str]:
        """Read all and tell what is not as it was indexed; of what is gone, `gone` tells."""
        found: list[str] = []
        self.checked[:], gone = False, {*self.gone()}
        for number in range(len(self.members)):
            try:
                self.member(number)
            except DataError:
                shard = self.shards[int(self.members[number]["shard"])]
                if shard not in gone:
                    found.append(f"{shard}: {self._name(number)}")
            progress(number + 1, len(self.members))
        return found


def checksum_of(part: NDArray[Any]) -> int:
    """Of a part of the index."""
    return zlib.crc32(part.view(np.uint8).data)


@final
class TarsWriter:
    """Writes the index; checksums come sample by sample, ``kept`` of them are there already."""

    def __init__(self, folder: Path, kept: int, source: Tars) -> None:
        for name in (*map(os.path.abspath, source.shards), *(source.classes or ()), *source.fields):
            if not is_text(name):
                raise DataError(
                    f"{name!r}: an index cannot hold a name that is not UTF-8",
                    "rename it, or pack it --as records",
                )
        self.folder, self.source, self.count = folder, source, kept
        path = folder / CHECKSUMS
        self.file = path.open("r+b" if path.exists() else "w+b")
        self.file.truncate(4 * int(source.first[kept]))
        self.file.seek(0, os.SEEK_END)

    def append(self, checksums: list[int]) -> None:
        """Of one sample."""
        self.file.write(np.array(checksums, "<u4").tobytes())
        self.count += 1

    def sync(self) -> None:
        """Have all of it on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        """Leave the file as it is."""
        self.file.close()

    def finish(self) -> dict[str, Any]:
        """Write the index; more for meta.json."""
        self.sync()
        source, members = self.source, self.source.members.copy()
        members["checksum"] = np.fromfile(self.folder / CHECKSUMS, "<u4")
        parts = {"members": members, "first": source.first}
        parts |= {"keys": source.keys.data, "ends": source.keys.offsets}
        for name, part in parts.items():
            np.save(self.folder / f"{name}.npy", part)
        return {
            "bytes": int(members["size"].sum()),
            "fields": source.fields,
            "shards": tuple(map(os.path.abspath, source.shards)),
            "structure": {
                "level": source.level,
                "checksums": {name: checksum_of(part) for name, part in parts.items()},
            },
        }
