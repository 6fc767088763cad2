"""The folder of a session: there, and nobody else's.

Files in it are replaced and removed without asking, so that a folder with files of another origin is
not taken for one. What tells a session's folder is the spec that each process of the target is given.
"""

from __future__ import annotations

from pathlib import Path

from outpace.errors import SessionError

SPEC = "spec-{mode}.json"
OURS = SPEC.format(mode="*")


def not_made(folder: Path, error: OSError) -> SessionError:
    """What is told where a session's folder cannot be made."""
    why = error.strerror or error
    return SessionError(
        f"the session folder {folder} cannot be made: {why}", "--session names another"
    )


def claimed(folder: Path) -> Path:
    """The folder, made where it was not there. Raises SessionError where it cannot serve."""
    folder = folder.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        empty = next(folder.iterdir(), None) is None
    except OSError as error:
        raise not_made(folder, error) from error
    if not empty and next(folder.glob(OURS), None) is None:
        raise SessionError(
            f"{folder} holds files, and none of a session", "name a new folder with --session"
        )
    return folder
