"""Takes a bed down when its owner dies without doing so: a test run that is killed leaves nothing behind.

The guard is one of the bed's own recorded processes, so an owner that does take its bed down ends the guard with it.
"""

from __future__ import annotations

import os
import select

from .cache import say
from .cluster import Cluster
from .layout import Layout
from .processes import Record


def guard(layout: Layout, owner: Record) -> None:
    """Sleep until the owner ends, then clear its bed away."""
    _wait_for_end(owner)
    say(f"the owner of {layout.name} is gone: taking it down")
    Cluster.running(layout).down()


def _wait_for_end(owner: Record) -> None:
    try:
        descriptor = os.pidfd_open(owner.pid)
    except ProcessLookupError:
        return
    if owner.alive():  # not another process that got the number since
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    os.close(descriptor)
