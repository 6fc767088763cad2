"""Which folders a thrown-away run may write to, and which are the user's.

Three kinds, the first that fits decides:

- *always*: the session's folder, caches (``~/.cache``, where the usual variables point, and the
  folders of installed packages, for their byte code), ``/dev``, ``/proc``, ``/sys``, and what the
  user allowed. Written as ever.
- *kept*: the working directory, also where it lies inside the temporary folder. Redirected.
- *temporary*: ``$TMPDIR``, ``$TEMP`` and ``$TMP`` where they are whole paths, a job's own folder (as
  ``$SLURM_TMPDIR``), ``/tmp``, ``/var/tmp``. Written as ever: sockets and locks live there.

Everything else is redirected. A target that is run in the temporary folder *itself* is not
protected: what it writes there can't be told from other temporary files.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import NamedTuple

CACHES = (
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "TORCH_HOME",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HUGGINGFACE_HUB_CACHE",
    "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE",
    "TRITON_CACHE_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "CUDA_CACHE_PATH",
    "MPLCONFIGDIR",
    "NUMBA_CACHE_DIR",
    "PYTHONPYCACHEPREFIX",
)
TEMPORARY = ("TMPDIR", "TEMP", "TMP", "SLURM_TMPDIR", "PBS_JOBFS")
HOME_CACHES = (".cache", ".nv", ".triton")
DEVICES = ("/dev", "/proc", "/sys")


class Areas(NamedTuple):
    """Absolute folders with their symbolic links followed."""

    always: tuple[str, ...]
    kept: tuple[str, ...]
    temporary: tuple[str, ...]
    caches: tuple[str, ...]
    """those of `always` that libraries make when they first need them"""

    def passes(self, path: str) -> bool:
        """Whether ``path`` (absolute, links followed) is written as ever."""
        if _under(path, self.always):
            return True
        return not _under(path, self.kept) and _under(path, self.temporary)


def _under(path: str, folders: Iterable[str]) -> bool:
    return any(path == f or path.startswith(f + "/") for f in folders)


def areas(allow: Iterable[str], cwd: str, environ: Mapping[str, str]) -> Areas:
    """The areas of a run in ``cwd`` that may also write to ``allow``."""
    caches = [os.path.join("~", name) for name in HOME_CACHES]
    caches += [environ[name] for name in CACHES if name in environ]
    if "TRITON_HOME" in environ:
        caches.append(os.path.join(environ["TRITON_HOME"], ".triton"))
    # Without a home "~" stays as it is, and is no path.
    caches = [path for path in map(os.path.expanduser, caches) if os.path.isabs(path)]
    packages = [p for p in sys.path if os.path.basename(p) in ("site-packages", "dist-packages")]
    here = os.path.realpath(cwd)
    named = [environ[name] for name in TEMPORARY if os.path.isabs(environ.get(name, ""))]
    # A job that runs in its own folder keeps what it writes there.
    named = [each for each in named if each == environ.get("TMPDIR") or here not in _real([each])]
    temporary = _real([*named, "/tmp", "/var/tmp"])
    # A cache variable that names the working directory, or a folder around it, opens nothing.
    made, installed = (
        tuple(c for c in _real(folders) if not _under(here, [c])) for folders in (caches, packages)
    )
    kept = () if here in temporary else (here,)
    return Areas((*DEVICES, *_real(allow), *made, *installed), kept, temporary, made)


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    found = dict.fromkeys(os.path.realpath(p) for p in paths)
    return tuple(p for p in found if p != "/")
