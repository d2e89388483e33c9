"""Control connections between the coordinator and the members: lines of JSON over the pod network.

They use the pod network and not the NICs of the claims, so that a broken NIC can still be reported.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TypeVar

import msgspec

from dranet.advise.preflight.model import Member, NicPair, Result, Task, TaskResults
from dranet.core.errors import DranetError

_Value = TypeVar("_Value", bound=msgspec.Struct)
_LONGEST_LINE = 1 << 22


class ConnectionLost(DranetError):
    """The peer closed the connection, does not reply, or sends something else."""


class Connection:
    """One TCP connection that carries one value a line."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._buffer = stream, b""
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._stream.close()

    def send(self, value: msgspec.Struct) -> None:
        try:
            self._stream.settimeout(10)
            self._stream.sendall(msgspec.json.encode(value) + b"\n")
        except OSError as error:
            raise ConnectionLost(f"connection failed: {error.strerror or error}") from error

    def receive(self, kind: type[_Value], timeout: float) -> _Value:
        """The next value; raises ConnectionLost after this many seconds."""
        try:
            return msgspec.json.decode(self._read_line(timeout), type=kind)
        except TimeoutError as error:
            raise ConnectionLost(f"no reply within {timeout:.0f} s") from error
        except OSError as error:
            raise ConnectionLost(f"connection failed: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise ConnectionLost(f"unknown message ({error}); use the same image in all pods") from error

    def _read_line(self, timeout: float) -> bytes:
        end = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            self._stream.settimeout(left)
            received = self._stream.recv(1 << 16)
            if not received:
                raise ConnectionLost("connection closed")
            if len(self._buffer) > _LONGEST_LINE:
                raise ConnectionLost(f"message larger than {_LONGEST_LINE} bytes")
            self._buffer += received
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line


class RemoteMember:
    """A member as the coordinator sees it. A lost connection is not opened again."""

    def __init__(self, member: Member, connection: Connection) -> None:
        self.member, self._connection, self.lost = member, connection, ""

    def run(self, action: str, pairs: list[NicPair], seconds: float, streams: int) -> list[Result]:
        """One result for each pair; raises ConnectionLost."""
        if self.lost:
            raise ConnectionLost(self.lost)
        if not pairs:
            return []
        try:
            self._connection.send(Task(action, tuple(pairs), seconds, streams))
            results = self._connection.receive(TaskResults, _timeout(action, len(pairs), seconds)).results
            if len(results) != len(pairs):
                raise ConnectionLost(f"{len(results)} results for {len(pairs)} pairs of NICs")
        except ConnectionLost as error:
            self.lost = f"{error} (task {action})"
            raise ConnectionLost(self.lost) from error
        return list(results)

    def finish(self) -> None:
        """Tell the member that the check is complete."""
        with contextlib.suppress(ConnectionLost):
            self._connection.send(Task("done"))
        self._connection.close()


def _timeout(action: str, pairs: int, seconds: float) -> float:
    """Short for `reach`, which runs all pairs in parallel and comes first: there a stuck pod is noticed early."""
    return 10 if action == "reach" else 10 + pairs * (seconds + 5)


def accept_members(listener: socket.socket, expected: int, timeout: float) -> list[RemoteMember]:
    """Members that connect in time, by rank; a restarted pod replaces its earlier connection."""
    members: dict[int, RemoteMember] = {}
    end = time.monotonic() + timeout
    while len(members) < expected and (left := end - time.monotonic()) > 0:
        listener.settimeout(left)
        with contextlib.suppress(TimeoutError, ConnectionLost):
            connection = Connection(listener.accept()[0])
            member = connection.receive(Member, 10)
            members[member.rank] = RemoteMember(member, connection)
    return [members[rank] for rank in sorted(members)]
