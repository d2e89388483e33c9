"""Pause frames of the cards of one pod. No file of sysfs has them, so the kernel is asked, and not at every look.

Asking takes its one lock over all links, which cards on their way into a pod need, and some cards ask their firmware.
The socket is opened anew each time: an open one would keep the pod's namespace alive, and its cards with it.
"""

from __future__ import annotations

from collections.abc import Mapping

from dranet.kernel.errors import KernelError
from dranet.kernel.ethtool import Ethtool
from dranet.kernel.namespaces import Namespace

SECONDS = 60.0


class Pauses:
    """The links of one network namespace."""

    def __init__(self, netns: str) -> None:
        self._netns = netns
        self._asked: float | None = None
        self._found: Mapping[int, tuple[int, int]] = {}

    def of(self, index: int | None, at: float) -> dict[str, int]:
        """Counters of the link with this index; none where its driver has none."""
        if self._asked is None or at - self._asked >= SECONDS:
            self._asked, self._found = at, self._ask()
        frames = self._found.get(index) if index is not None else None
        return {} if frames is None else {"rx_pause_frames": frames[0], "tx_pause_frames": frames[1]}

    def _ask(self) -> Mapping[int, tuple[int, int]]:
        try:
            with Namespace.open(self._netns) as namespace, Ethtool(namespace.fd) as ethtool:
                return ethtool.pause_frames()
        except KernelError:
            return {}  # the pod ends just now, or this kernel has no such family
