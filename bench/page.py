"""The page over ten thousand machines with sixteen devices each, four fifths of them in use; prints JSON.

The server is fed through the same path a cluster's watch takes. First paint and memory are those of a real headless
Chromium on this machine; without one only the server is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import threading
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

from dranet.machines.shape import load_shape
from dranet.machines.shape_devices import gpu_devices, nic_devices, shape_slices
from dranet.web.cluster import CLAIMS, KINDS, PODS, SLICES, ClusterObjects
from dranet.web.cluster import NODES as NODE_OBJECTS
from dranet.web.feed import Feed
from dranet.web.server import serving

NODES = 10_000
IN_BLOCK = 50
PODS_PER_NODE = 4
CHANGES = 50
SHAPE = "a4-highgpu-8g"


class Fleet:
    """A source of many machines whose claims can be changed by hand."""

    title = f"{NODES} machines"
    live = True
    client = None
    """No source of traffic figures."""

    def __init__(self) -> None:
        self.cluster: ClusterObjects | None = None
        self.shape = load_shape(SHAPE)
        self.names = [f"node-{i:05}" for i in range(NODES)]
        self.devices = [d.name for d in gpu_devices(self.shape)], [d.name for d in nic_devices(self.shape)]

    async def load(self, cluster: ClusterObjects) -> None:
        """Everything, once."""
        self.cluster = cluster
        slices = [item for i, name in enumerate(self.names) for item in shape_slices(self.shape, name, i)]
        held = [(name, i) for n, name in enumerate(self.names) for i in range(PODS_PER_NODE) if n % 5]
        nodes = [self.node(name, i // IN_BLOCK) for i, name in enumerate(self.names)]
        kinds = {
            NODE_OBJECTS: nodes,
            SLICES: slices,
            CLAIMS: [self.claim(*h) for h in held],
            PODS: [self.pod(*h) for h in held],
        }
        for kind in KINDS:
            cluster.replace(kind, kinds.get(kind, []))

    async def follow(self, cluster: ClusterObjects) -> None:
        """Changes come from `change`."""
        await self.load(cluster)

    def change(self, number: int) -> None:
        """A pod comes to a free machine or leaves it again."""
        assert self.cluster is not None
        node = self.names[number // 2 * 5 % NODES]
        if number % 2:
            self.cluster.remove(CLAIMS, ("bench", f"{node}-0"))
            self.cluster.remove(PODS, ("bench", f"{node}-0"))
        else:
            self.cluster.put(PODS, self.pod(node, 0))
            self.cluster.put(CLAIMS, self.claim(node, 0))

    def node(self, name: str, block: int) -> dict[str, Any]:
        """A node that says in which block it is."""
        labels = {"cloud.google.com/gce-topology-block": f"block-{block:03}"}
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}

    def pod(self, node: str, i: int) -> dict[str, Any]:
        """The i-th pod of a node; every block runs a job."""
        owner = {"kind": "Job", "name": f"train-{int(node[-5:]) // IN_BLOCK:03}", "uid": "1", "controller": True}
        metadata = {"name": f"{node}-{i}", "namespace": "bench", "ownerReferences": [owner]}
        spec = {"nodeName": node, "resourceClaims": [{"name": "devices", "resourceClaimName": f"{node}-{i}"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running"}}

    def claim(self, node: str, i: int) -> dict[str, Any]:
        """Its claim: two GPUs and two NICs."""
        gpus, nics = ([*names[2 * i : 2 * i + 2]] for names in self.devices)
        found = [("gpu.nvidia.com", "gpu", name) for name in gpus] + [("dra.net", "nic", name) for name in nics]
        results = [{"request": r, "driver": d, "pool": node, "device": name} for d, r, name in found]
        user = {"resource": "pods", "name": f"{node}-{i}", "uid": "1"}
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
        metadata = {"name": f"{node}-{i}", "namespace": "bench"}
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": CLAIMS}
        return {**kind, "metadata": metadata, "spec": {"devices": {}}, "status": status}


def measure() -> dict[str, Any]:
    """All figures."""
    figures: dict[str, Any] = {"nodes": NODES, "devices": NODES * 16, "server": asyncio.run(_server())}
    from tests.web.browser import MISSING, available

    figures["browser"] = _browser() if available() else {"skipped": MISSING}
    return figures


async def _server() -> dict[str, Any]:
    before = _resident()
    fleet, cluster = Fleet(), ClusterObjects()
    await fleet.load(cluster)
    objects = _resident()
    feed = Feed(cluster, fleet.title, True)
    started = time.perf_counter()
    feed.world()
    first = time.perf_counter() - started
    stream = feed.events()
    piece = await anext(stream)
    world, squeezed = len(piece), len(zlib.compress(piece, 1))
    sizes, seconds = await _changes(fleet, feed, stream)
    return {
        "first_look_ms": round(first * 1000),
        "world_bytes": world,
        "world_bytes_gzipped": squeezed,
        "bytes_per_change": {"median": round(statistics.median(sizes)), "most": max(sizes)},
        "cpu_ms_per_change": round(statistics.median(seconds) * 1000, 2),
        "memory_mib": {"objects": objects - before, "views": _resident() - objects},
    }


async def _changes(fleet: Fleet, feed: Feed, stream: AsyncIterator[bytes]) -> tuple[list[int], list[float]]:
    sizes, seconds = [], []
    for number in range(CHANGES):
        started = time.process_time()
        fleet.change(number)
        feed.flush()
        sizes.append(len(await anext(stream)))
        seconds.append(time.process_time() - started)
    return sizes, seconds


def _browser() -> dict[str, Any]:
    from tests.web.browser import browser

    with served() as (fleet, url, loop), browser() as window:
        paints = []
        for _ in range(3):
            window.open(url)
            paints.append(window.wait("performance.getEntriesByName('machines-painted')[0]?.startTime"))
        window.devtools("HeapProfiler.collectGarbage")
        heap = window.devtools("Runtime.getHeapUsage")["usedSize"]
        elements = window.value("document.querySelectorAll('*').length")
        window.run(_CHOOSE % ("group", "block"))
        pauses = {name: _pause(window, deed) for name, deed in _DEEDS.items()}
        scroll = window.run(_SCROLL)
        seen = [_until_seen(window, fleet, loop, number) for number in range(0, 20, 2)]
        return {
            "first_paint_of_machines_ms": {"median": round(statistics.median(paints)), "worst": round(max(paints))},
            "javascript_heap_mib": round(heap / 2**20, 1),
            "elements_in_page": elements,
            "load_average": round(os.getloadavg()[0], 1),
            "longest_pause_ms": {name: seen for name, (seen, _) in pauses.items()},
            "main_thread_processor_ms": {name: spent for name, (_, spent) in pauses.items()},
            "scroll_step_ms": round(scroll, 1),
            "change_to_screen_ms": round(statistics.median(seen)),
        }


_CHOOSE = """
const place = document.getElementById("%s");
place.value = "%s";
place.dispatchEvent(new Event(place.tagName === "INPUT" ? "input" : "change"));"""
_FAULT = 'document.querySelectorAll("#states button")[2].click();'
_DEEDS = {
    "idle": "",
    **{
        f"type {text}": _CHOOSE % ("search", text)
        for text in ("n", "no", "node-00", "node-001", "block-1", "train-007")
    },
    "type nothing": _CHOOSE % ("search", ""),
    "namespace": _CHOOSE % ("namespace", "bench"),
    "job": _CHOOSE % ("job", "bench/Job/train-007"),
    "every job": _CHOOSE % ("job", ""),
    "every namespace": _CHOOSE % ("namespace", ""),
    "fault": _FAULT,
    "every state": _FAULT,
    "group by kind": _CHOOSE % ("group", "kind"),
    "group by block": _CHOOSE % ("group", "block"),
    "zoom into a block": 'zoomTo("block-007");',
    "zoom out": "zoomTo(null);",
    "to tiles": _CHOOSE % ("size", "tile"),
    **{f"scroll to {y}": f'document.getElementById("nodes").scrollTop = {y};' for y in (2000, 9000, 60000, 63000)},
}
_PAUSE = """
return await new Promise((done) => {
  let [last, worst, frames] = [performance.now(), 0, 0];
  const tick = () => {
    const now = performance.now();
    if (frames > 1) worst = Math.max(worst, now - last);
    last = now;
    if (frames === 1) { %s }
    if (frames++ < 20) requestAnimationFrame(tick);
    else done(Math.round(worst));
  };
  requestAnimationFrame(tick);
});
"""
_SCROLL = """
const box = document.getElementById("nodes"), took = [];
const step = Math.max(500, box.scrollHeight / 100);
for (let y = 0; y < box.scrollHeight; y += step) {
  const start = performance.now();
  box.scrollTop = y; paint(); box.getBoundingClientRect();
  took.push(performance.now() - start);
}
return took.sort((a, b) => a - b)[took.length >> 1];
"""


def _pause(window: Any, deed: str) -> tuple[int, int]:
    """The longest time between two of the twenty frames after a deed, and what the page's thread computed in all of
    them together: that does not depend on who else uses the machine, and no pause of an idle one is longer."""
    before = _computed(window)
    seen: int = window.run(_PAUSE % deed)
    return seen, round((_computed(window) - before) * 1000)


def _computed(window: Any) -> float:
    """Seconds of processor of the page's main thread."""
    window.devtools("Performance.enable", timeDomain="threadTicks")
    found = window.devtools("Performance.getMetrics")["metrics"]
    return next(float(one["value"]) for one in found if one["name"] == "TaskDuration")


def _until_seen(window: Any, fleet: Fleet, loop: asyncio.AbstractEventLoop, number: int) -> float:
    """From a change at the source to the page having drawn it, this script's own polling included."""
    before = window.value("state.number")
    started = time.perf_counter()
    loop.call_soon_threadsafe(fleet.change, number)
    window.wait(f"state.number > {before}")
    return (time.perf_counter() - started) * 1000


@contextlib.contextmanager
def served() -> Iterator[tuple[Fleet, str, asyncio.AbstractEventLoop]]:
    """The fleet with its page, in a thread: fleet, address and loop."""
    fleet, loop, ready, ends = Fleet(), asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    where: list[str] = []

    async def live() -> None:
        async with serving(fleet) as url:
            where.append(url)
            ready.set()
            await ends.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(live(),))
    thread.start()
    try:
        ready.wait(120)
        yield fleet, where[0], loop
    finally:
        loop.call_soon_threadsafe(ends.set)
        thread.join()
        loop.close()


def _resident() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
