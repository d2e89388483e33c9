"""Runs an object in a forked process, calls it over a socket, and kills it.

A fork and not a new interpreter, because a sequence starts several drivers and should cost milliseconds. The process
that forks has one thread, so the child starts in a consistent state.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

_LENGTH = struct.Struct("=I")


class Died(Exception):
    """The process ended before it returned a result."""


class Failed(Exception):
    """The call raised in the process; has its message."""


class Process:
    """The calling side."""

    def __init__(self, serve: Callable[[], Callable[..., Any]], keep: Sequence[int] = ()) -> None:
        """`serve` runs in the child and returns what handles calls.

        The child gets only the descriptors in `keep`: a namespace that it held open would not be removed."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _close_all_but({0, 1, 2, theirs.fileno(), *keep})
            _child(theirs, serve)
        theirs.close()
        self._socket: socket.socket | None = ours

    @property
    def alive(self) -> bool:
        return self._socket is not None

    def call(self, *words: Any) -> Any:
        if self._socket is None:
            raise Died("the process has ended")
        try:
            _send(self._socket, words)
            kind, answer = _receive(self._socket)
        except (EOFError, OSError):
            self._reap()
            raise Died(f"the process died during {words[0]}") from None
        if kind == "failed":
            raise Failed(answer)
        return answer

    def kill(self) -> None:
        """Kill it, and everything it started where that is in a PID namespace of its own."""
        if self._socket is not None:
            os.kill(self.pid, signal.SIGKILL)
            self._reap()

    def _reap(self) -> None:
        assert self._socket is not None
        self._socket.close()
        self._socket = None
        os.waitpid(self.pid, 0)


def _close_all_but(keep: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))


def _child(channel: socket.socket, serve: Callable[[], Callable[..., Any]]) -> None:
    try:
        answer = serve()
        while True:
            words = _receive(channel)
            try:
                reply = ("answer", answer(*words))
            except Exception as error:
                reply = ("failed", f"{type(error).__name__}: {error}\n{traceback.format_exc()}")
            _send(channel, reply)
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(0)


def _send(channel: socket.socket, what: Any) -> None:
    data = pickle.dumps(what)
    channel.sendall(_LENGTH.pack(len(data)) + data)


def _receive(channel: socket.socket) -> Any:
    (length,) = _LENGTH.unpack(_exactly(channel, _LENGTH.size))
    return pickle.loads(_exactly(channel, length))


def _exactly(channel: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = channel.recv(count - len(data))
        if not piece:
            raise EOFError
        data += piece
    return data
