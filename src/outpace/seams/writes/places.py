"""The places of paths that a library is handed, in whose stead it is to open them."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import Any, Literal

from outpace.seams.writes.overlay import Overlay
from outpace.seams.writes.physical import is_folder, mode_of

Use = Literal["read", "files", "write", "change", "folder"]
"""``files``: what a pattern or a folder stands for is read too. ``folder``: new files are written into it,
and their paths are given back
"""
NO_PATH = re.compile(r"[\0\n]|^[A-Za-z][A-Za-z0-9+.-]+://")
FLAGS = {"write": os.O_WRONLY | os.O_CREAT | os.O_TRUNC, "change": os.O_RDWR | os.O_CREAT}


def place_for(overlay: Overlay, path: Any, use: Use) -> Any:
    """The place of a path's bytes, of each where there are several; what is no path is given back, nor an
    address, nor text that is read itself.
    """
    if isinstance(path, list | tuple):
        several = all(isinstance(each, str | os.PathLike) for each in path)
        return [place_for(overlay, each, use) for each in path] if several else path
    if not isinstance(path, str | bytes | os.PathLike) or NO_PATH.search(os.fsdecode(path)):
        return path
    if use in ("read", "files"):
        if not overlay.size[0]:
            return path
        return _files(overlay, path) if use == "files" else overlay.readable(path)
    if use == "folder":
        return _folder(overlay, path)
    place = overlay.opened(overlay.canonical(overlay.text(path)), FLAGS[use])
    return os.fsencode(place) if isinstance(path, bytes) else place


def _files(overlay: Overlay, path: Any) -> Any:
    """Of a folder, or a pattern for names in one, that was written to, its files; else the path's place."""
    overlay.sync()
    text = overlay.text(path)
    folder, _, pattern = text.rpartition("/")
    if not any(each in pattern for each in "*?["):
        folder, pattern = text, "*"
    folder = overlay.final(overlay.canonical(folder))
    if folder not in overlay.folders or not is_folder(overlay.place(folder)):
        return overlay.readable(path)
    names = sorted(fnmatch.filter(overlay.names(folder), pattern))
    places = [str(overlay.readable(f"{folder}/{name}")) for name in names]
    written = any(overlay.in_tree(place) for place in places)
    plain = not any(map(is_folder, places))
    return places if written and plain else overlay.readable(path)


def _folder(overlay: Overlay, path: Any) -> Any:
    """A folder's place in the tree; itself where the target has none, and the call is to say so."""
    folder = overlay.final(overlay.canonical(overlay.text(path)))
    if overlay.passes(folder) or not is_folder(overlay.place(folder)):
        return path
    overlay.make_folders(folder)
    return overlay.tree + folder


def written(overlay: Overlay, place: str) -> str:
    """The path as the target knows it of a file that a library wrote."""
    path = overlay.virtual(place)
    if path != place:
        overlay.note("w", path)
    return path


def own_file(overlay: Overlay, path: Any) -> str | None:
    """Where a file of the user's lies that is there, and is none of those that the target may write."""
    found = overlay.final(overlay.canonical(overlay.text(path)))
    place = overlay.place(found)
    if place != found or overlay.passes(found) or mode_of(place) is None:
        return None
    return place
