"""``python -m tests.soak.run MINUTES``: one driver for as long, with everything that happens to it in hours.

Pods are churned without a pause, links flap every few seconds, the API server is killed every minute or two. The driver
is one process from the first minute to the last, with the chart's rights and not one more. Prints what happened and
what the process took as JSON; exits with 1 where a NIC was lost or memory, open files or threads were not flat.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import yaml

from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import from_kubeconfig
from dranet.kubernetes.api.resources import NODES, RESOURCE_SLICES
from dranet.linux import links
from dranet.linux.namespaces import Namespace
from dranet.linux.netlink import NetlinkSocket
from dranet.testing.apiserver import SandboxApiServer
from dranet.testing.node import SandboxNode
from dranet.testing.waiting import until
from tests.cluster.kubebed import Cluster, Options
from tests.cluster.kubebed.layout import Layout
from tests.node.driver.daemon_bench import Bench
from tests.soak.churn import Churn
from tests.soak.gate import gate, kubeconfig
from tests.soak.vitals import Sample, growing, trends

ROOT = Path(__file__).resolve().parents[2]
BED = 6
NODE = "soak-node"
NICS, AT_ONCE = 8, 4
FLAP_SECONDS, RESTART_SECONDS, AWAY_SECONDS, SAMPLE_SECONDS = 5.0, 90.0, 5.0, 5.0
HOURS = 8
"""What the run stands for: the report says how many pods, flaps and restarts that is in an hour."""


def main() -> int:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30.0
    bed = Cluster(Layout(BED), Options(nodes=0, nics=0, controllers=False))
    bed.up()
    try:
        found = asyncio.run(_soak(bed, 60 * minutes))
    finally:
        bed.down()
    print(json.dumps({"minutes": minutes, **found}, indent=2))
    return 1 if found["problems"] else 0


async def _soak(bed: Cluster, seconds: float) -> dict[str, Any]:
    async with _node(bed) as (bench, admin):
        await bench.node.start_driver()
        await until(lambda: bench.node.driver is not None and bench.node.driver.running)
        await _published(admin)
        return await _life(bed, bench, admin, seconds)


@contextlib.asynccontextmanager
async def _node(bed: Cluster) -> AsyncIterator[tuple[Bench, KubeClient]]:
    """A node with NICs whose driver talks to the bed's API server."""
    with tempfile.TemporaryDirectory(prefix="dranet-soak-") as folder, Namespace.create() as fabric:
        async with (
            KubeClient.from_config(from_kubeconfig(bed.layout.kubeconfig)) as admin,
            SandboxNode(NODE, SandboxApiServer(), Path(folder), seed=1) as node,
            gate(node.namespace, bed.layout.api_url) as port,
        ):
            await admin.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
            token = await asyncio.to_thread(_token, bed)
            text = kubeconfig(port, bed.layout.pki / "ca.crt", token)
            (Path(folder) / "kubeconfig.json").write_text(text)
            bench = Bench(node, SandboxApiServer(), fabric)
            for number in range(NICS):
                bench.add_nic(f"nic{number}", f"10.{number}.0.1/24")
            yield bench, admin


def _token(bed: Cluster) -> str:
    """Of the chart's account, bound to a pod on the node as the driver's own token is."""
    wanted = {"ServiceAccount", "ClusterRole", "ClusterRoleBinding"}
    documents = yaml.safe_load_all((ROOT / "deploy/install.yaml").read_text())
    system = bed.kubectl.in_namespace("kube-system")
    system.apply(*(document for document in documents if document and document["kind"] in wanted))
    spec = {"nodeName": NODE, "serviceAccountName": "dranet", "containers": [{"name": "main", "image": "none"}]}
    system.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "driver"}, "spec": spec})
    # No controllers run here, so nothing else makes the account that every pod of this namespace has.
    bed.kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "driver", "--duration", "24h")
    return system.run("create", "token", "dranet", *bound).strip()


async def _published(admin: KubeClient) -> list[str]:
    """Wait until every NIC is in a slice."""
    async with asyncio.timeout(120):
        while True:
            slices, _ = await admin.list(RESOURCE_SLICES, fields=f"spec.nodeName={NODE}")
            names = [device["name"] for item in slices for device in item["spec"].get("devices") or ()]
            if len(names) == NICS:
                return names
            await asyncio.sleep(0.5)


async def _life(bed: Cluster, bench: Bench, admin: KubeClient, seconds: float) -> dict[str, Any]:
    assert bench.node.driver is not None
    driver, end = bench.node.driver, time.monotonic() + seconds
    pictures = {f"nic{number}": bench.picture(f"nic{number}") for number in range(NICS)}
    churns = [Churn(bench, admin, [f"nic{n}" for n in range(i, NICS, AT_ONCE)], i) for i in range(AT_ONCE)]
    counts: Counter[str] = Counter()
    samples: list[Sample] = []
    around = [
        asyncio.create_task(_flap(bench, counts)),
        asyncio.create_task(_restart(bed, counts)),
        asyncio.create_task(_sample(driver.pid, samples)),
    ]
    try:
        async with asyncio.TaskGroup() as group:
            for churn in churns:
                group.create_task(churn.run(lambda: time.monotonic() > end))
    finally:
        for task in around:
            task.cancel()
        await asyncio.gather(*around, return_exceptions=True)
    for churn in churns:
        counts += churn.counts
    problems = [problem for churn in churns for problem in churn.problems]
    problems += [
        f"{name} is lost: {bench.picture(name)}" for name, was in pictures.items() if bench.picture(name) != was
    ]
    if not driver.running:
        problems.append(f"the driver ended: {driver.tail()}")
    await bed_is_back(bed)
    found = trends(samples)
    return {
        "stands_for_hours": HOURS,
        "happened": dict(counts),
        "in_one_of_those_hours": {name: round(count / HOURS, 1) for name, count in counts.items()},
        "nics_published_at_the_end": len(await _published(admin)),
        "driver": found,
        "problems": [*problems, *growing(found)],
    }


async def bed_is_back(bed: Cluster) -> None:
    """After the last restart, which may have been interrupted half way."""
    if not bed.control_plane.api_ready():
        await asyncio.to_thread(bed.control_plane.wait_api_server)


async def _flap(bench: Bench, counts: Counter[str]) -> None:
    """The far end of a cable goes down for a moment, wherever the NIC is."""
    dice = random.Random(5)
    while True:
        await asyncio.sleep(dice.uniform(0, 2 * FLAP_SECONDS))
        name = f"nic{dice.randrange(NICS)}"
        for up in (False, True):
            with NetlinkSocket(namespace_fd=bench.fabric.fd) as far:
                peer = links.get_link(far, name)
                assert peer is not None
                far.request(links.change(peer.index, up=up))
            await asyncio.sleep(0.2)
        counts["link_flaps"] += 1


async def _restart(bed: Cluster, counts: Counter[str]) -> None:
    while True:
        await asyncio.sleep(RESTART_SECONDS)
        await asyncio.shield(asyncio.to_thread(_bounce, bed))
        counts["api_server_restarts"] += 1


def _bounce(bed: Cluster) -> None:
    with bed.api_server_away():
        time.sleep(AWAY_SECONDS)


async def _sample(pid: int, samples: list[Sample]) -> None:
    while True:
        samples.append(Sample.of(pid))
        await asyncio.sleep(SAMPLE_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
