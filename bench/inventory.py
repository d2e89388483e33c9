"""How fast a look at a node is, side by side with the tools people know; prints JSON.

Everything happens in a network namespace of its own with 500 veth links and a sysfs of its own, so the figures do not
depend on what else the machine has. Rounds of ours and of ``ip`` alternate, and medians are compared: both see the same
noise.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

LINKS = 500
ROUNDS = 15
REFERENCE_EVENT_MS = (606, 654)
"""CPU that the reference driver used for one link event on a node with 500 links."""


def measure() -> dict[str, Any]:
    """All figures, measured in a fresh namespace; needs the right to make one."""
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "bench.inventory", "--inside"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return {"skipped": f"needs root and the tools unshare and ip: {done.stderr.strip()[-200:]}"}
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def _inside() -> dict[str, Any]:
    subprocess.run(["mount", "-t", "sysfs", "sysfs", "/sys"], check=True)
    _make_links(0, 10)
    requests_at_10 = _requests()
    _make_links(10, LINKS)
    return {
        "links": LINKS,
        "scan": _scan(),
        "netlink_requests_per_scan": {"10_links": requests_at_10, f"{LINKS}_links": _requests()},
        "link_event": asyncio.run(_link_event()),
        "process": _process(),
    }


def _make_links(start: int, end: int) -> None:
    lines = []
    for number in range(start, end, 2):
        lines += [
            f"link add v{number} type veth peer name v{number + 1}",
            f"link set v{number} up",
            f"link set v{number + 1} up",
            f"addr add 10.{number // 250}.{number % 250}.1/24 dev v{number}",
        ]
    subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), text=True, check=True)


def _requests() -> int:
    from dranet.node.inventory import Inventory, LiveKernel

    with LiveKernel() as kernel:
        Inventory(kernel=kernel).scan()
        return kernel.requests_sent


def _scan() -> dict[str, Any]:
    from dranet.node.inventory import Inventory, LiveKernel

    ours: list[tuple[float, float]] = []
    theirs: list[tuple[float, float]] = []
    with LiveKernel() as kernel:
        inventory = Inventory(kernel=kernel)
        first = _timed(inventory.scan, resource.RUSAGE_SELF)
        for _ in range(ROUNDS):
            ours.append(_timed(inventory.scan, resource.RUSAGE_SELF))
            theirs.append(_timed(_ip, resource.RUSAGE_CHILDREN))
    (our_wall, our_cpu), (ip_wall, ip_cpu) = _medians(ours), _medians(theirs)
    return {
        "ours_ms": {"wall": our_wall, "cpu": our_cpu},
        "our_first_look_ms": {"wall": round(first[0], 2), "cpu": round(first[1], 2)},
        "ip_link_and_addr_ms": {"wall": ip_wall, "cpu": ip_cpu},
        "ratio_wall": round(our_wall / ip_wall, 2),
        "ratio_cpu": round(our_cpu / ip_cpu, 2),
    }


def _ip() -> None:
    for command in (["ip", "-j", "-d", "link"], ["ip", "-j", "addr"]):
        subprocess.run(command, check=True, stdout=subprocess.PIPE)


def _timed(work: Callable[[], object], who: int) -> tuple[float, float]:
    start, cpu = time.perf_counter(), _cpu(who)
    work()
    return (time.perf_counter() - start) * 1000, (_cpu(who) - cpu) * 1000


def _cpu(who: int) -> float:
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    walls, cpus = zip(*pairs, strict=True)
    return round(statistics.median(walls), 2), round(statistics.median(cpus), 2)


async def _link_event() -> dict[str, Any]:
    """CPU of this process from one link event until the watcher has nothing left to do."""
    from dranet.node.inventory import Inventory, LiveKernel, Snapshot, Watcher, WatchIntervals

    async def changed(_: Snapshot) -> None:
        return None

    with LiveKernel() as kernel:
        watcher = Watcher(Inventory(kernel=kernel), changed, intervals=WatchIntervals(min_interval=0.0))
        task = asyncio.create_task(watcher.run())
        await _settled(watcher)
        used = [await _one_event(watcher, mtu) for mtu in range(1400, 1400 + ROUNDS)]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return {
        "ours_cpu_ms": {"median": round(statistics.median(used), 2), "most": round(max(used), 2)},
        "limit_cpu_ms": 60,
        "reference_cpu_ms": list(REFERENCE_EVENT_MS),
    }


async def _one_event(watcher: Any, mtu: int) -> float:
    process = await asyncio.create_subprocess_exec("ip", "link", "set", "v0", "mtu", str(mtu))
    before, scans = time.process_time(), watcher.scans
    await process.wait()
    await _settled(watcher, scans + 1)
    return (time.process_time() - before) * 1000


async def _settled(watcher: Any, scans: int = 1) -> None:
    """Until that many scans were taken and no further one follows."""
    seen = -1
    while watcher.scans < scans or watcher.scans != seen:
        seen = watcher.scans
        await asyncio.sleep(0.15)


def _process() -> dict[str, Any]:
    """A fresh interpreter that imports the inventory and takes one look at these links."""
    script = (
        "import time; start = time.perf_counter()\n"
        "from dranet.node.inventory import Inventory\n"
        "imported = time.perf_counter() - start\n"
        "Inventory().scan()\n"
        "rss = [int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmRSS')][0]\n"
        "print(imported * 1000, rss / 1024)"
    )
    runs = [_numbers(script) for _ in range(5)]
    (bare,) = _numbers(
        "print([int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS')][0] / 1024)"
    )
    return {
        "import_ms": round(statistics.median(run[0] for run in runs), 1),
        "rss_mib_after_one_look": round(statistics.median(run[1] for run in runs), 1),
        "rss_mib_bare_python": round(bare, 1),
    }


def _numbers(script: str) -> list[float]:
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, env=os.environ)
    return [float(word) for word in done.stdout.split()]


if __name__ == "__main__":
    print(json.dumps(_inside() if "--inside" in sys.argv else measure(), indent=2))
