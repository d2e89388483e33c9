"""Values as lines of JSON between pods, over the pod network: what the check says about cards must not need them."""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TypeVar

import msgspec

from dranet.model.errors import DranetError

Value = TypeVar("Value", bound=msgspec.Struct)
_LONGEST = 1 << 22


class Lost(DranetError):
    """The other side is gone, silent, or speaks something else."""


class Line:
    """One connection; either side says one value at a time."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream, self._rest = stream, b""
        with contextlib.suppress(OSError):
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._stream.close()

    def say(self, value: msgspec.Struct) -> None:
        try:
            self._stream.settimeout(10)
            self._stream.sendall(msgspec.json.encode(value) + b"\n")
        except OSError as error:
            raise Lost(f"its connection broke: {error.strerror or error}") from error

    def hear(self, kind: type[Value], patience: float) -> Value:
        """The next value; raises Lost after this many seconds."""
        try:
            return msgspec.json.decode(self._line(patience), type=kind)
        except TimeoutError as error:
            raise Lost(f"it did not answer within {patience:.0f} s") from error
        except OSError as error:
            raise Lost(f"its connection broke: {error.strerror or error}") from error
        except msgspec.MsgspecError as error:
            raise Lost(f"it said what is not understood ({error}); is it another version?") from error

    def _line(self, patience: float) -> bytes:
        end = time.monotonic() + patience
        while b"\n" not in self._rest:
            if (left := end - time.monotonic()) <= 0:
                raise TimeoutError
            self._stream.settimeout(left)
            more = self._stream.recv(1 << 16)
            if not more or len(self._rest) > _LONGEST:
                raise Lost("it closed its connection" if not more else "its line does not end")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line
