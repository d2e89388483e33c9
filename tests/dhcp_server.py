"""A small DHCP server for tests, in a network namespace of the test's own."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable
from socket import inet_aton

from dranet.linux.namespaces import Namespace

DISCOVER, OFFER, REQUEST, ACK, NAK, RELEASE = 1, 2, 3, 5, 6, 7
Behaviour = Callable[[int, bytes], list[bytes]]


def option(code: int, value: bytes) -> bytes:
    return bytes([code, len(value)]) + value


def reply(
    request: bytes, kind: int, address: str = "10.0.0.7", number: bytes | None = None, server: str = "10.0.0.254"
) -> bytes:
    head = bytearray(request[:236])
    head[0] = 2
    head[4:8] = number or head[4:8]
    head[16:20] = inet_aton(address)
    options = option(53, bytes([kind])) + option(54, inet_aton(server)) + option(51, struct.pack("!I", 600))
    options += (
        option(1, inet_aton("255.255.255.0")) + option(3, inet_aton("10.0.0.254")) + option(26, struct.pack("!H", 1400))
    )
    return bytes(head) + b"\x63\x82\x53\x63" + options + b"\xff"


def obliging(kind: int, request: bytes) -> list[bytes]:
    return [reply(request, {DISCOVER: OFFER, REQUEST: ACK}[kind])] if kind in (DISCOVER, REQUEST) else []


class Server:
    """Answers on UDP port 67 as a behaviour says, and remembers (type, where from)."""

    def __init__(self, namespace: Namespace, behaviour: Behaviour, device: str = "v1") -> None:
        self._device = device
        self._socket = namespace.run(self._open)
        self._stop, self._stopper = socket.socketpair()
        self._behaviour = behaviour
        self.heard: list[tuple[int, str]] = []
        self.received = threading.Event()
        self.broadcasts = False
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _open(self) -> socket.socket:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, self._device.encode() + b"\0")
        opened.bind(("", 67))
        return opened

    def _serve(self) -> None:
        while self._stop not in select.select([self._socket, self._stop], [], [])[0]:
            data, where = self._socket.recvfrom(65536)
            kind = data[data.index(b"\x35\x01", 240) + 2]
            self.heard.append((kind, where[0]))
            self.received.set()
            unicast = where[0] != "0.0.0.0" and data[12:16] != bytes(4) and not self.broadcasts
            target = where if unicast else ("255.255.255.255", 68)
            for answer in self._behaviour(kind, data):
                self._socket.sendto(answer, target)

    def close(self) -> None:
        self._stopper.close()
        self._thread.join()
        self._socket.close()
        self._stop.close()
