"""The cache of everything the bed downloads or builds, outside the source tree.

An entry is a folder named by what it holds and its version. It is made in a temporary folder next to its place and
renamed when complete, so a build that is interrupted leaves nothing that looks finished. One lock file for each entry
makes a second builder wait for the first instead of doing the work twice.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.file_lock import locked


class BedError(Exception):
    """Something the bed was asked to do and could not; the text says what was tried, what was seen and what to do."""


def say(text: str) -> None:
    """One progress line, on stderr so that stdout stays clean for answers."""
    print(f"[bed] {text}", file=sys.stderr, flush=True)


def cache_root() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "dranet" / "cluster"


def cached(key: str, build: Callable[[Path], None]) -> Path:
    """The folder of `key`, built by `build(folder)` if it is not there yet."""
    final = cache_root() / key
    if final.is_dir():
        return final
    waiting = f"waiting for another process that makes {final.name}"
    with locked(final.parent / f".{final.name}.lock", lambda: say(waiting)):
        if not final.is_dir():
            _build(final, key, build)
    return final


def _build(final: Path, key: str, build: Callable[[Path], None]) -> None:
    started = time.monotonic()
    say(f"making {key} (once, kept in {cache_root()})")
    _remove_abandoned(final)
    scratch = Path(tempfile.mkdtemp(prefix=f".{final.name}.tmp-", dir=final.parent))
    try:
        scratch.chmod(0o755)
        build(scratch)
        scratch.rename(final)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    say(f"made {key} in {time.monotonic() - started:.0f} s")


def _remove_abandoned(final: Path) -> None:
    """Scratch folders of builders that were killed; holding the lock means that they are unused."""
    for left in final.parent.glob(f".{final.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
