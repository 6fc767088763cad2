"""How a source is to be packed: as what, why, and what the store keeps of a sample."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from outpace.errors import DataError, MissingExtra, UsageError
from outpace.serve import samples
from outpace.serve.arrays import HINT, MOST_FILES, Rows
from outpace.serve.chunks import Chunks
from outpace.serve.files import Files
from outpace.serve.hugging_face import HuggingFace
from outpace.serve.listing import Listing, list_files
from outpace.serve.meta import Kind, Skipped, is_pack
from outpace.serve.parts import TABLES
from outpace.serve.pixels import decoded
from outpace.serve.remote import Remote
from outpace.serve.resizing import resized
from outpace.serve.rows import split
from outpace.serve.sources import Source, open_source, table_files
from outpace.serve.table_files import parts_of
from outpace.serve.tables import Table
from outpace.serve.tars import Tars
from outpace.serve.telling import place_of

As = Literal["auto", "records", "arrays", "table", "index"]
Spec = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
TRIED = 32
"""samples that the kind and the size are told from"""
UNEVEN = "samples are not all of one shape"


@dataclass(frozen=True)
class Plan:
    """``origin``: what the source is called. A table has no ``source``: it is streamed."""

    kind: Kind
    reason: str
    origin: str
    digest: str
    options: dict[str, Any]
    listing: Listing | None = None
    source: Any = None
    rows: Rows | None = None
    resize: tuple[int, int] | None = None
    """shorter side and quality"""
    decoded: bool = False
    """whether encoded images become their pixels"""
    skipped: list[Skipped] = field(default_factory=list)
    """folders that could not be read"""

    def make(self, index: int) -> Any:
        """What the store keeps of a sample. Raises DataError that tells where the sample is."""
        try:
            if self.kind == "tars":
                return self.source.checksums(index)
            sample = self.source[index]
            if self.decoded:
                side = self.resize[0] if self.resize else None
                sample = decoded(sample, images_of(self.source), side)
            if self.rows is not None:
                return self.rows(sample)
            if self.resize:
                sample = resized(sample, *self.resize, images_of(self.source))
            return samples.encode(sample)
        except DataError as error:
            where = self.where(index)
            told = "" if error.message.startswith(where) else f"{where}: "
            raise type(error)(f"{told}{error.message}", error.hint or self._skip_hint()) from error
        except Exception as error:
            if self.listing is not None:
                raise  # Code of ours.
            told = f"{self.where(index)}: {type(error).__name__}: {error}"
            raise DataError(told, self._skip_hint()) from error

    def _skip_hint(self) -> str | None:
        return "--on-error skip leaves it out" if self.kind != "tars" else None

    def where(self, index: int) -> str:
        """Where a sample comes from."""
        return place_of(self.source, index) or f"{self.origin}, sample {index}"

    def as_records(self, reason: str) -> Plan:
        """The same into a store that takes samples of any shape."""
        return replace(self, kind="records", reason=reason, rows=None)

    @property
    def grade(self) -> tuple[Literal["exact", "numerics", "learning"], str]:
        """Whether a training learns the same from what is packed, and why."""
        if self.kind == "tars":
            return "exact", "nothing is copied"
        if self.options.get("float32"):
            return "numerics", (
                "floats of 64 bits are rounded to 32: the same bits only where a script makes float32 of "
                "them before anything else"
            )
        if self.resize is None:
            as_they_are = "images become the pixels that Pillow converts them to in RGB"
            return "exact", as_they_are if self.decoded else "samples stay as they are"
        side, quality = self.resize
        if self.decoded:
            return "learning", (
                f"the middle square of each image becomes {side} x {side} pixels: a training sees other ones"
            )
        return "learning", (
            f"images with a shorter side above {side} are resized to it, JPEG and WebP at quality "
            f"{quality}, others without loss: a training sees other pixels"
        )


def plan(
    spec: Spec, wanted: As, resize: int | None, quality: int, *, float32: bool, skip: bool
) -> Plan:
    """Look at a source. Raises DataError where it cannot be packed, UsageError where not like this."""
    if not isinstance(spec, str | os.PathLike) and len(spec) == 1:
        spec = spec[0]
    options: dict[str, Any] = {"as": wanted}
    path = Path(spec) if isinstance(spec, str | os.PathLike) else None
    if path is not None and is_pack(path):
        raise DataError(f"{path}: packed already", "name what it was packed from")
    if path is not None and (files := table_files(path)):
        if resize is not None:
            raise UsageError("a table has no images", "leave out --resize")
        if wanted in ("auto", "table"):
            origin, parts = _single(path, files)
            reason = "it is a table" + (f" in {len(files):,} parts" if len(files) > 1 else "")
            if float32:
                options["float32"] = True
            return Plan("table", reason, origin, parts.digest(), options, parts)
    if wanted == "table":
        raise UsageError("--as table is for tables", f"their names end in {', '.join(TABLES)}")
    if float32:
        raise UsageError("--float32 is of a table that is packed as one", "leave it out")
    skipped: list[Skipped] = []
    source = open_source(spec, skipped=skipped if skip else None)
    if not len(source):
        raise DataError(f"{spec}: there are no samples in it")
    _check(source, wanted, resize)
    if resize is not None:
        options |= {"resize": resize, "quality": quality}
    origin, listing = _files_of(spec, source)
    alike = listing is None or isinstance(source, Chunks | HuggingFace)
    decodes = wanted == "arrays" and has_images(source)
    some = _some(source, resize, decodes=decodes) if alike or wanted == "arrays" else []
    digest = listing.digest() if listing is not None else _digest(origin, source, some)
    kind, reason = choose(source, wanted, resize, some)
    return Plan(
        kind,
        reason,
        origin,
        digest,
        options,
        listing,
        source,
        rows=_rows(origin, some) if kind == "arrays" else None,
        resize=(resize, quality) if resize is not None else None,
        skipped=skipped,
        decoded=decodes,
    )


def _check(source: Source, wanted: As, resize: int | None) -> None:
    """Raises UsageError where what was asked for does not go together."""
    if resize is not None and (not has_images(source) or wanted == "index"):
        raise UsageError("--resize is for encoded images", "leave it out")
    if wanted == "index" and not isinstance(source, Tars):
        raise UsageError("--as index is for tars", "--as records takes any samples")


def has_images(source: Source) -> bool:
    """Whether its samples are files, which may be images, or it tells of such."""
    return isinstance(source, Files | Remote | Tars) or bool(images_of(source))


def images_of(source: Source) -> Sequence[str]:
    """Fields of encoded images that a source tells of; others are known by their suffix."""
    return source.images if isinstance(source, Chunks | HuggingFace) else ()


def choose(source: Source, wanted: As, resize: int | None, some: list[Any]) -> tuple[Kind, str]:
    """The kind of store, and the reason; ``some`` of the samples tell whether they are all alike."""
    if isinstance(source, Tars) and resize is None and wanted in ("auto", "index"):
        return "tars", "tars are read where they are"
    if wanted != "auto":
        return ("arrays" if wanted == "arrays" else "records"), "as was asked for"
    if isinstance(source, Files | Remote | Tars):
        return "records", "files differ in size"
    try:
        parted = [split(sample) for sample in some]
    except DataError:
        return "records", "samples hold more than numbers and arrays"
    if not some or any(structure != parted[0][0] for structure, _ in parted):
        return "records", UNEVEN
    if len(parted[0][1]) > MOST_FILES:
        return (
            "records",
            f"samples have {len(parted[0][1])} numbers and arrays, each a file of its own",
        )
    return "arrays", "samples are all of one shape"


def tried(count: int) -> list[int]:
    """Some of so many samples, from all over."""
    some = min(TRIED, count)
    return [index * count // some for index in range(some)]


def _some(source: Source, side: int | None, *, decodes: bool) -> list[Any]:
    """Those of them that can be read, and decoded: packing tells of the others.

    Raises DataError where none of those that can be read can be decoded.
    """
    found, refused = [], list[DataError]()
    for index in tried(len(source)):
        try:
            sample = source[index]
            found.append(decoded(sample, images_of(source), side) if decodes else sample)
        except MissingExtra:
            raise
        except DataError as error:
            refused.append(DataError(f"{place_of(source, index)}: {error.message}", error.hint))
        except Exception:  # of code of the user's
            continue
    # What cannot be read is told by packing; what none can be made of, at once.
    refused = refused if decodes else []
    if refused and not found:
        raise refused[0]
    return found


def _rows(origin: str, some: list[Any]) -> Rows:
    """By the sample of which there are most alike."""
    found, refused = list[Rows](), list[DataError]()
    for sample in some:
        try:
            found.append(Rows(sample))
        except DataError as error:
            refused.append(error)
    if found:
        structures = [rows.structure for rows in found]
        return max(found, key=lambda rows: structures.count(rows.structure))
    if refused:
        raise DataError(f"{origin}: {refused[0].message}", HINT)
    raise DataError(f"{origin}: none of its samples can be read", "--as records tells why")


def _files_of(spec: Spec, source: Any) -> tuple[str, Listing | None]:
    """What a source is called, and its files where it has any of its own."""
    if isinstance(source, Files):
        listing = list_files(os.path.abspath(source.root), source.names)
        return listing.root, listing
    if isinstance(source, Table):
        return _single(source.path, parts_of(source.path))
    if isinstance(source, Chunks | HuggingFace):  # not its folder, where there are other files too
        return _single(source.files[0], source.files)
    if not isinstance(source, Tars):
        return str(spec), None
    shards = [Path(shard) for shard in source.shards]
    if isinstance(spec, str | os.PathLike):
        return _single(Path(spec), shards)
    return f"{shards[0]} and {len(shards) - 1} more", _list(shards)


def _single(path: Path, files: list[Path]) -> tuple[str, Listing]:
    return str(path.absolute()), _list(files, path if path.is_dir() else None)


def _list(paths: list[Path], root: Path | None = None) -> Listing:
    folders = [os.path.dirname(os.path.abspath(path)) for path in paths]
    top = os.path.abspath(root) if root is not None else os.path.commonpath(folders)
    return list_files(top, [os.path.relpath(path, top) for path in paths])


def _digest(spec: str, source: Source, some: list[Any]) -> str:
    """What tells a source without files on a disk apart. Raises DataError where its samples are random."""
    from torch.utils.data import DataLoader

    from outpace.serve.probe import probe

    loader: Any = DataLoader(_Forgiving(source), collate_fn=_first)  # type: ignore[arg-type]
    found = probe(loader, workers=False)
    if found.deterministic is False:
        by = f" (drawn by {' and '.join(found.random_streams)})" if found.random_streams else ""
        raise DataError(
            f"{spec}: its samples are random{by}: packed, each would stay as it was drawn once",
            "switch augmentation off in the data set, and give it to outpace.Loader as transform=",
        )
    files = source.digest if isinstance(source, Remote) else ""
    digest = hashlib.sha256(f"{spec} {len(source)} {files}".encode())
    for sample in some:
        with contextlib.suppress(DataError):
            digest.update(samples.encode(sample))
    return digest.hexdigest()


class _Forgiving:
    """A data set whose broken samples are None: packing tells which and why."""

    def __init__(self, source: Source) -> None:
        self.source = source

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> Any:
        try:
            return self.source[index]
        except Exception:
            return None


def _first(batch: list[Any]) -> Any:
    return batch[0]
