"""A folder outside the tree where the slow parts of the virtual machine are built once.

Every part is keyed by a digest of all that went into it, built in a temporary folder and renamed when finished: a
build that is interrupted leaves nothing that looks done. One lock keeps two builds from doing the same work.
"""

import hashlib
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tools.file_lock import locked


def say(line: str) -> None:
    print(f"[vm] {line}", file=sys.stderr, flush=True)


def digest(*parts: object) -> str:
    """Twelve hex digits that change when any part does; files count by content."""
    state = hashlib.sha256()
    for part in parts:
        state.update(part.read_bytes() if isinstance(part, Path) else repr(part).encode())
        state.update(b"\0")
    return state.hexdigest()[:12]


@dataclass(frozen=True)
class Cache:
    root: Path

    @classmethod
    def of_user(cls) -> "Cache":
        base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
        return cls(Path(base) / "dranet" / "vm")

    @contextmanager
    def lock(self) -> Iterator[None]:
        with locked(self.root / "lock", lambda: say("another build holds the cache, waiting for it")):
            yield

    def part(self, name: str, key: str, build: Callable[[Path], None]) -> Path:
        """The folder of one part, built now if this key was never built; older keys of the part are dropped."""
        final = self.root / f"{name}-{key}"
        if final.is_dir():
            return final
        say(f"{name}: building")
        started = time.monotonic()
        unfinished = self.root / f"{name}-{key}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        build(unfinished)
        unfinished.rename(final)
        say(f"{name}: built in {time.monotonic() - started:.0f} s")
        self._forget_others(name, final)
        return final

    def _forget_others(self, name: str, keep: Path) -> None:
        for other in sorted(self.root.glob(f"{name}-*")):
            if other != keep:
                shutil.rmtree(other, ignore_errors=True)
