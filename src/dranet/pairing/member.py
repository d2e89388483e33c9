"""What every pod of a check does: come to the first one, answer on its cards, and measure what it is told to."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from dranet.model.errors import DranetError
from dranet.pairing import perftest
from dranet.pairing.answering import Answering
from dranet.pairing.asking import look, reach
from dranet.pairing.sending import send, send_together
from dranet.pairing.values import Answer, Lane, Member, Order, Seen
from dranet.pairing.wire import Line, Lost

_QUIET = 600.0
"""Longest time without an order: others measure meanwhile."""


def take_part(me: Member, first: str, port: int, patience: float) -> None:
    """Until the first member says that all is done."""
    with contextlib.closing(Answering(me.cards, port + 1)) as answering:
        with (
            contextlib.closing(Line(_come(first, port, patience))) as line,
            contextlib.closing(Orders(port, answering)) as orders,
        ):
            try:
                line.say(me)
                _obey(line, orders)
            except Lost as error:
                raise DranetError(f"the first pod ({first}) was lost: {error}; its log says more") from error


def _come(first: str, port: int, patience: float) -> socket.socket:
    """Its name may not be known yet, and it may not run yet."""
    end = time.monotonic() + patience
    while True:
        try:
            return socket.create_connection((first, port), timeout=5)
        except OSError as error:
            if time.monotonic() > end:
                raise DranetError(
                    f"the first pod ({first} port {port}) could not be reached within {patience:.0f} s: {error}"
                ) from error
            time.sleep(0.2)


def _obey(line: Line, orders: Orders) -> None:
    while (order := line.hear(Order, _QUIET)).do != "done":
        line.say(Answer(tuple(orders(order))))


class Orders:
    """The orders by their names."""

    def __init__(self, port: int, answering: Answering) -> None:
        self._answers, self._rdma, self._closed = port + 1, port + 2, answering.troubles
        self._servers: list[subprocess.Popen[str]] = []
        self._known: dict[str, Callable[[Order], list[Seen]]] = {
            "reach": self._reach,
            "look": lambda order: [look(lane, self._answers) for lane in order.lanes],
            "send": lambda order: send(order, self._answers),
            "send-together": lambda order: send_together(order, self._answers),
            "rdma-serve": self._serve,
            "rdma-send": lambda order: [perftest.measure(lane, self._rdma) for lane in order.lanes],
        }

    def __call__(self, order: Order) -> list[Seen]:
        if order.do not in self._known:
            raise DranetError(f"asked to {order.do!r}, which this version does not know; use one image for all pods")
        return self._known[order.do](order)

    def _reach(self, order: Order) -> list[Seen]:
        """All at once: those who do not answer are waited for together."""
        with ThreadPoolExecutor(max(1, len(order.lanes))) as pool:
            return list(pool.map(self._reach_one, order.lanes))

    def _reach_one(self, lane: Lane) -> Seen:
        if trouble := self._closed.get(lane.card.name):
            return Seen(False, f"this card could not be opened: {trouble}")
        return reach(lane, self._answers)

    def close(self) -> None:
        """A server whose client never came would wait for ever."""
        for server in self._servers:
            server.kill()
            server.wait()

    def _serve(self, order: Order) -> list[Seen]:
        self.close()
        self._servers = [perftest.serve(lane, self._rdma) for lane in order.lanes]
        time.sleep(0.5)  # it does not say when it listens
        return [Seen(server.poll() is None) for server in self._servers]
