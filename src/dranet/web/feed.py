"""What the page has been told, and what it is told next: changes, not the world.

Changes that arrive together are sent together, and only views that differ from the last ones leave the house. Every
change has a number; a page that lost its connection names the last one it saw and gets the rest, or the world again
where that is too long ago or was another server's. A fleet that comes all at once is looked at in parts, so that a page
is answered meanwhile; it is told how much is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from dranet.web.cluster import KINDS, ClusterObjects
from dranet.web.history import History
from dranet.web.views import View, holder_view, node_view, stale_view

TOGETHER_SECONDS = 0.05
REMEMBERED = 256
QUEUED = 1024
AT_ONCE = 500
"""Nodes and holders looked at before anybody else has a turn: about a tenth of a second."""


class Feed:
    """The views of one cluster and everybody who looks at them."""

    def __init__(self, cluster: ClusterObjects, title: str, live: bool) -> None:
        self._cluster = cluster
        self._title = title
        self._live = live
        self._nodes: dict[str, View] = {}
        self._holders: dict[str, View] = {}
        self._layouts: dict[str, View] = {}
        self._waiting: list[str] = []
        self._left = 0
        self.history = History()
        self._stale: View | None = None
        self._number = 0
        self._server = secrets.token_hex(4)
        self._past: deque[tuple[int, bytes]] = deque(maxlen=REMEMBERED)
        self._listeners: set[asyncio.Queue[bytes | None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        cluster.on_touch = self._soon

    def world(self) -> View:
        """Everything, as a page needs it to begin with."""
        self.flush()
        while self._cluster.untaken:
            self.flush()
        return self._known()

    def _known(self) -> View:
        return {
            "number": self._number,
            "title": self._title,
            "live": self._live,
            "waiting": self._waiting,
            "left": self._left,
            "stale": self._stale,
            "layouts": self._layouts,
            "nodes": [self._nodes[name] for name in sorted(self._nodes)],
            "holders": [self._holders[key] for key in sorted(self._holders)],
        }

    def flush(self) -> None:
        """Look at what was touched, some of it where it is much, and tell everybody what is different."""
        self._cancel_timer()
        touched = self._cluster.take_touched(AT_ONCE)
        change: dict[str, list[Any]] = {"nodes": [], "gone_nodes": [], "holders": [], "gone_holders": []}
        layouts: dict[str, View] = {}
        for name in sorted(touched.nodes):
            view, new = self._look_at_node(name)
            layouts |= {key: self._layouts[key] for key in new}
            self.history.node(name, self._nodes.get(name), view, self._layouts)
            _enter(self._nodes, name, view, change["nodes"], change["gone_nodes"])
        for holder in sorted(touched.holders):
            view = holder_view(self._cluster, holder)
            self.history.holder(str(holder), self._holders.get(str(holder)), view)
            _enter(self._holders, str(holder), view, change["holders"], change["gone_holders"])
        told: View = {key: value for key, value in {"layouts": layouts, **change}.items() if value}
        waiting = [kind for kind in KINDS if kind not in self._cluster.seen]
        if waiting != self._waiting:
            self._waiting = told["waiting"] = waiting
        stale = stale_view(self._cluster.troubles)
        if stale != self._stale:
            self._stale = told["stale"] = stale
        if self._cluster.untaken != self._left:
            self._left = told["left"] = self._cluster.untaken
        if told:
            self._send(told)
        if not self._waiting and not self._left:
            self.history.begin()
        if self._left:
            self._soon(0)

    async def events(self, last: str = "") -> AsyncIterator[bytes]:
        """The stream of one page, for ever; ends when the page cannot follow, so that it comes back and starts anew."""
        self.flush()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)
        beginning = self._beginning(last)
        self._listeners.add(queue)
        try:
            for known in beginning:
                yield known
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._listeners.discard(queue)

    def close(self) -> None:
        """No more changes."""
        self._cancel_timer()
        self._cluster.on_touch = lambda: None

    def _beginning(self, last: str) -> list[bytes]:
        server, _, number = last.partition("-")
        after = int(number) if server == self._server and number.isdecimal() else -1
        missed = [event for known, event in self._past if known > after]
        if 0 <= after <= self._number and len(missed) == self._number - after:
            return missed
        return [self._event("world", self._known())]

    def _event(self, kind: str, data: View) -> bytes:
        """One server-sent event; JSON holds no line breaks."""
        body = msgspec.json.encode({**data, "number": self._number})
        return b"id: %s-%d\nevent: %s\ndata: %s\n\n" % (self._server.encode(), self._number, kind.encode(), body)

    def _send(self, change: View) -> None:
        self._number += 1
        event = self._event("change", change)
        self._past.append((self._number, event))
        for queue in list(self._listeners):
            if queue.full():
                self._listeners.discard(queue)
                with contextlib.suppress(asyncio.QueueEmpty):
                    queue.get_nowait()
                queue.put_nowait(None)
            else:
                queue.put_nowait(event)

    def _look_at_node(self, name: str) -> tuple[View | None, list[str]]:
        """Its view, None where it is gone, and the layout if no other machine has had it."""
        if name not in self._cluster.nodes_with_slices:
            return None, []
        view, (key, layout) = node_view(self._cluster, name)
        new = [key] if key not in self._layouts else []
        self._layouts[key] = layout
        return view, new

    def _soon(self, seconds: float = TOGETHER_SECONDS) -> None:
        """Flush shortly; outside a running loop the next look does it."""
        with contextlib.suppress(RuntimeError):
            self._timer = self._timer or asyncio.get_running_loop().call_later(seconds, self.flush)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _enter(known: dict[str, View], key: str, view: View | None, changed: list[Any], gone: list[Any]) -> None:
    """Remember a view, and note whether it is another one than before."""
    if view is None:
        if known.pop(key, None) is not None:
            gone.append(key)
    elif known.get(key) != view:
        known[key] = view
        changed.append(view)
