"""The event stream of the page: first the whole state, then changes.

Changes within a short time become one event, and only views that differ are sent. Events are numbered: after a lost
connection the page sends the last number and gets the later events, or the whole state if that is too old or from
another server. A large fleet is processed in parts, so that requests are served in between; events contain how much is
left.
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

_BATCH_SECONDS = 0.05
REMEMBERED = 256
_QUEUED = 1024
AT_ONCE = 500
"""Nodes and holders processed before the event loop runs other tasks: about a tenth of a second."""


class Feed:
    """The views of one cluster, and the connected pages."""

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
        """The whole state."""
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
        """Update the views of changed objects (a part of them if they are many) and send the differences."""
        self._cancel_timer()
        touched = self._cluster.take_touched(AT_ONCE)
        change: dict[str, list[Any]] = {"nodes": [], "gone_nodes": [], "holders": [], "gone_holders": []}
        layouts: dict[str, View] = {}
        for name in sorted(touched.nodes):
            view, new = self._update_node(name)
            layouts |= {key: self._layouts[key] for key in new}
            self.history.node(name, self._nodes.get(name), view, self._layouts)
            _enter(self._nodes, name, view, change["nodes"], change["gone_nodes"])
        for holder in sorted(touched.holders):
            view = holder_view(self._cluster, holder)
            self.history.holder(str(holder), self._holders.get(str(holder)), view)
            _enter(self._holders, str(holder), view, change["holders"], change["gone_holders"])
        changes: View = {key: value for key, value in {"layouts": layouts, **change}.items() if value}
        waiting = [kind for kind in KINDS if kind not in self._cluster.seen]
        if waiting != self._waiting:
            self._waiting = changes["waiting"] = waiting
        stale = stale_view(self._cluster.watch_errors)
        if stale != self._stale:
            self._stale = changes["stale"] = stale
        if self._cluster.untaken != self._left:
            self._left = changes["left"] = self._cluster.untaken
        if changes:
            self._send(changes)
        if not self._waiting and not self._left:
            self.history.begin()
        if self._left:
            self._soon(0)

    async def events(self, last: str = "") -> AsyncIterator[bytes]:
        """The stream of one page. It ends when the page is too slow; the page reconnects and starts again."""
        self.flush()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUED)
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
        """Stop sending changes."""
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
        """One server-sent event; JSON contains no line breaks."""
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

    def _update_node(self, name: str) -> tuple[View | None, list[str]]:
        """The node's view (None if it was deleted), and the key of its layout if that is new."""
        if name not in self._cluster.nodes_with_slices:
            return None, []
        view, (key, layout) = node_view(self._cluster, name)
        new = [key] if key not in self._layouts else []
        self._layouts[key] = layout
        return view, new

    def _soon(self, seconds: float = _BATCH_SECONDS) -> None:
        """Flush soon; without a running loop the next request does it."""
        with contextlib.suppress(RuntimeError):
            self._timer = self._timer or asyncio.get_running_loop().call_later(seconds, self.flush)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _enter(known: dict[str, View], key: str, view: View | None, changed: list[Any], gone: list[Any]) -> None:
    """Store a view, and add it to the changed or deleted ones if it differs."""
    if view is None:
        if known.pop(key, None) is not None:
            gone.append(key)
    elif known.get(key) != view:
        known[key] = view
        changed.append(view)
