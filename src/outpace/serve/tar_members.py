"""Where the members of tars lie: read once from their headers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outpace.errors import DataError
from outpace.serve.files import field
from outpace.serve.reading import Which, unreadable, which

if TYPE_CHECKING:
    from tarfile import TarFile

NAME = re.compile(r"(?:\.?/)*((?:.*/)?[^./]+)\.([^/]*)")
HEADER = 512
"""bytes"""
TAIL = 1 << 20
"""of what follows the end, so many bytes are read at once"""
COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd")
"""how gzip, bz2, xz and zstd begin"""


def scanned(
    shards: Sequence[str | Path],
) -> tuple[list[tuple[int, int, int, int, int]], list[int], list[str], list[str], list[Which]]:
    """Members, the first of each sample and their end, keys, fields, and which files the shards are."""
    members: list[tuple[int, int, int, int, int]] = []
    first, keys = [0], list[str]()
    fields: dict[str, int] = {}
    files = list[Which]()
    for number, shard in enumerate(shards):
        last: str | None = None
        seen: set[str] = set()
        with _opened(shard) as (file, tar):
            files.append(file)
            for key, suffix, offset, size in _members(shard, tar):
                if key != last:
                    if keys:
                        first.append(len(members))
                    keys.append(key)
                    last, seen = key, set()
                name = field(suffix)
                if name in seen:
                    raise DataError(f"{shard}: member {key}.{suffix} is there twice")
                seen.add(name)
                members.append((number, fields.setdefault(name, len(fields)), offset, size, 0))
    if not keys:
        raise DataError(f"{shards[0] if shards else 'no tar'}: there are no samples in it")
    return members, [*first, len(members)], keys, list(fields), files


@contextmanager
def _opened(shard: str | Path) -> Iterator[tuple[Which, TarFile]]:
    """Which file a tar is, and its members. Raises DataError where it is no whole one."""
    import tarfile

    try:
        with open(shard, "rb") as file, tarfile.open(fileobj=file, mode="r:") as tar:
            yield which(file.fileno()), tar
            _check_end(shard, tar.offset)
    except OSError as error:
        raise unreadable(shard, error) from error
    except tarfile.TarError as error:
        hint = "a compressed tar cannot be read at random: uncompress it first"
        with open(shard, "rb") as file:
            compressed = file.read(8).startswith(COMPRESSED)
        raise DataError(f"{shard}: no whole tar: {error}", hint if compressed else None) from error


def _members(shard: str | Path, tar: TarFile) -> Iterator[tuple[str, str, int, int]]:
    """Key, suffix, place and size of each file in a tar."""
    for member in tar:
        tar.members = []  # type: ignore[attr-defined]  # They would all be kept.
        name = NAME.fullmatch(member.name)
        if name is not None and (member.islnk() or member.issym()):
            raise DataError(
                f"{shard}: member {member.name} is a link to {member.linkname}",
                "write the tar with --dereference --hard-dereference",
            )
        if not member.isreg() or name is None:
            continue
        if member.issparse():
            raise DataError(f"{shard}: member {member.name} is sparse")
        yield name[1], name[2], member.offset_data, member.size


def _check_end(shard: str | Path, end: int) -> None:
    """Raises DataError where more than zeros follow: a header that is damaged ends a tar for `tarfile`."""
    at = end
    with open(shard, "rb") as file:
        file.seek(end)
        while block := file.read(TAIL):
            rest = block.lstrip(b"\0")
            at += len(block) - len(rest)
            if rest:
                break
        else:
            return
    if at < end + HEADER:
        told = f"what is at byte {end:,} is no header of a member: what follows cannot be found"
        raise DataError(f"{shard}: {told}", "write or copy it anew")
    raise DataError(
        f"{shard}: there is more behind its end, from byte {at:,} on, as where tars were put together",
        "name each of them, or put them together by tar --concatenate",
    )


def folders_of(keys: Sequence[str]) -> tuple[int, tuple[str, ...] | None]:
    """The first level at which folders of keys differ, and their names there; none if one has none."""
    folders = {key.rpartition("/")[0] for key in keys}
    if "" in folders or len(folders) < 2:
        return 0, None
    parts = [folder.split("/") for folder in folders]
    depth = min(map(len, parts))
    level = next((at for at in range(depth) if len({each[at] for each in parts}) > 1), depth)
    if level == depth:
        return 0, None
    return level, tuple(sorted({each[level] for each in parts}))
