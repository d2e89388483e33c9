"""Kubernetes events on claims, pods and the node.

Recording never blocks and never fails. Many problems do not cause many writes: a repeated event only increases a
count, which is written less and less often; many different messages on one object become one event with the last
message; and all events of a node share a rate limit. The queue is bounded, and events that do not fit are counted as
dropped.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from datetime import datetime
from typing import Any

import msgspec

from dranet.core.aio import wait_at_most
from dranet.core.backoff import Backoff
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.errors import ApiError, KubeError, ObjectNotFound
from dranet.kubernetes.api.resources import EVENTS, Now, timestamp, utc_now

log = get_logger(__name__)

CLAIM_PREPARE_FAILED = "ClaimPrepareFailed"
NETWORK_DEVICE_ATTACH_FAILED = "NetworkDeviceAttachFailed"
NETWORK_DEVICE_ATTACH_DEFERRED = "NetworkDeviceAttachDeferred"
RDMA_DEVICE_ATTACH_FAILED = "RDMADeviceAttachFailed"
NETWORK_DEVICE_BROKEN = "NetworkDeviceBroken"
NETWORK_DEVICE_DEGRADED = "NetworkDeviceDegraded"

MESSAGE_MAX = 1024
WAITING_MAX = 256
REMEMBERED_MAX = 1024
SAME_EVENT_SECONDS = (10.0, 600.0)
"""The delay before a repeated event is written again: the first value, doubled each time up to the second."""
SIMILAR_MAX = 10
"""Different messages on one object for one reason that become separate events; all others share one event."""
BURST = 25
QPS = 1.0
"""Event writes of a node: a burst, then this many per second. The kubelet may make 50 a second."""
ATTEMPTS = 5


class ObjectRef(msgspec.Struct, frozen=True):
    """The object of an event."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    api_version: str = "v1"

    @classmethod
    def claim(cls, namespace: str, name: str, uid: str) -> ObjectRef:
        """A ResourceClaim."""
        return cls("ResourceClaim", name, uid, namespace, "resource.k8s.io/v1")

    @classmethod
    def pod(cls, namespace: str, name: str, uid: str) -> ObjectRef:
        """A Pod."""
        return cls("Pod", name, uid, namespace)

    @classmethod
    def node(cls, name: str, uid: str) -> ObjectRef:
        """A Node; its events live in the namespace default."""
        return cls("Node", name, uid)


class _Key(msgspec.Struct, frozen=True):
    about: ObjectRef
    type: str
    reason: str
    message: str
    """Empty for the shared event of all messages beyond SIMILAR_MAX."""


class _Waiting(msgspec.Struct):
    count: int
    first: datetime
    last: datetime
    message: str
    attempts: int = 0


class _Written(msgspec.Struct):
    name: str
    count: int
    due: float
    pause: float = SAME_EVENT_SECONDS[0]

    def again(self, counted: int, now: float) -> None:
        """Record a write; the next one has a longer delay."""
        self.count += counted
        self.due = now + self.pause
        self.pause = min(2 * self.pause, SAME_EVENT_SECONDS[1])


class _RateLimiter:
    """A token bucket of BURST tokens that refills at QPS."""

    def __init__(self) -> None:
        self._left, self._seen = float(BURST), 0.0

    def delay(self, now: float) -> float:
        """Seconds until a token is available."""
        self._left = min(BURST, self._left + (now - self._seen) * QPS)
        self._seen = now
        return max(0.0, (1.0 - self._left) / QPS)

    def spend(self) -> None:
        """Take one token."""
        self._left -= 1.0


class EventRecorder:
    """Writes events in the background; ``run`` must be running for anything to be written."""

    def __init__(self, client: KubeClient, *, host: str, component: str = DRIVER_NAME, now: Now = utc_now) -> None:
        self._client = client
        self._source = {"component": component, "host": host}
        self._component = component
        self._now = now
        self._waiting: OrderedDict[_Key, _Waiting] = OrderedDict()
        self._written: OrderedDict[_Key, _Written] = OrderedDict()
        self._limiter = _RateLimiter()
        self._wake = asyncio.Event()
        self.dropped = 0
        """Events lost because the queue was full or the server rejected them."""

    def warning(self, about: ObjectRef, reason: str, message: str) -> None:
        """Record a Warning event."""
        text = _shortened(message)
        key = _Key(about, "Warning", reason, text)
        if key not in self._waiting and key not in self._written and self._similar(key) >= SIMILAR_MAX:
            key = _Key(about, "Warning", reason, "")
            text = _shortened(f"and others, the last: {message}")
        self._record(key, text)

    def _similar(self, key: _Key) -> int:
        """The number of events on the same object for the same reason."""
        known = {*self._waiting, *self._written}
        return sum(1 for other in known if (other.about, other.reason) == (key.about, key.reason))

    async def run(self) -> None:
        """Write queued events until cancelled."""
        backoff = Backoff(self._client.rng, first=0.5)
        while True:
            self._wake.clear()
            key, delay = self._next()
            if key is None or delay > 0:
                await wait_at_most(delay if key is not None else None, self._wake)
                continue
            self._limiter.spend()
            try:
                await self._write(key, self._waiting[key])
                backoff.reset()
            except KubeError as error:
                self._failed(key, error)
                await asyncio.sleep(backoff.next())

    def _record(self, key: _Key, text: str) -> None:
        moment = self._now()
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.count += 1
            waiting.last, waiting.message = moment, text
        elif len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
        else:
            self._waiting[key] = _Waiting(1, moment, moment, text)
            self._wake.set()

    def _next(self) -> tuple[_Key | None, float]:
        """The next event to write, and the delay in seconds."""
        now = asyncio.get_running_loop().time()
        delays = {key: self._written[key].due - now if key in self._written else 0.0 for key in self._waiting}
        key = min(delays, key=lambda k: max(delays[k], 0.0), default=None)
        return key, max(delays[key], self._limiter.delay(now)) if key is not None else 0.0

    async def _write(self, key: _Key, waiting: _Waiting) -> None:
        counted = waiting.count
        written = self._written.get(key)
        if written is not None:
            try:
                await self._update(key, written, waiting)
            except ObjectNotFound:  # the API server deletes events after an hour
                del self._written[key]
                written = None
        if written is None:
            written = await self._create(key, waiting)
        written.again(counted, asyncio.get_running_loop().time())
        self._written[key] = written
        self._written.move_to_end(key)
        while len(self._written) > REMEMBERED_MAX:
            self._written.popitem(last=False)
        waiting.count -= counted
        if waiting.count == 0:
            del self._waiting[key]

    async def _create(self, key: _Key, waiting: _Waiting) -> _Written:
        name = f"{key.about.name[:220]}.{self._client.rng.getrandbits(64):016x}"
        await self._client.create(EVENTS, self._event(key, waiting, name), key.about.namespace or "default")
        return _Written(name, 0, 0.0)

    async def _update(self, key: _Key, written: _Written, waiting: _Waiting) -> None:
        patch = {"count": written.count + waiting.count, "lastTimestamp": timestamp(waiting.last)}
        if not key.message:
            patch["message"] = waiting.message
        await self._client.merge_patch(EVENTS, written.name, patch, key.about.namespace or "default")

    def _failed(self, key: _Key, error: KubeError) -> None:
        waiting = self._waiting[key]
        waiting.attempts += 1
        permanent = isinstance(error, ApiError) and error.code in {400, 403, 404, 422}
        if permanent or waiting.attempts >= ATTEMPTS:
            log.warning("Event dropped", reason=key.reason, kind=key.about.kind, name=key.about.name, error=error)
            self.dropped += waiting.count
            del self._waiting[key]

    def _event(self, key: _Key, waiting: _Waiting, name: str) -> dict[str, Any]:
        about = key.about
        regarding = {"apiVersion": about.api_version, "kind": about.kind, "name": about.name, "uid": about.uid}
        namespace = about.namespace or "default"
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": regarding | ({"namespace": about.namespace} if about.namespace else {}),
            "type": key.type,
            "reason": key.reason,
            "message": waiting.message,
            "count": waiting.count,
            "firstTimestamp": timestamp(waiting.first),
            "lastTimestamp": timestamp(waiting.last),
            "source": self._source,
            "reportingComponent": self._component,
            "reportingInstance": self._source["host"],
        }


def _shortened(message: str) -> str:
    raw = message.encode("utf-8", "replace")
    return message if len(raw) <= MESSAGE_MAX else raw[: MESSAGE_MAX - 3].decode("utf-8", "ignore") + "..."
