"""The shelf for prepared samples: under a name by what they are, not by where, and only if it is repaid.

The name is made of the samples themselves, some of them prepared anew, of the text of ``prepare``, and of
the names, sizes and times of the source's files where it has any: so another data set, another size or
another way to prepare them is another shelf, and a restart finds its own. Of a data set in Python, and of
what ``prepare`` calls, only those few samples tell.
"""

from __future__ import annotations

import errno
import hashlib
import inspect
import os
import stat
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from outpace.errors import UsageError
from outpace.seams.generators import generators_kept
from outpace.serve.arrays import Arrays
from outpace.serve.batches import same_bits
from outpace.serve.chunks import Chunks
from outpace.serve.files import Files
from outpace.serve.hugging_face import HuggingFace
from outpace.serve.listing import list_files
from outpace.serve.making import BatchMaker
from outpace.serve.meta import FILE as META
from outpace.serve.one_thread import one_thread
from outpace.serve.records import Records
from outpace.serve.remote import Remote
from outpace.serve.repaid import Left, costs, made_twice, repaid
from outpace.serve.shelf import Shelf, kept_and_read, packed
from outpace.serve.shelves import NAME_LETTERS, make_room, opened
from outpace.serve.table_files import parts_of
from outpace.serve.tables import Table
from outpace.serve.tars import Tars
from outpace.serve.telling import of_sample, short

NAMED_BY = 8
"""samples that are prepared for the name"""
PLAIN = "have prepare(sample) give numbers, text, arrays and tensors, in dicts, lists and tuples"
ENDLESS = Left()
FULL = (errno.ENOSPC, errno.EDQUOT, None)
"""numpy tells of a full disk without its number"""


def shelf_for(
    maker: BatchMaker, parent: Path | None, limit: int | None, left: Left = ENDLESS
) -> tuple[Shelf | None, str]:
    """The shelf of a maker's samples, and what there is to say of it.

    Where what is ``left`` of the training does not repay it nothing is added to the shelf, and there is
    none where nothing is kept yet, nor where the disk is full. Raises UsageError where the same sample,
    prepared twice, is not the same, DataError where one of those that the name is made of cannot be read.
    """
    if maker.whole:
        return None, "samples are not kept: their source gives whole batches"
    size = len(maker.source)
    name = hashlib.sha256(f"{size} {files_of(maker.source)}".encode())
    name.update(text_of(maker.prepare).encode("utf-8", "replace"))
    bytes_of_some = 0
    samples, made_s = list[Any](), list[float]()
    with generators_kept(), one_thread():
        count = min(NAMED_BY, size)
        for i in range(count):
            made = prepared_twice(maker, i * (size - 1) // max(1, count - 1))
            if made is not None:
                data = packed(made[0])
                bytes_of_some += len(data)
                name.update(data)
                samples.append(made[0])
                made_s.append(made[1])
    parent = parent if parent is not None else default_folder()
    try:
        parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder = parent / name.hexdigest()[:NAME_LETTERS]
        pays, why = True, ""
        try:
            if samples:
                found = costs(samples, made_s, parent)
                pays, why = repaid(found, left.most(size, found.make_s))
        except OSError as error:
            if error.errno not in FULL or not folder.exists():
                raise
            pays, why = False, f"the disk of {parent} is full"  # what is kept can be read
        if not pays and not folder.exists():
            return None, f"samples are not kept: {why}"
        shelf = opened(folder, size, limit or 0)
    except OSError as error:
        if error.errno not in FULL:
            raise UsageError(
                f"samples cannot be kept in {parent}: {error.strerror}",
                "name a folder that may be written to: keep='folder'",
            ) from error
        return None, f"samples are not kept: the disk of {parent} is full"
    said = f"{len(shelf):,} of {size:,} samples are kept in {shelf.folder}"
    if not pays:
        shelf.limit = 0
        return (shelf if len(shelf) else None), f"{said}, no more will be: {why}"
    each = bytes_of_some / max(1, min(NAMED_BY, size))
    lacks = int(each * (size - len(shelf)))
    if gone := make_room(shelf, lacks, limit):
        said += f"; shelves removed to make room: {gone}"
    if lacks > max(0, shelf.limit - shelf.taken):
        whole, most = each * size / 2**30, max(0, shelf.limit) / 2**30
        said += f"; of {whole:.1f} GiB there is room for {most:.1f}"
    return shelf, f"{said}; {why}" if why else said


def prepared_twice(maker: BatchMaker, index: int) -> tuple[Any, float] | None:
    """A prepared sample and the seconds that it takes; None of one that is to be skipped.

    Raises DataError where it cannot be read, UsageError where it is another one the second time.
    """
    try:
        sample, again, seconds = made_twice(lambda: maker.prepared(index))
    except Exception as error:
        if maker.on_error == "skip":
            return None
        raise of_sample(maker.where(index), index, error) from error
    where = maker.where(index)
    try:
        kept = kept_and_read(sample)
        alike = same_bits(kept, kept_and_read(again))
    except Exception as error:
        raise UsageError(f"{where} cannot be kept: {short(error)}", PLAIN) from error
    if not alike:
        raise UsageError(
            f"{where} prepared twice is not the same: kept, it would stay as it was once",
            "give what is random to transform(sample, rng) and keep what prepare(sample) gives",
        )
    if told := lost(sample, kept):
        raise UsageError(f"{where} cannot be kept: {told}", PLAIN)
    return sample, seconds


def lost(sample: Any, kept: Any) -> str:
    """What a sample would not have any more once it was kept; "" where nothing is lost. Objects of other
    classes are as pickle has them: of those only the class is looked at.
    """
    kind, other = type(sample), type(kept)
    if kind is not other:
        return f"a {kind.__qualname__} comes back as a {other.__qualname__}"
    if isinstance(sample, dict | list | tuple):
        parts = (one.values() if isinstance(one, dict) else one for one in (sample, kept))
        if len(sample) != len(kept):
            return f"a {kind.__qualname__} comes back with {len(kept)} of {len(sample)} parts"
        return next(filter(None, map(lost, *parts)), "")
    whole = kind not in (torch.Tensor, np.ndarray) or same_bits(sample, kept)
    return "" if whole else f"a {kind.__qualname__} comes back with other values"


def text_of(function: Any) -> str:
    """A function as it was written; "" of none, and where nobody wrote it down."""
    if function is None:
        return ""
    function = inspect.unwrap(getattr(function, "func", function))  # of a partial
    try:
        return inspect.getsource(function if inspect.isroutine(function) else type(function))
    except (OSError, TypeError):
        return ""


def files_of(source: Any) -> str:
    """What tells a source's files from others, all of them: names, sizes and times; "" of other sources."""
    if isinstance(source, Files):
        return list_files(os.path.abspath(source.root), source.names).digest()
    if isinstance(source, Tars):
        paths = [Path(shard) for shard in source.shards]
    elif isinstance(source, Chunks | HuggingFace):
        paths = source.files
    elif isinstance(source, Records | Arrays):
        paths = [source.folder / META]
    elif isinstance(source, Table):
        packed = source.blocks is not None
        paths = [source.path / META] if packed else parts_of(source.path)
    elif isinstance(source, Remote):
        return source.digest
    else:
        return ""
    return list_files("", [str(path.absolute()) for path in paths]).digest()


def default_folder() -> Path:
    """A folder of the user's own that does not outlive the machine's start.

    Samples are kept as pickles, and to read a pickle is to run code. Raises UsageError where the folder
    is one that somebody else made, or may write to.
    """
    user = os.getuid()
    folder = Path(tempfile.gettempdir()) / f"outpace-kept-{user}"
    folder.mkdir(exist_ok=True, mode=0o700)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
        raise UsageError(
            f"{folder} belongs to somebody else, or others may write to it",
            "name a folder of your own: keep='folder'",
        )
    return folder
