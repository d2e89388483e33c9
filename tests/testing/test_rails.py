"""Predicted reachability against real pings, on two machines whose rails are isolated bridges.

Random NICs are in use. `dranet plan` predicts which pod gets which NIC and which pods reach each other; the driver
moves the NICs, and pings check the prediction. ``DRANET_RAIL_OCCUPANCIES=200`` runs more occupancies.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import Hardware, hardware_of_slices
from dranet.advise.plan.planning import Plan, plan
from dranet.advise.plan.rails import PodRails, job_rails
from dranet.advise.suggest import stateful_set, suggest_same_rails
from dranet.core.errors import InvalidInput
from dranet.kubernetes.api import resources
from dranet.linux import links
from dranet.linux.netlink import NetlinkSocket
from dranet.machines.shape import load_shape
from dranet.testing.cluster import NodePlan, SandboxCluster
from dranet.testing.controllers import apply, claim_names, withdraw, write_status
from dranet.testing.observing import pod_interfaces
from dranet.testing.running import RunningPod, start, stop
from dranet.testing.traffic import End, Lane, ping
from dranet.testing.waiting import until

pytestmark = pytest.mark.usefixtures("may_make_namespaces")

BATCH = 10
BATCHES = max(1, int(os.environ.get("DRANET_RAIL_OCCUPANCIES", str(BATCH))) // BATCH)
NODES = ("node-0", "node-1")
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: nics}}
spec:
  spec:
    devices:
      requests: [{{name: nic, exactly: {{deviceClassName: dranet, count: {count}}}}}]
---
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path, because socket paths are limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="dranet-") as name:
        yield Path(name)


@dataclass
class Bed:
    """The cluster, and claims that hold some of its NICs."""

    cluster: SandboxCluster
    chance: random.Random

    def hardware(self) -> Hardware:
        return hardware_of_slices([dict(item) for item in self.cluster.api.objects(resources.RESOURCE_SLICES)])

    async def take_some(self) -> None:
        """Create claims, without pods, that hold random NICs."""
        nics = [(node, nic.device) for node, machine in self.hardware().machines.items() for nic in machine.nics]
        for i, (node, device) in enumerate(self.chance.sample(nics, self.chance.randint(0, 13))):
            claim = {"metadata": {"name": f"held-{i}", "uid": f"held-{i}"}, "spec": {}}
            made = await self.cluster.client.create(resources.RESOURCE_CLAIMS, claim, "default")
            await self._allocate(made, [{"request": "nic", "driver": "dra.net", "pool": node, "device": device}], [])

    async def _allocate(self, claim: dict[str, Any], results: list[dict[str, Any]], users: list[Any]) -> None:
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": users}
        await write_status(self.cluster.client, resources.RESOURCE_CLAIMS, claim, status)

    def manifests(self, manifest: str) -> Manifests:
        named = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
        claims = [{**item, **named} for item in self.cluster.api.objects(resources.RESOURCE_CLAIMS)]
        listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": claims})
        return Manifests(read_text(manifest, "job.yaml")[0], read_text(listed, "claims.json")[0])

    async def run(self, manifest: str, found: Plan) -> list[RunningPod]:
        """Start the planned pods with exactly the devices of the plan."""
        pods = {pod["metadata"]["name"]: pod for pod in await apply(self.cluster.client, read_text(manifest, "x")[0])}
        running = []
        for one in found.pods:
            pod = pods[one.pod.name]
            (name,) = claim_names(pod).values()
            claim = await self.cluster.client.get(resources.RESOURCE_CLAIMS, name, "default")
            user = {"resource": "pods", "name": one.pod.name, "uid": pod["metadata"]["uid"]}
            (results,) = one.placement.devices
            await self._allocate(claim, [dict(result.raw) for result in results], [user])
            running.append(await start(self.cluster.client, self.cluster.nodes[one.placement.node], pod))
        # The kernel may need a second to detect the carrier of a moved link.
        await until(lambda: all(map(has_carrier, running)), "the carrier of all NICs in pods")
        return running

    async def clear(self, running: Sequence[RunningPod]) -> None:
        for pod in running:
            await stop(self.cluster.client, pod)
        listed, _ = await self.cluster.client.list(resources.PODS)
        await withdraw(self.cluster.client, listed)
        await self.cluster.wait_for_devices()


def has_carrier(pod: RunningPod) -> bool:
    assert pod.sandbox.netns is not None
    with NetlinkSocket(namespace_fd=pod.sandbox.netns.fd) as route:
        return all(link.operstate == "up" for link in links.list_links(route) if not link.is_loopback)


def reaches(near: RunningPod, far: RunningPod) -> bool:
    """Whether any NIC of one pod gets a ping reply from any NIC of the other."""
    return any(_answers(a, b) for a, b in itertools.product(_ends(near), _ends(far)))


def _ends(pod: RunningPod) -> list[End]:
    assert pod.sandbox.netns is not None
    cidrs = [cidr for interface in pod_interfaces(pod).values() for cidr in interface.addresses if ":" not in cidr]
    assert cidrs, f"{pod.name} has no address"
    return [End(pod.sandbox.netns, cidr.partition("/")[0]) for cidr in cidrs]


def _answers(near: End, far: End) -> bool:
    try:
        return ping(Lane(near, far)) is not None
    except OSError:
        return False  # no route


def predicted(found: Plan) -> dict[str, PodRails]:
    return {pod.pod: pod for job in job_rails(found) for pod in job.pods}


async def compare(bed: Bed, manifest: str, found: Plan) -> int:
    """Compare prediction and ping for every pair of planned pods; returns the number of pairs."""
    rails, running = predicted(found), await bed.run(manifest, found)
    pairs = list(itertools.combinations(running, 2))
    expected = {(a.name, b.name): rails[a.name].reaches(rails[b.name]) for a, b in pairs}
    assert {(a.name, b.name): reaches(a, b) for a, b in pairs} == expected
    await bed.clear(running)
    return len(pairs)


@pytest.mark.parametrize("batch", range(BATCHES))
async def test_pods_reach_each_other_exactly_as_planned(batch: int, folder: Path) -> None:
    shape, chance = load_shape("a4-highgpu-8g"), random.Random(1000 + batch)
    plans = [NodePlan(name, shape, i) for i, name in enumerate(NODES)]
    async with SandboxCluster(plans, folder) as cluster:
        bed, pairs = Bed(cluster, chance), 0
        for _ in range(BATCH):
            count, pods = chance.choice([1, 1, 2]), chance.choice([2, 2, 3])
            await bed.take_some()
            manifest = TEMPLATE.format(count=count) + stateful_set("nics", pods)
            free = await common_rails(bed)
            found = plan(bed.manifests(manifest), bed.hardware())
            if len(found.pods) > 1:
                held = [dict(item) for item in cluster.api.objects(resources.RESOURCE_CLAIMS)]
                pairs += await compare(bed, manifest, found)
                await restore(bed, held)
            await same_rails(bed, manifest, count, free)
    assert pairs >= BATCH // 2, f"only {pairs} pairs of pods were compared"


async def restore(bed: Bed, held: list[dict[str, Any]]) -> None:
    """Create the claims of an occupancy again."""
    for claim in held:
        plain = {"metadata": {"name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"]}, "spec": {}}
        made = await bed.cluster.client.create(resources.RESOURCE_CLAIMS, plain, "default")
        await write_status(bed.cluster.client, resources.RESOURCE_CLAIMS, made, claim["status"])


async def common_rails(bed: Bed) -> set[str]:
    """The rails that are free on both machines, according to the API server."""
    claims = bed.cluster.api.objects(resources.RESOURCE_CLAIMS)
    taken = {(r["pool"], r["device"]) for c in claims for r in c["status"]["allocation"]["devices"]["results"]}
    machines = bed.hardware().machines
    return set.intersection(
        *({nic.rail for nic in machines[node].nics if (node, nic.device) not in taken} for node in NODES)
    )


async def same_rails(bed: Bed, manifest: str, count: int, free: set[str]) -> None:
    """If enough rails are free on both machines, the suggested claim puts both pods on them."""
    manifests = bed.manifests(manifest)
    if len(free) < count:
        with pytest.raises(InvalidInput):
            suggest_same_rails(manifests, bed.hardware(), 0, count)
        await bed.clear([])
        return
    best = suggest_same_rails(manifests, bed.hardware(), 0, count)[0]
    assert set(best.rails) <= free
    job = "---\n".join([best.manifest, stateful_set(f"{count}nic-rail-{'-'.join(best.rails)}", 2)])
    assert all(a.reaches(b) for a, b in itertools.combinations(predicted(best.plan).values(), 2))
    assert await compare(bed, job, best.plan) == 1
