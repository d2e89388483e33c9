"""The Node Resource Interface: write a plugin for containerd or CRI-O, or play the runtime's part for one.

A library of its own: it knows nothing of what its plugins do. See docs/nri-library.md.
"""

from dranet.basics.backoff import Backoff
from dranet.nri.arrivals import RequestContext
from dranet.nri.errors import CallError, CallTimeout, Code, ConnectionClosed, NriError, PluginRejected
from dranet.nri.handler import Handler
from dranet.nri.plugin import DEFAULT_SOCKET, Plugin, State

__all__ = [
    "Backoff",
    "CallError",
    "CallTimeout",
    "Code",
    "ConnectionClosed",
    "DEFAULT_SOCKET",
    "Handler",
    "NriError",
    "Plugin",
    "PluginRejected",
    "RequestContext",
    "State",
]
