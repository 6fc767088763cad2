"""A data set stored for fast training: what `outpace pack` does.

The store is written beside its place and takes its name when it is whole; a process that is killed
leaves what it has done to the next one. A table alone is always packed from its beginning.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outpace.errors import DataError, UsageError
from outpace.measure.machine import free_memory, usable_cores
from outpace.records.files import write_json
from outpace.serve import samples
from outpace.serve.arrays import ArraysWriter
from outpace.serve.meta import FILE, Kind, Meta, Origin, Skipped, is_pack
from outpace.serve.packing import Journal, Progress, Writer, write
from outpace.serve.partial import LOCK, check_free, clear, partial, publish, target_of
from outpace.serve.plans import UNEVEN, As, Plan, Spec, plan, tried
from outpace.serve.records import INDEX, RecordsWriter
from outpace.serve.remote import Remote
from outpace.serve.rounding import Rounding
from outpace.serve.rows import Uneven
from outpace.serve.sources import JOURNAL
from outpace.serve.table_files import (
    PARSED,
    GoesOnOtherwise,
    as_float32,
    batches_of,
    check_memory,
)
from outpace.serve.tables import write_table
from outpace.serve.tars import CHECKSUMS, MEMBER, TarsWriter

SPARE = 1.05
CHUNK_BYTES = 1 << 20
CHUNK_MOST = 64
AT_ONCE = 8
"""requests to an address, unless told otherwise"""
ON_THEIR_WAY, SHARE_OF_MEMORY = 4, 0.25
"""chunks a thread: two that wait to be written, one that is made, and what it is made of; of free memory,
for all of them
"""


@dataclass(frozen=True)
class Forecast:
    """What is going to be packed. ``note``: of an earlier attempt; ``count``: None if not known."""

    kind: Kind
    reason: str
    count: int | None
    bytes: int
    free: int
    note: str


@dataclass(frozen=True)
class How:
    """``skip``: leave out what cannot be read. ``jobs``: threads. The others are told how far it is."""

    skip: bool
    jobs: int | None
    begin: Callable[[Forecast], None]
    progress: Progress


def pack(
    spec: Spec,
    dest: str | os.PathLike[str],
    wanted: As = "auto",
    *,
    resize: int | None = None,
    quality: int = 90,
    float32: bool = False,
    skip: bool = False,
    force: bool = False,
    jobs: int | None = None,
    begin: Callable[[Forecast], None] = lambda forecast: None,
    progress: Progress = lambda phase, done, total: None,
) -> Meta:
    """Pack a source into the folder ``dest``; what its meta.json then says.

    ``float32``: of a table, floats of 64 bits as 32; ``why`` of the meta names columns that lose much.
    ``skip``: leave out what cannot be read, and list it. ``jobs``: threads that make samples; one
    unless given where the source is code of the user's, 8 for an address, else as many as there are
    cores. ``begin`` is told the forecast, ``progress`` the phase, what is done of it, and of how much.

    Raises UsageError or DataError, with nothing under the name of ``dest`` that was not there before.
    """
    target = target_of(dest)
    check_free(target, force=force)
    how = How(skip, jobs, begin, progress)
    with partial(target) as folder:
        found = plan(spec, wanted, resize, quality, float32=float32, skip=skip)
        root = os.path.realpath(found.origin)
        if os.path.isdir(root) and Path(os.path.realpath(target)).is_relative_to(root):
            raise UsageError(f"{dest} lies inside of {found.origin}", "pack to another place")
        if os.path.lexists(target) and _lies_in(found, target):
            raise UsageError(
                f"{found.origin} lies inside of {dest}, which would be replaced",
                "move it out of there, or pack to another place",
            )
        try:
            meta = (_table if found.source is None else _samples)(found, folder, how)
            if found.listing is not None:
                found.listing.save(folder)
            write_json(folder / FILE, meta)
            if os.path.lexists(target) and not is_pack(target):
                raise DataError(f"{dest} is there by now, and outpace did not pack it", "move it")
            publish(folder, target, (JOURNAL, INDEX, CHECKSUMS))
        except OSError as error:
            raise unwritable(folder, error) from error
    return meta


def _lies_in(found: Plan, target: Path) -> bool:
    """Whether a file of the source does."""
    listing = found.listing
    if listing is None:
        return False
    inside = Path(os.path.realpath(target))
    files = [os.path.join(listing.root, name) for name in listing.names]
    places = {*map(os.path.dirname, files), *filter(os.path.islink, files)}
    return any(Path(os.path.realpath(place)).is_relative_to(inside) for place in places)


def _samples(found: Plan, folder: Path, how: How) -> Meta:
    """All samples but those that are left out."""
    found, journal, note = _resumed(found, folder, how.skip)
    auto = found.options["as"] == "auto"

    def forgiven(error: DataError) -> bool:
        return how.skip and found.kind != "tars" and not (auto and isinstance(error, Uneven))

    fields, size = forecast(found)
    _check_room(found, size, len(found.source), folder, how, note)
    chunk = max(1, min(CHUNK_MOST, CHUNK_BYTES * len(found.source) // max(1, size)))
    jobs = how.jobs or _jobs(found, chunk * size // len(found.source))
    with contextlib.closing(_writer(found, folder, journal.kept)) as writer:
        journal.save(folder)
        try:
            write(found, writer, journal, folder, jobs, chunk, forgiven, how.progress)
        except Uneven as error:
            if not auto:
                raise
            writer.close()  # what is open would still take its room
            clear(folder)
            return _samples(found.as_records(error.message), folder, how)
        if not writer.count:
            raise DataError(f"{found.origin}: none of its samples can be packed")
        filled = {"count": writer.count, "fields": fields, **writer.finish()}
    return _meta(found, filled, journal.skipped)


def _jobs(found: Plan, chunk_bytes: int) -> int:
    """Threads: fewer where chunks are so large that those on their way would take the memory."""
    most = int(SHARE_OF_MEMORY * free_memory() / (ON_THEIR_WAY * max(1, chunk_bytes)))
    if isinstance(found.source, Remote):  # it waits, whatever the cores
        return max(1, min(AT_ONCE, most))
    return 1 if found.listing is None else max(1, min(usable_cores(), most))


def _resumed(found: Plan, folder: Path, skip: bool) -> tuple[Plan, Journal, str]:
    """The plan, where to go on from, and what there is to say of an earlier attempt."""
    journal = Journal.load(folder)
    new = Journal(found.kind, found.digest, found.options)
    if journal is None or not journal.done:
        clear(folder)
        return found, new, ""
    why = ""
    if journal.digest != found.digest:
        why = "the source has changed since"
    elif (
        journal.options != found.options
        or (journal.skipped and not skip)
        or journal.kind not in (found.kind, "records")
    ):
        why = "it had other options"
    if why:
        clear(folder)
        return found, new, f"an earlier attempt is thrown away: {why}"
    if journal.kind != found.kind:
        found = found.as_records(UNEVEN)
    return found, journal, f"goes on after {journal.done:,} of {len(found.source):,}"


def forecast(found: Plan) -> tuple[tuple[str, ...], int]:
    """Fields of the samples, and the bytes that the store will have, from some samples."""
    source = found.source
    if found.kind == "tars":
        return (), MEMBER.itemsize * len(source.members) + len(source.keys.data)
    if found.rows is not None:
        return tuple(leaf["leaf"] for leaf in found.rows.wanted), len(source) * found.rows.bytes
    made, read = [], 0
    fields: dict[str, None] = {}
    for index in tried(len(source)):
        try:
            record = found.make(index)
        except DataError:
            continue
        made.append(len(record))
        sample = samples.decode(record)
        fields |= dict.fromkeys(map(str, sample) if isinstance(sample, dict) else ())
        if found.listing is not None and len(found.listing.sizes) == len(source):
            read += int(found.listing.sizes[index])
    if not made:
        return (), 0
    share = found.listing.bytes / read if found.listing is not None and read else None
    return tuple(fields), int(sum(made) * (share or len(source) / len(made)))


def _check_room(
    found: Plan, size: int, count: int | None, folder: Path, how: How, note: str
) -> None:
    """Tell the forecast. Raises DataError where the disk is too small for it."""
    free = shutil.disk_usage(folder).free
    need = size * SPARE - sum(path.stat().st_size for path in folder.iterdir())
    how.begin(Forecast(found.kind, found.reason, count, size, free, note))
    if free < need:
        raise DataError(
            f"{folder.parent}: about {need / 2**20:,.0f} MiB are needed, {free / 2**20:,.0f} MiB are free",
            "make room, or pack to another disk",
        )


def _writer(found: Plan, folder: Path, kept: int) -> Writer:
    if found.kind == "tars":
        return TarsWriter(folder, kept, found.source)
    if found.rows is not None:
        return ArraysWriter(folder, kept, found.rows, len(found.source))
    return RecordsWriter(folder, kept)


def _table(found: Plan, folder: Path, how: How) -> Meta:
    left = any(path.name != LOCK for path in folder.iterdir())
    note = "an earlier attempt is thrown away: a table always begins anew" if left else ""
    try:
        return _written(found, folder, how, note, whole=False)
    except GoesOnOtherwise as error:
        check_memory(Path(found.origin), error)
        note = f"{error.message}: it is read anew, whole, so that columns suit all of it"
        return _written(found, folder, how, note, whole=True)


def _written(found: Plan, folder: Path, how: How, note: str, *, whole: bool) -> Meta:
    assert found.listing is not None
    clear(folder)
    skipped, rounding = list[Skipped](), Rounding()
    leave_out = skipped if how.skip else None
    table = batches_of(Path(found.origin), leave_out, whole=whole)
    narrow = found.options.get("float32")
    schema, batches, count = as_float32(table, rounding) if narrow else table
    first = next(batches, None)
    if first is None:
        raise DataError(f"{found.origin}: there are no rows in it")
    parts = found.listing.bytes / max(1, min(int(found.listing.sizes[0]), PARSED))
    size = int(first.nbytes * (parts if count is None else count / first.num_rows))
    _check_room(found, size, count, folder, how, note)
    filled = write_table(
        folder,
        found.origin,
        schema,
        itertools.chain([first], batches),
        lambda done: how.progress("packing", done, max(done, size)),
    )
    return _meta(found, filled, skipped, rounding.told())


def _meta(found: Plan, filled: dict[str, Any], skipped: list[Skipped], more: str = "") -> Meta:
    """``more``: what there is to say of the grade, besides the reason."""
    listing = found.listing
    grade, why = found.grade
    classes = getattr(found.source, "classes", None)
    return Meta(
        **filled,
        kind=found.kind,
        classes=tuple(map(str, classes)) if isinstance(classes, list | tuple) else None,
        source=Origin(
            found.origin,
            len(listing.names) if listing is not None else 0,
            listing.bytes if listing is not None else 0,
            found.digest,
        ),
        options=found.options,
        grade=grade,
        why=f"{why}; {more}" if more else why,
        skipped=(*found.skipped, *skipped),
    )


def unwritable(folder: Path, error: OSError) -> DataError:
    """What is told where a store cannot be written."""
    # numpy tells of a full disk without its number.
    full = error.errno in (errno.ENOSPC, errno.EDQUOT) or (
        error.errno is None and shutil.disk_usage(folder).free < CHUNK_BYTES
    )
    if full:
        return DataError(f"{folder}: the disk is full", "make room")
    reason = error.strerror or str(error)
    return DataError(f"{error.filename or folder}: cannot be written: {reason}")
