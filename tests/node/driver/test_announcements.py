"""Addresses are announced once the link has a carrier in the pod, and again: packets without a carrier are lost."""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any

from dranet.core.backoff import Backoff
from dranet.linux.namespaces import Namespace
from dranet.node.server.attach import Attacher
from dranet.testing.waiting import until

from .conftest import TestNode

_ARP = 0x0806


class Ignored:
    """Stands for leases and reports."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class Listener:
    """Counts gratuitous ARP requests for an address at the far end of a NIC."""

    def __init__(self, fabric: Namespace, name: str, address: str) -> None:
        self._expected = socket.inet_aton(address)
        self._socket = fabric.run(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ARP)))
        fabric.run(lambda: self._socket.bind((name, _ARP)))
        self._socket.setblocking(False)
        self._heard = 0

    def heard(self) -> int:
        while True:
            try:
                frame = self._socket.recv(2048)
            except BlockingIOError:
                return self._heard
            self._heard += frame[28:32] == frame[38:42] == self._expected

    def close(self) -> None:
        self._socket.close()


async def test_addresses_are_announced_when_the_carrier_appears(node: TestNode) -> None:
    node.run("ip", "link", "set", "nic0", "down", where=node.fabric)  # so that the NIC has no carrier
    anything: Any = Ignored()
    attacher = Attacher(node.lifecycle, anything, anything, Backoff(random.Random()), announce_seconds=0.02)
    node.plan("nic0")
    pod = node.pod()
    await attacher.attach_now("pod-1", pod.path, "test")
    (link,) = node.ip("link", "show", "nic0", where=pod)
    assert "NO-CARRIER" in link["flags"]
    node.run("ip", "link", "set", "nic0", "up", where=node.fabric)
    listener = Listener(node.fabric, "nic0", "10.1.0.1")
    try:
        await until(lambda: listener.heard() >= 2)
    finally:
        listener.close()


async def test_announcements_end_with_the_pod(node: TestNode) -> None:
    node.run("ip", "link", "set", "nic0", "down", where=node.fabric)
    anything: Any = Ignored()
    attacher = Attacher(node.lifecycle, anything, anything, Backoff(random.Random()), announce_seconds=0.02)
    node.plan("nic0")
    pod = node.pod()
    await attacher.attach_now("pod-1", pod.path, "test")
    await asyncio.to_thread(node.lifecycle.detach, "uid-1", stopping=pod.path)
    await until(lambda: not attacher._background)
