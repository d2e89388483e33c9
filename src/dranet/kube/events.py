"""Events: our troubles, on the objects people look at.

Recording never blocks and never fails. A storm of troubles does not become a storm of writes: the same trouble again
is a count, written less and less often; one object with ever new words is one event with the last of them; and all of
a node's events together are a few at once and then one a second. What waits to be written is bounded, and what does
not fit is counted as dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from datetime import datetime
from typing import Any

import msgspec

from dranet.basics.backoff import Backoff
from dranet.kube.client import KubeClient
from dranet.kube.clock import Now, timestamp, utc_now
from dranet.kube.errors import ApiError, KubeError, Missing
from dranet.kube.resources import EVENTS
from dranet.model.names import DRIVER_NAME

log = logging.getLogger(__name__)

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
"""A repeated event is written again after the first, then after twice as long each time up to the second; in between
it is only counted."""
SIMILAR_MAX = 10
"""So many different messages on one object for one reason are events of their own; all further ones are one event."""
AT_ONCE = 25
PER_SECOND = 1.0
"""Writes a node may make at once, and from then on. The kubelet beside us may make 50 a second."""
ATTEMPTS = 5


class ObjectRef(msgspec.Struct, frozen=True):
    """What an event is about."""

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
    """Empty for the one event of all messages past SIMILAR_MAX."""


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
        """Written once more; the next time is further away."""
        self.count += counted
        self.due = now + self.pause
        self.pause = min(2 * self.pause, SAME_EVENT_SECONDS[1])


class _Allowance:
    """So many at once, and then so many a second."""

    def __init__(self) -> None:
        self._left, self._seen = float(AT_ONCE), 0.0

    def delay(self, now: float) -> float:
        """Seconds until one may be spent."""
        self._left = min(AT_ONCE, self._left + (now - self._seen) * PER_SECOND)
        self._seen = now
        return max(0.0, (1.0 - self._left) / PER_SECOND)

    def spend(self) -> None:
        """One write."""
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
        self._allowance = _Allowance()
        self._wake = asyncio.Event()
        self.dropped = 0
        """Events lost because too many were waiting or the server refused them."""

    def warning(self, about: ObjectRef, reason: str, message: str) -> None:
        """Something a person should look at."""
        words = _shortened(message)
        key = _Key(about, "Warning", reason, words)
        if key not in self._waiting and key not in self._written and self._similar(key) >= SIMILAR_MAX:
            key = _Key(about, "Warning", reason, "")
            words = _shortened(f"and others, the last: {message}")
        self._record(key, words)

    def _similar(self, key: _Key) -> int:
        """How many messages there are on the same object for the same reason."""
        known = {*self._waiting, *self._written}
        return sum(1 for other in known if (other.about, other.reason) == (key.about, key.reason))

    async def run(self) -> None:
        """Write what waits, until cancelled."""
        backoff = Backoff(self._client.rng, first=0.5)
        while True:
            self._wake.clear()
            key, delay = self._next()
            if key is None or delay > 0:
                await self._sleep(delay if key is not None else None)
                continue
            self._allowance.spend()
            try:
                await self._write(key, self._waiting[key])
                backoff.reset()
            except KubeError as error:
                self._failed(key, error)
                await asyncio.sleep(backoff.next())

    def _record(self, key: _Key, words: str) -> None:
        moment = self._now()
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting.count += 1
            waiting.last, waiting.message = moment, words
        elif len(self._waiting) >= WAITING_MAX:
            self.dropped += 1
        else:
            self._waiting[key] = _Waiting(1, moment, moment, words)
            self._wake.set()

    def _next(self) -> tuple[_Key | None, float]:
        """What may be written soonest, and in how many seconds."""
        now = asyncio.get_running_loop().time()
        delays = {key: self._written[key].due - now if key in self._written else 0.0 for key in self._waiting}
        key = min(delays, key=lambda k: max(delays[k], 0.0), default=None)
        return key, max(delays[key], self._allowance.delay(now)) if key is not None else 0.0

    async def _sleep(self, delay: float | None) -> None:
        try:
            async with asyncio.timeout(delay):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _write(self, key: _Key, waiting: _Waiting) -> None:
        counted = waiting.count
        written = self._written.get(key)
        if written is not None:
            try:
                await self._update(key, written, waiting)
            except Missing:  # events live an hour: ours is gone, start a new one
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
        hopeless = isinstance(error, ApiError) and error.code in {400, 403, 404, 422}
        if hopeless or waiting.attempts >= ATTEMPTS:
            log.warning("event %s on %s %s is lost: %s", key.reason, key.about.kind, key.about.name, error)
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
