"""A line on standard error while an answer takes long: what is being done, and for how many seconds.

Nothing is shown for the first second, nor where standard error is no terminal, unless ``--progress`` asks for it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import time
from collections.abc import Iterator

FIRST, EVERY = 1.0, 0.5
_shown: list[str] = ["working"]


def stage(text: str) -> None:
    """From here on this is being done."""
    _shown[0] = text


@contextlib.contextmanager
def one_answer(progress: bool | None) -> Iterator[None]:
    """Around a command that reads, answers once and ends.

    Its garbage is never collected: a dump of a large cluster is millions of objects that all stay until the end, and
    looking through them again and again takes longer than planning on them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        with _ticking() if (sys.stderr.isatty() if progress is None else progress) else contextlib.nullcontext():
            yield
    finally:
        if collecting:
            gc.enable()


@contextlib.contextmanager
def _ticking() -> Iterator[None]:
    done = threading.Event()
    ticker = threading.Thread(target=_tick, args=(done,), daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()


def _tick(done: threading.Event) -> None:
    began, width = time.monotonic(), 0
    wait = FIRST
    while not done.wait(wait):
        line = f"{_shown[0]} ... {time.monotonic() - began:.0f} s"
        sys.stderr.write(f"\r{line:<{width}}")
        sys.stderr.flush()
        width, wait = len(line), EVERY
    if width:
        sys.stderr.write(f"\r{'':<{width}}\r")
        sys.stderr.flush()
