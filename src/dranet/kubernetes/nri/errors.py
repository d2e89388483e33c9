"""Errors between a plugin and its runtime.

NriError
├── ConnectionClosed      one side closed the connection
├── CallError             a call was answered with a status; carries the code
└── PluginRejected        (runtime side) a plugin refused an event
"""

from __future__ import annotations

from enum import IntEnum


class Code(IntEnum):
    """The status codes of ttrpc; the same numbers as gRPC's."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class NriError(Exception):
    """The base of all errors of this library."""


class ConnectionClosed(NriError):
    """The connection is closed, and all running calls failed."""


class CallError(NriError):
    """A call failed. Raised by a client; raise it in a handler to choose the code the peer sees."""

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(f"{_name(code)}: {message}")


class CallTimeout(CallError):
    """The caller's timeout expired. A peer that answers DEADLINE_EXCEEDED raises CallError instead."""

    def __init__(self, method: str, timeout: float | None) -> None:
        super().__init__(Code.DEADLINE_EXCEEDED, f"{method}: no response within {timeout} s")


class PluginRejected(NriError):
    """A plugin answered an event with an error, so the runtime must fail the operation."""

    def __init__(self, plugin: str, event: str, reason: CallError) -> None:
        self.plugin = plugin
        self.reason = reason
        super().__init__(f"plugin {plugin} refused {event}: {reason.message}")


def _name(code: int) -> str:
    return Code(code).name if code in Code.__members__.values() else f"code {code}"
