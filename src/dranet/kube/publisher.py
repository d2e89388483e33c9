"""The ResourceSlice publisher: say what the node has, and keep it said.

:meth:`ResourceSlicePublisher.publish` only notes what should stand there; one task watches what does stand there,
another writes the difference. Whoever deletes or edits our slices (the kubelet does, at its start) finds them back.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Sequence

from dranet.basics.backoff import Backoff
from dranet.kube.client import KubeClient, Object, WatchEvent
from dranet.kube.errors import Invalid, KubeError
from dranet.kube.events import EventRecorder, ObjectRef
from dranet.kube.pool import Accepted, PoolWrites, devices_of, generation_of, merged, name_of, plan
from dranet.kube.reflector import follow
from dranet.kube.resources import NODES, RESOURCE_SLICES
from dranet.model.device import Device
from dranet.model.errors import Problem
from dranet.model.limits import device_problems
from dranet.model.names import DRIVER_NAME
from dranet.model.slices import resource_slices

log = logging.getLogger(__name__)

DEVICE_REFUSED = "DeviceNotPublished"
SLICE_REFUSED = "ResourceSliceRefused"
CALM_SECONDS = 10.0
RECONNECT_SECONDS = 120.0
"""A node's watch only guards its slices against others: nothing is lost when it is back a while after the server."""

_DEVICE_INDEX = re.compile(r"spec\.devices\[(\d+)\]")


class ResourceSlicePublisher:
    """Keeps one pool, named after the node, equal to the devices given last."""

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
        self._recorder = recorder
        self._on_published = on_published
        self._node_uid: str | None = None
        self._given: tuple[Device, ...] | None = None
        self._sound: list[Device] = []
        self._refused: dict[str, Device] = {}
        self._observed: dict[str, Object] | None = None
        self._accepted: dict[str, Accepted] = {}
        self._deleted: set[str] = set()
        self._floor = 0
        self._generation = 0
        self._doubtful = False
        self._wake = asyncio.Event()
        self._in_sync = asyncio.Event()
        self.writes = 0
        """Slices created, replaced or deleted since the start."""
        self.problem = ""
        """Why the last attempt to publish failed; empty once one worked."""

    def publish(self, devices: Sequence[Device]) -> None:
        """What the node has now. Returns at once; the same devices again cost nothing."""
        if self._given == (given := tuple(devices)):
            return
        self._refused = {name: bad for name, bad in self._refused.items() if bad in given}
        self._given = given
        self._sound, bad = _sorted_out(given)
        for device, problems in bad:
            self._report(device.name, "; ".join(map(str, problems)))
        self._in_sync.clear()
        self._wake.set()

    @property
    def in_sync(self) -> bool:
        """Whether the server was last seen to hold exactly what was given."""
        return self._in_sync.is_set()

    async def published(self) -> None:
        """Wait until the server holds what was given."""
        await self._in_sync.wait()

    async def run(self) -> None:
        """Converge until cancelled."""
        fields = f"spec.nodeName={self._node},spec.driver={self._driver}"
        async with asyncio.TaskGroup() as group:
            watch = follow(self._client, RESOURCE_SLICES, self, fields=fields, spread=RECONNECT_SECONDS)
            group.create_task(watch)
            group.create_task(self._converge_forever(fields))

    # What stands there, as list and watch tell it.

    def replaced(self, items: list[Object], position: str = "") -> None:
        """Everything the server has of ours."""
        known, self._observed = self._observed, {name_of(item): item for item in items}
        self._accepted = {name: known for name, known in self._accepted.items() if name in self._observed}
        self._deleted.clear()
        if known is None or not known.keys() <= self._observed.keys():
            self._node_uid = None  # slices are gone, perhaps with their node, which may have been made anew
        self._floor = max([_number(position), *map(_version, items)])
        self._wake.set()

    def changed(self, event: WatchEvent) -> None:
        """One change; what we know to be older than our own last look or write is ignored."""
        item, observed = event.object, self._observed
        if observed is None:
            return
        known = observed.get(name_of(item))
        if event.type == "DELETED":
            self._deleted.add(_uid(item))  # also one not known yet: the answer to our write may come after this
            if known is None or _uid(known) != _uid(item):
                return
            del observed[name_of(item)]
            self._node_uid = None  # the node itself may have been made anew
        else:
            if _uid(item) in self._deleted or _is_older(item, max(self._floor, _version(known) if known else 0)):
                return
            observed[name_of(item)] = item
        self._wake.set()

    # What should stand there.

    def _devices(self) -> list[Device]:
        return [device for device in self._sound if device.name not in self._refused]

    async def _converge_forever(self, fields: str) -> None:
        backoff = Backoff(self._client.rng, limit=10.0)
        pace = Backoff(self._client.rng, first=0.1, limit=1.0)
        loop = asyncio.get_running_loop()
        last = loop.time()
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                wrote = await self._converge(fields)
            except KubeError as error:
                log.warning("publishing: %s", error)
                self.problem = str(error)
                self._doubtful = True
                self._wake.set()
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self.problem = ""
            if wrote:
                if loop.time() - last > CALM_SECONDS:
                    pace.reset()
                last = loop.time()
                await asyncio.sleep(pace.next())  # somebody who undoes our writes must not make us spin

    async def _converge(self, fields: str) -> bool:
        if self._given is None or self._observed is None:
            return False
        if self._doubtful:
            items, position = await self._client.list(RESOURCE_SLICES, fields=fields)
            self.replaced(items, position)
            self._doubtful = False
        if self._node_uid is None:
            node = await self._client.get(NODES, self._node)
            self._node_uid = node["metadata"]["uid"]
        given, devices = self._given, self._devices()
        step = self._plan(devices)
        if not step.done:
            self._in_sync.clear()
            await self._carry_out(step)
        if self._given is given and self._plan(devices).done:
            self._settled(devices)
        return not step.done

    def _plan(self, devices: Sequence[Device]) -> PoolWrites:
        wanted = resource_slices(devices, node=self._node, driver=self._driver, node_uid=self._node_uid)
        return plan(wanted, self._observed or {}, self._accepted, self._generation)

    async def _carry_out(self, step: PoolWrites) -> None:
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
        """Whether list or watch, while the server's answer was on its way, told something newer of the slice."""
        known = self._known().get(name_of(answer))
        return _uid(answer) in self._deleted or _is_older(answer, _version(known) if known else self._floor)

    def _remember(self, name: str, made: Accepted) -> None:
        if made.sent == made.stored:
            self._accepted.pop(name, None)
        else:
            self._accepted[name] = made

    def _known(self) -> dict[str, Object]:
        if self._observed is None:
            raise AssertionError("nothing is written before the first list")
        return self._observed

    def _settled(self, devices: Sequence[Device]) -> None:
        if not self._in_sync.is_set():
            self._in_sync.set()
            if self._on_published is not None:
                self._on_published(devices)

    # Devices that cannot be published.

    def _leave_out(self, item: Object, error: Invalid) -> None:
        """The server refuses what our own checks let through: leave out the devices it names, and say so."""
        names = [device["name"] for device in item["spec"].get("devices") or ()]
        found = {int(match[1]) for cause in error.causes if (match := _DEVICE_INDEX.match(str(cause.get("field"))))}
        refused = {names[index] for index in found if index < len(names)}
        if not refused:
            self._event(SLICE_REFUSED, error.message)
        for device in self._sound:
            if device.name in refused:
                self._refused[device.name] = device
                self._report(device.name, error.message)

    def _report(self, name: str, problem: str) -> None:
        log.warning("device %s is not published: %s", name, problem)
        self._event(DEVICE_REFUSED, f"device {name} is not published: {problem}")

    def _event(self, reason: str, message: str) -> None:
        if self._recorder is not None:
            self._recorder.warning(ObjectRef.node(self._node, self._node_uid or self._node), reason, message)


def _sorted_out(devices: Sequence[Device]) -> tuple[list[Device], list[tuple[Device, list[Problem]]]]:
    """Devices the API will take, and those it would refuse with the reasons; the second of one name is a bad one."""
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
    """Resource versions are opaque by contract and numbers in fact; where they are not, nothing is called older."""
    return int(text) if isinstance(text, str) and text.isdigit() else 0


def _version(item: Object) -> int:
    return _number(item["metadata"].get("resourceVersion"))


def _is_older(item: Object, than: int) -> bool:
    return 0 < _version(item) <= than
