"""What the driver's steps cost in CPU time; runs inside either tree, by that tree's own `bench.driver`; prints JSON.

CPU time and not the clock: the kernel makes every move of a NIC wait for a quiet moment, and neighbours on the machine
make everything wait, so the clock shows a difference in our own work only on an idle machine, if at all.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from bench import driver
from dranet.kubernetes.api import resources
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import SandboxNode

ROUNDS = 12
HOOKS = 300
"""As many as `bench.driver` sends at once."""


def main() -> None:
    driver.time = SimpleNamespace(perf_counter=time.process_time, sleep=lambda _: None)  # type: ignore[assignment, attr-defined]
    found = {f"{step} of {nics} NICs": value for nics in (1, 8) for step, value in _steps(nics).items()}
    print(json.dumps(found | {"hook without claims": asyncio.run(_hook())}))


def _steps(nics: int) -> dict[str, float]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        # Earlier trees have it under another name.
        node = (getattr(driver, "Node", None) or driver._Node)(nics, folder)  # type: ignore[attr-defined]
        for _ in range(ROUNDS):
            driver._ours(node, times)
        node.close()
    # Once all of it was before the answer to the kubelet; both are reported, the answer's part and all.
    later = times.pop("after_reply", [0.0] * ROUNDS)
    times["prepare and what follows"] = [sum(both) for both in zip(times["prepare"], later, strict=True)]
    return {step: statistics.median(values) * 1000 for step, values in times.items() if step != "cpu"}


async def _hook() -> float:
    """Of the daemon's event loop, the median of several hundreds."""
    api = SandboxApiServer()
    api.put(resources.NODES, {"metadata": {"name": "n"}})
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with SandboxNode("n", api, Path(folder)) as node:
            child = await node.start_driver()
            while not api.objects(resources.RESOURCE_SLICES):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.05)
            await asyncio.sleep(1)
            return statistics.median([await _hooks(node, child) for _ in range(5)])


async def _hooks(node: Any, child: Any) -> float:
    before = _on_processor(child.pid)
    await driver._noop(node)
    return (_on_processor(child.pid) - before) / HOOKS / 1e6


def _on_processor(pid: int) -> int:
    """Nanoseconds that the process's first thread has run."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])


if __name__ == "__main__":
    main()
