"""Generic netlink: families have names, and numbers that differ from boot to boot."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from dranet.kernel import codec
from dranet.kernel.codec import Message, Reply
from dranet.kernel.netlink import NETLINK_GENERIC, NetlinkError, NetlinkSocket

_CONTROL = 16
_GETFAMILY = 3
_FAMILY_ID, _FAMILY_NAME = 1, 2
HEADER = struct.Struct("=BBH")


class GenericSocket:
    """A generic netlink socket bound to one family by name; refused with ENOENT when the kernel has none of it."""

    def __init__(self, family: str, version: int, namespace_fd: int | None = None) -> None:
        self._socket = NetlinkSocket(NETLINK_GENERIC, namespace_fd)
        self._version = version
        try:
            self._family = self._resolve(family)
        except BaseException:
            self._socket.close()
            raise

    def _resolve(self, name: str) -> int:
        payload = HEADER.pack(_GETFAMILY, 1, 0) + codec.text(_FAMILY_NAME, name)
        what = f"find the generic netlink family {name}"
        (reply,) = self._socket.request(Message(_CONTROL, 0, payload, what))
        return codec.number(codec.attributes(reply.payload, HEADER.size)[_FAMILY_ID])

    def message(self, command: int, payload: bytes, what: str) -> Message:
        """A request of this family, to be sent alone or in a batch."""
        return Message(self._family, 0, HEADER.pack(command, self._version, 0) + payload, what)

    def request(self, command: int, payload: bytes, what: str) -> list[Reply]:
        """Send one request of this family; raises what the kernel refuses."""
        return self._socket.request(self.message(command, payload, what))

    def ask(self, requests: Sequence[tuple[int, bytes, str]]) -> list[Reply | NetlinkError]:
        """Several commands with their payloads in one conversation: the one answer of each, or the refusal."""
        return self._socket.ask([self.message(*request) for request in requests])

    def reserve(self, size: int) -> None:
        self._socket.reserve(size)

    def dump(self, command: int, payload: bytes, what: str) -> list[Reply]:
        """Read a whole table of this family, again where it changed meanwhile."""
        return self._socket.dump(self.message(command, payload, what))

    def close(self) -> None:
        self._socket.close()
