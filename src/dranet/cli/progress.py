"""A progress line on standard error: the current step and the elapsed seconds.

It appears after one second, on a terminal or with ``--progress``.
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
    """Set the current step."""
    _shown[0] = text


@contextlib.contextmanager
def single_run(progress: bool | None) -> Iterator[None]:
    """Run a command that reads its input, prints one result and exits.

    Garbage collection is off: the objects of a large cluster live until the end, and scanning them repeatedly takes
    longer than the plan.
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
