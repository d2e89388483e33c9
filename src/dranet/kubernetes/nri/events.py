"""The table of events: the protocol call and the handler method of each.

Runtimes before NRI 0.10 send most events in one call, StateChange; later ones have a call for each. A handler sees no
difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from dranet.kubernetes.nri import messages
from dranet.kubernetes.nri.errors import CallError, Code
from dranet.kubernetes.nri.handler import Handler
from dranet.kubernetes.nri.request_context import RequestContext

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

    def is_handled_by(self, handler: Handler) -> bool:
        """Whether the handler overrides the event's method; the runtime need not send other events."""
        return getattr(type(handler), self.handler) is not getattr(Handler, self.handler)

    async def deliver(self, handler: Handler, request: Message, context: RequestContext) -> Message:
        """Call the handler with the request's fields; its response, or an empty one."""
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
    """The event mask of the methods that the handler's class overrides."""
    return sum(kind.bit for kind in EVENTS if kind.is_handled_by(handler))


def from_state_change(change: messages.StateChangeEvent) -> tuple[EventKind, Message]:
    """The event of a StateChange, and the request that a newer runtime would send for it."""
    kind = BY_EVENT.get(change.event)
    if kind is None or not kind.state_change:
        raise CallError(Code.INVALID_ARGUMENT, f"event {change.event} is not announced as a state change")
    return kind, kind.request(**{field: getattr(change, field) for field in kind.fields})


def to_state_change(kind: EventKind, request: Message) -> messages.StateChangeEvent:
    """The StateChange that an older runtime sends for an event without a response."""
    arguments = {field: getattr(request, field) for field in kind.fields}
    return messages.StateChangeEvent(event=kind.event, **arguments)
