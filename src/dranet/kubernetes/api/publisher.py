"""Publishes the devices of a node as ResourceSlices and keeps them published.

:meth:`ResourceSlicePublisher.publish` only records the desired devices. One task watches the slices on the server,
another writes the difference. Slices that others delete or edit (the kubelet deletes them when it starts) are restored.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from dranet.core.backoff import Backoff
from dranet.core.device import Device
from dranet.core.errors import Problem
from dranet.core.logs import get_logger
from dranet.core.names import DRIVER_NAME
from dranet.core.slices import device_problems, resource_slices
from dranet.kubernetes.api.client import KubeClient, Object, WatchEvent
from dranet.kubernetes.api.errors import Invalid, KubeError
from dranet.kubernetes.api.events import EventRecorder, ObjectRef
from dranet.kubernetes.api.pool import Accepted, PoolWrites, devices_of, generation_of, merged, name_of, plan_writes
from dranet.kubernetes.api.reflector import Reflector
from dranet.kubernetes.api.resources import NODES, RESOURCE_SLICES

log = get_logger(__name__)

DEVICE_NOT_PUBLISHED = "DeviceNotPublished"
SLICE_REJECTED = "ResourceSliceRefused"
CALM_SECONDS = 10.0
RECONNECT_SECONDS = 120.0
"""The watch only restores slices that others change, so it may reconnect late. Spread all nodes over this time, except
those whose kubelet registers the driver meanwhile (`reconnect`)."""

_DEVICE_INDEX = re.compile(r"spec\.devices\[(\d+)\]")


class ResourceSlicePublisher:
    """Keeps one pool, named after the node, equal to the devices published last."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        driver: str = DRIVER_NAME,
        recorder: EventRecorder | None = None,
        on_published: Callable[[Sequence[Device]], None] | None = None,
    ) -> None:
        self._client = client
        self._node = node
        self._driver = driver
        self._fields = f"spec.nodeName={node},spec.driver={driver}"
        self._reflector = Reflector(client, RESOURCE_SLICES, self, fields=self._fields, spread=RECONNECT_SECONDS)
        self._recorder = recorder
        self._on_published = on_published
        self._node_uid: str | None = None
        self._desired: tuple[Device, ...] | None = None
        self._valid: list[Device] = []
        self._rejected: dict[str, Device] = {}
        self._observed: dict[str, Object] | None = None
        self._accepted: dict[str, Accepted] = {}
        self._deleted: set[str] = set()
        self._min_version = 0
        self._generation = 0
        self._must_list = False
        self._wake = asyncio.Event()
        self._in_sync = asyncio.Event()
        self.writes = 0
        """The number of slices created, replaced or deleted."""
        self.problem = ""
        """Why the last attempt to publish failed; empty once one worked."""

    def publish(self, devices: Sequence[Device]) -> None:
        """Set the devices of the node. Returns at once; unchanged devices cost nothing."""
        if self._desired == (desired := tuple(devices)):
            return
        self._rejected = {name: bad for name, bad in self._rejected.items() if bad in desired}
        self._desired = desired
        self._valid, bad = _split_invalid(desired)
        for device, problems in bad:
            self._report(device.name, "; ".join(map(str, problems)))
        self._in_sync.clear()
        self._wake.set()

    @property
    def in_sync(self) -> bool:
        """Whether the server had exactly the desired slices when last seen."""
        return self._in_sync.is_set()

    @property
    def is_watching(self) -> bool:
        """Whether changes of the slices by others are seen."""
        return self._reflector.is_watching

    def reconnect(self) -> None:
        """If the watch is lost, compare with the server now and open it at once. A kubelet that starts deletes the
        slices of its node. That concerns one node, so the delay that spreads all nodes is not needed."""
        if not self.is_watching:
            self._reflector.retry_now()
            self._must_list = True
            self._wake.set()

    async def published(self) -> None:
        """Wait until the server has the desired slices."""
        await self._in_sync.wait()

    async def run(self) -> None:
        """Watch and write until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._reflector.run())
            group.create_task(self._converge_forever())

    # The slices on the server, from list and watch.

    def replaced(self, items: list[Object], position: str = "") -> None:
        """All slices of this driver and node on the server."""
        known, self._observed = self._observed, {name_of(item): item for item in items}
        self._accepted = {name: known for name, known in self._accepted.items() if name in self._observed}
        self._deleted.clear()
        if known is None or not known.keys() <= self._observed.keys():
            self._node_uid = None  # slices are gone, perhaps because their Node was deleted and created again
        self._min_version = max([_number(position), *map(_version, items)])
        self._wake.set()

    def changed(self, event: WatchEvent) -> None:
        """One watch event. An event older than the last list or write is ignored."""
        item, observed = event.object, self._observed
        if observed is None:
            return
        known = observed.get(name_of(item))
        if event.type == "DELETED":
            self._deleted.add(
                _uid(item)
            )  # also an unknown slice: the response to its create may arrive after this event
            if known is None or _uid(known) != _uid(item):
                return
            del observed[name_of(item)]
            self._node_uid = None  # the Node may have been deleted and created again
        else:
            if _uid(item) in self._deleted or _is_older(item, max(self._min_version, _version(known) if known else 0)):
                return
            observed[name_of(item)] = item
        self._wake.set()

    # The desired slices.

    def _devices(self) -> list[Device]:
        return [device for device in self._valid if device.name not in self._rejected]

    async def _converge_forever(self) -> None:
        backoff = Backoff(self._client.rng, limit=10.0)
        pace = Backoff(self._client.rng, first=0.1, limit=1.0)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                wrote = await self._converge()
            except KubeError as error:
                log.warning("ResourceSlices not published; will retry", error=error)
                self.problem = str(error)
                self._must_list = True
                self._wake.set()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self.problem = ""
            if wrote:
                if loop.time() - last > CALM_SECONDS:
                    pace.reset()
                last = loop.time()
                await asyncio.sleep(pace.next())  # limits the rate if another client undoes the writes

    async def _converge(self) -> bool:
        if self._desired is None or self._observed is None:
            return False
        if self._must_list:
            items, position = await self._client.list(RESOURCE_SLICES, fields=self._fields)
            self.replaced(items, position)
            self._must_list = False
        if self._node_uid is None:
            node = await self._client.get(NODES, self._node)
            self._node_uid = node["metadata"]["uid"]
        desired, devices = self._desired, self._devices()
        step = self._plan(devices)
        if not step.done:
            self._in_sync.clear()
            await self._execute(step)
        if self._desired is desired and self._plan(devices).done:
            self._on_in_sync(devices)
        return not step.done

    def _plan(self, devices: Sequence[Device]) -> PoolWrites:
        desired = resource_slices(devices, node=self._node, driver=self._driver, node_uid=self._node_uid)
        return plan_writes(desired, self._observed or {}, self._accepted, self._generation)

    async def _execute(self, step: PoolWrites) -> None:
        for item in step.writes:
            await self._write(item)
        for item in step.deletes:
            await self._client.delete(RESOURCE_SLICES, name_of(item), uid=_uid(item))
            self._deleted.add(_uid(item))
            self._known().pop(name_of(item), None)
            self.writes += 1
        self._generation = step.generation

    async def _write(self, item: Object) -> None:
        stored = self._known().get(name_of(item))
        try:
            if stored is None:
                answer = await self._client.create(RESOURCE_SLICES, item)
            else:
                answer = await self._client.replace(RESOURCE_SLICES, merged(item, stored))
        except Invalid as error:
            self._leave_out(item, error)
            raise
        self.writes += 1
        self._generation = max(self._generation, generation_of(item))
        self._remember(name_of(item), Accepted(devices_of(item), devices_of(answer)))
        if self._is_overtaken(answer):
            self._wake.set()
        else:
            self._known()[name_of(answer)] = answer

    def _is_overtaken(self, answer: Object) -> bool:
        """Whether list or watch reported a newer state while the response was on its way."""
        known = self._known().get(name_of(answer))
        return _uid(answer) in self._deleted or _is_older(answer, _version(known) if known else self._min_version)

    def _remember(self, name: str, made: Accepted) -> None:
        if made.sent == made.stored:
            self._accepted.pop(name, None)
        else:
            self._accepted[name] = made

    def _known(self) -> dict[str, Object]:
        if self._observed is None:
            raise AssertionError("slices are written only after the first list")
        return self._observed

    def _on_in_sync(self, devices: Sequence[Device]) -> None:
        if not self._in_sync.is_set():
            self._in_sync.set()
            if self._on_published is not None:
                self._on_published(devices)

    # Devices that cannot be published.

    def _leave_out(self, item: Object, error: Invalid) -> None:
        """The server rejected a slice that passed our checks: leave out the devices it names, and report them."""
        names = [device["name"] for device in item["spec"].get("devices") or ()]
        found = {int(match[1]) for cause in error.causes if (match := _DEVICE_INDEX.match(str(cause.get("field"))))}
        rejected = {names[index] for index in found if index < len(names)}
        if not rejected:
            self._event(SLICE_REJECTED, error.message)
        for device in self._valid:
            if device.name in rejected:
                self._rejected[device.name] = device
                self._report(device.name, error.message)

    def _report(self, name: str, problem: str) -> None:
        log.warning("Device not published", device=name, error=problem)
        self._event(DEVICE_NOT_PUBLISHED, f"Device {name} is not published: {problem}")

    def _event(self, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.warning(ObjectRef.node(self._node, self._node_uid or self._node), reason, message)


def _split_invalid(devices: Sequence[Device]) -> tuple[list[Device], list[tuple[Device, list[Problem]]]]:
    """Valid devices, and invalid ones with their problems. A duplicate name is a problem."""
    good: dict[str, Device] = {}
    bad: list[tuple[Device, list[Problem]]] = []
    for device in devices:
        problems = device_problems(device)
        if device.name in good:
            problems.append(Problem("name", "another device has this name already"))
        if problems:
            bad.append((device, problems))
        else:
            good[device.name] = device
    return list(good.values()), bad


def _uid(item: Object) -> str:
    return str(item["metadata"].get("uid") or "")


def _number(text: object) -> int:
    """Resource versions are opaque by contract but numbers in fact; 0 for others, which disables the comparison."""
    return int(text) if isinstance(text, str) and text.isdigit() else 0


def _version(item: Object) -> int:
    return _number(item["metadata"].get("resourceVersion"))


def _is_older(item: Object, than: int) -> bool:
    return 0 < _version(item) <= than
