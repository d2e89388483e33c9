"""The Node Resource Interface: write a plugin for containerd or CRI-O, or run a fake runtime for one.

A library of its own: it knows nothing of what its plugins do. See docs/reference/nri-library.md.
"""

from dranet.core.backoff import Backoff
from dranet.kubernetes.nri.errors import CallError, CallTimeout, Code, ConnectionClosed, NriError, PluginRejected
from dranet.kubernetes.nri.handler import Handler
from dranet.kubernetes.nri.plugin import DEFAULT_SOCKET, Plugin, State
from dranet.kubernetes.nri.request_context import RequestContext

__all__ = [
    "DEFAULT_SOCKET",
    "Backoff",
    "CallError",
    "CallTimeout",
    "Code",
    "ConnectionClosed",
    "Handler",
    "NriError",
    "Plugin",
    "PluginRejected",
    "RequestContext",
    "State",
]
