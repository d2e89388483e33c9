"""The table of events: which call of the protocol belongs to which method of a handler.

Runtimes before NRI 0.10 announce most events through one call, StateChange, and later ones through a call each. A
handler does not see the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from dranet.nri import messages
from dranet.nri.arrivals import RequestContext
from dranet.nri.errors import CallError, Code
from dranet.nri.handler import Handler

PLUGIN = "nri.pkg.api.v1alpha1.Plugin"
RUNTIME = "nri.pkg.api.v1alpha1.Runtime"


@dataclass(frozen=True, slots=True)
class EventKind:
    """One event. `fields` are the request's fields that become the handler's arguments, () for the request itself."""

    event: messages.Event
    call: str
    handler: str
    fields: tuple[str, ...]
    state_change: bool

    @property
    def bit(self) -> int:
        return 1 << (self.event - 1)

    @property
    def request(self) -> type[Message]:
        return _message(f"{self.call}Request")

    @property
    def response(self) -> type[Message]:
        return _message(f"{self.call}Response")

    def wanted_by(self, handler: Handler) -> bool:
        """Whether a plugin has a method of its own for it; the runtime need not send the others."""
        return getattr(type(handler), self.handler) is not getattr(Handler, self.handler)

    async def deliver(self, handler: Handler, request: Message, context: RequestContext) -> Message:
        """Call the plugin's method with the request's fields; its answer, or an empty one."""
        arguments = [getattr(request, field) for field in self.fields] or [request]
        answer = await getattr(handler, self.handler)(*arguments, context)
        return self.response() if answer is None else answer


def _message(name: str) -> type[Message]:
    found: type[Message] = getattr(messages, name)
    return found


def _kind(event: messages.Event, fields: tuple[str, ...], *, state_change: bool = False) -> EventKind:
    name = messages.Event.Name(event)
    return EventKind(event, name.title().replace("_", ""), name.lower(), fields, state_change)


_POD = ("pod",)
_CONTAINER = ("pod", "container")

EVENTS = (
    _kind(messages.RUN_POD_SANDBOX, _POD, state_change=True),
    _kind(messages.UPDATE_POD_SANDBOX, ("pod", "overhead_linux_resources", "linux_resources")),
    _kind(messages.POST_UPDATE_POD_SANDBOX, _POD, state_change=True),
    _kind(messages.STOP_POD_SANDBOX, _POD, state_change=True),
    _kind(messages.REMOVE_POD_SANDBOX, _POD, state_change=True),
    _kind(messages.CREATE_CONTAINER, _CONTAINER),
    _kind(messages.POST_CREATE_CONTAINER, _CONTAINER, state_change=True),
    _kind(messages.START_CONTAINER, _CONTAINER, state_change=True),
    _kind(messages.POST_START_CONTAINER, _CONTAINER, state_change=True),
    _kind(messages.UPDATE_CONTAINER, ("pod", "container", "linux_resources")),
    _kind(messages.POST_UPDATE_CONTAINER, _CONTAINER, state_change=True),
    _kind(messages.STOP_CONTAINER, _CONTAINER),
    _kind(messages.REMOVE_CONTAINER, _CONTAINER, state_change=True),
    _kind(messages.VALIDATE_CONTAINER_ADJUSTMENT, ()),
)

BY_EVENT = {kind.event: kind for kind in EVENTS}
BY_HANDLER = {kind.handler: kind for kind in EVENTS}


def subscription(handler: Handler) -> int:
    """The mask that asks for exactly the events the handler's class overrides."""
    return sum(kind.bit for kind in EVENTS if kind.wanted_by(handler))


def from_state_change(change: messages.StateChangeEvent) -> tuple[EventKind, Message]:
    """The event an old runtime means, and the request a new one would have sent for it."""
    kind = BY_EVENT.get(change.event)
    if kind is None or not kind.state_change:
        raise CallError(Code.INVALID_ARGUMENT, f"event {change.event} is not announced as a state change")
    return kind, kind.request(**{field: getattr(change, field) for field in kind.fields})


def to_state_change(kind: EventKind, request: Message) -> messages.StateChangeEvent:
    """An event without an answer, as older runtimes send it: all kinds in one message."""
    arguments = {field: getattr(request, field) for field in kind.fields}
    return messages.StateChangeEvent(event=kind.event, **arguments)
