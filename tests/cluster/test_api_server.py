"""What we write to the API server, against a real one: with the chart's rights and not one more.

The driver itself does not run here. A client with a token of its service account, bound to a pod on a node as the
driver's own token is, plays its part, so a missing right or a refused field shows at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from dranet.core.device import Device, Taint
from dranet.core.names import ClaimRef
from dranet.core.slices import resource_slices, slice_name
from dranet.kubernetes.api.auth import StaticToken
from dranet.kubernetes.api.claims import READY, ClaimStatusWriter, Condition, DeviceStatus, NetworkData, get_claim
from dranet.kubernetes.api.client import KubeClient
from dranet.kubernetes.api.config import from_kubeconfig
from dranet.kubernetes.api.errors import ApiError
from dranet.kubernetes.api.events import CLAIM_PREPARE_FAILED, EventRecorder, ObjectRef
from dranet.kubernetes.api.http import NetTransport
from dranet.kubernetes.api.publisher import ResourceSlicePublisher
from dranet.kubernetes.api.resources import DEVICE_CLASSES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from dranet.testing.waiting import until, wait_until
from tests.cluster.kubebed import Cluster, Kubectl, KubectlError
from tests.cluster.kubebed.manifests import claim, claim_template, opaque, pod, request

QUIET_SECONDS = 3
"""Long enough for a publisher that writes without need to do so."""
CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "dranet"
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "api-test"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.net"'}}]},
}


@dataclass(frozen=True)
class Rights:
    """The chart's account on one node of the bed."""

    bed: Cluster
    node: str
    token: str

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[KubeClient]:
        url = urlsplit(self.bed.layout.api_url)
        trust = ssl.create_default_context(cafile=str(self.bed.layout.pki / "ca.crt"))
        transport = NetTransport(str(url.hostname), url.port or 443, trust)
        async with KubeClient(transport, StaticToken(self.token)) as client:
            yield client


def admin(bed: Cluster) -> KubeClient:
    """A client that may do everything, in whichever version the server speaks."""
    return KubeClient.from_config(from_kubeconfig(bed.layout.kubeconfig))


@pytest.fixture(scope="module")
def rights(bed: Cluster) -> Iterator[Rights]:
    rendered = bed.helm.template(CHART)
    items = [item for item in yaml.safe_load_all(rendered) if item and item["kind"] != "DaemonSet"]
    system = bed.kubectl.in_namespace("kube-system")
    system.apply(*items)
    node = bed.node_names()[0]
    account = pod("dranet-stand-in", node=node)
    account["spec"]["serviceAccountName"] = "dranet"
    system.start(account)
    bound = ("--bound-object-kind", "Pod", "--bound-object-name", "dranet-stand-in")
    yield Rights(bed, node, system.run("create", "token", "dranet", *bound).strip())
    system.delete("pod/dranet-stand-in", grace=1)
    system.remove(*items)
    bed.kubectl.run("delete", "resourceslices", "--all")
    bed.kubectl.run("delete", "deviceclass", "api-test", "--ignore-not-found")


@contextlib.asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(part.run()) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def devices(count: int, mtu: int = 1500) -> list[Device]:
    speed = {"dra.net/linkSpeed": "100G"}
    return [Device(name=f"nic{i}", attributes={"dra.net/mtu": mtu}, capacity=speed) for i in range(count)]


def published(kubectl: Kubectl) -> list[tuple[str, int, int]]:
    ours = [item for item in kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    return [
        (item["metadata"]["name"], item["spec"]["pool"]["generation"], len(item["spec"].get("devices") or ()))
        for item in ours
    ]


@contextlib.asynccontextmanager
async def publishing(rights: Rights, *offered: Device) -> AsyncIterator[ResourceSlicePublisher]:
    """A publisher that has written these devices."""
    async with rights.client() as client:
        publisher = ResourceSlicePublisher(client, rights.node)
        publisher.publish(offered)
        async with running(publisher):
            await publisher.published()
            yield publisher


async def test_a_pool_of_several_slices_is_published_changed_and_shrunk(rights: Rights) -> None:
    kubectl = rights.bed.kubectl
    async with publishing(rights, *devices(130)) as publisher:
        names = [slice_name(0, rights.node), slice_name(1, rights.node)]
        first = published(kubectl)
        assert [(name, count) for name, _, count in first] == [(names[0], 128), (names[1], 2)]
        publisher.publish(devices(130, mtu=9000))
        await publisher.published()
        assert {generation for _, generation, _ in published(kubectl)} == {first[0][1] + 1}
        publisher.publish(devices(2))
        await publisher.published()
        assert [(name, count) for name, _, count in published(kubectl)] == [(names[0], 2)]
        before = publisher.writes
        await asyncio.sleep(QUIET_SECONDS)
        assert publisher.writes == before


async def test_deleted_slices_are_written_again(rights: Rights) -> None:
    kubectl = rights.bed.kubectl
    async with publishing(rights, *devices(3)) as publisher:
        before = publisher.writes
        await asyncio.to_thread(kubectl.run, "delete", "resourceslice", slice_name(0, rights.node))
        await until(lambda: publisher.writes > before, "another write")
        await asyncio.to_thread(wait_until, lambda: published(kubectl), "the slice to be back")
        assert len(published(kubectl)) == 1


async def test_taints_are_kept_or_dropped_without_writing_twice(rights: Rights) -> None:
    async with publishing(rights, Device(name="a", taints=(Taint(key="dra.net/link-down"),))) as publisher:
        before = publisher.writes
        await asyncio.sleep(QUIET_SECONDS)
        assert publisher.writes == before


async def test_the_policy_keeps_the_driver_from_other_nodes_and_other_drivers(rights: Rights) -> None:
    async with rights.client() as client:
        [elsewhere] = resource_slices(devices(1), node=rights.bed.node_names()[-1] + "-not")
        with pytest.raises(ApiError, match="may not touch a ResourceSlice of node"):
            await client.create(RESOURCE_SLICES, elsewhere)
        [other] = resource_slices(devices(1), node=rights.node, driver="gpu.example.com")
        with pytest.raises(ApiError, match="may not touch a ResourceSlice of driver"):
            await client.create(RESOURCE_SLICES, other)


async def test_a_slice_of_our_node_cannot_stand_in_another_nodes_pool(rights: Rights) -> None:
    """With a higher generation it would make that node's devices disappear."""
    [ours] = resource_slices(devices(1), node=rights.node)
    ours["spec"]["pool"] |= {"name": rights.bed.node_names()[-1], "generation": 1_000_000}
    async with rights.client() as client:
        with pytest.raises(ApiError, match="may not touch a ResourceSlice of pool"):
            await client.create(RESOURCE_SLICES, ours)


async def test_another_nodes_slice_cannot_be_changed(rights: Rights) -> None:
    [foreign] = resource_slices(devices(1), node="somewhere")
    async with admin(rights.bed) as client:
        stored = await client.create(RESOURCE_SLICES, foreign)
    stored["spec"]["devices"] = []
    async with rights.client() as client:
        with pytest.raises(ApiError, match="may not touch a ResourceSlice of node somewhere"):
            await client.replace(RESOURCE_SLICES, stored)
    rights.bed.kubectl.run("delete", "resourceslice", foreign["metadata"]["name"])


async def test_another_nodes_slice_cannot_be_deleted(rights: Rights) -> None:
    [foreign] = resource_slices(devices(1), node="somewhere")
    async with admin(rights.bed) as client:
        await client.create(RESOURCE_SLICES, foreign)
    async with rights.client() as client:
        with pytest.raises(ApiError, match="may not touch a ResourceSlice of node somewhere"):
            await client.delete(RESOURCE_SLICES, foreign["metadata"]["name"])
    rights.bed.kubectl.run("delete", "resourceslice", foreign["metadata"]["name"])


async def test_what_the_driver_does_not_need_it_may_not_do(rights: Rights) -> None:
    async with rights.client() as client:
        for attempt in (
            client.list(NODES),
            client.list(PODS),
            client.get(DEVICE_CLASSES, "any"),
            client.delete(RESOURCE_CLAIMS, "any", "default"),
        ):
            with pytest.raises(ApiError, match="403"):
                await attempt


async def test_claim_status_is_written_changed_and_cleared(rights: Rights, kubectl: Kubectl) -> None:
    async with rights.client() as client, publishing(rights, *devices(1)):
        writer = ClaimStatusWriter(client)
        async with running(writer):
            ref = await allocated(rights, kubectl)
            up = Condition(READY, True, "NetworkDeviceReady")
            network = NetworkData(interface_name="eth1", hardware_address="02:00:00:00:00:01", ips=("10.9.9.1/24",))
            status = DeviceStatus(pool=rights.node, device="nic0", conditions=(up,), network=network)
            writer.set(ref, [status])
            await asyncio.wait_for(writer.idle(), 60)
            [entry] = kubectl.get(f"resourceclaim/{ref.name}")["status"]["devices"]
            assert entry["networkData"]["ips"] == ["10.9.9.1/24"]
            began = entry["conditions"][0]["lastTransitionTime"]
            down = Condition(READY, False, "AttachFailed", "the NIC is gone")
            writer.set(ref, [DeviceStatus(pool=rights.node, device="nic0", conditions=(down,))])
            await asyncio.wait_for(writer.idle(), 60)
            [entry] = kubectl.get(f"resourceclaim/{ref.name}")["status"]["devices"]
            assert entry["conditions"][0]["message"] == "the NIC is gone"
            assert "networkData" not in entry
            assert began
            writer.clear(ref)
            await asyncio.wait_for(writer.idle(), 60)
            assert "devices" not in kubectl.get(f"resourceclaim/{ref.name}")["status"]
            assert (await get_claim(client, ref.namespace, ref.name))["metadata"]["uid"] == ref.uid
        kubectl.delete("pod/wants", grace=0)


@pytest.fixture
def only_the_policy(rights: Rights) -> Iterator[None]:
    """The rights that keep Kubernetes 1.36 from asking before the policy does; older ones never ask."""
    group = ["resource.k8s.io"]
    everything = [
        {"apiGroups": group, "resources": ["resourceclaims/binding"], "verbs": ["patch"]},
        {"apiGroups": group, "resources": ["resourceclaims/driver"], "verbs": ["arbitrary-node:patch"]},
    ]
    head = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "api-test-more"}}
    account = {"kind": "ServiceAccount", "name": "dranet", "namespace": "kube-system"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "api-test-more"}
    more = [
        {**head, "kind": "ClusterRole", "rules": everything},
        {**head, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [account]},
    ]
    rights.bed.kubectl.apply(*more)
    name, verb = "system:serviceaccount:kube-system:dranet", "arbitrary-node:patch"
    in_force = lambda: rights.bed.kubectl.may(name, verb, "resourceclaims.resource.k8s.io/driver")  # noqa: E731
    wait_until(in_force, "the rights to be in force")
    yield
    rights.bed.kubectl.remove(*more)


def result(pool: str, driver: str = "dra.net") -> dict[str, str]:
    return {"request": "nic", "driver": driver, "pool": pool, "device": "nic0"}


def entry(pool: str, driver: str = "dra.net") -> dict[str, Any]:
    return {"driver": driver, "pool": pool, "device": "nic0", "networkData": {"interfaceName": "eth1"}}


async def given(rights: Rights, kubectl: Kubectl, name: str, *results: dict[str, str]) -> dict[str, Any]:
    """A claim that was allocated by hand."""
    async with admin(rights.bed) as client:
        made = await client.create(RESOURCE_CLAIMS, claim(name, request("nic", "api-test")), kubectl.namespace)
        status = {"allocation": {"devices": {"results": list(results)}}}
        return await client.apply(RESOURCE_CLAIMS, part(made, status), "test", kubectl.namespace, sub="status")


def part(obj: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "uid")}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata, "status": status}


async def write(client: KubeClient, obj: dict[str, Any], status: dict[str, Any], manager: str = "dra.net") -> None:
    await client.apply(RESOURCE_CLAIMS, part(obj, status), manager, obj["metadata"]["namespace"], sub="status")


@pytest.mark.usefixtures("only_the_policy")
async def test_what_became_of_another_nodes_devices_cannot_be_written(rights: Rights, kubectl: Kubectl) -> None:
    foreign = await given(rights, kubectl, "foreign", result("somewhere"))
    async with rights.client() as client:
        with pytest.raises(ApiError, match=r"what became of devices of pool dra\.net/somewhere"):
            await write(client, foreign, {"devices": [entry("somewhere")]})
    assert "devices" not in kubectl.get("resourceclaim/foreign")["status"]


@pytest.mark.usefixtures("only_the_policy")
async def test_what_another_node_wrote_can_be_neither_changed_nor_removed(rights: Rights, kubectl: Kubectl) -> None:
    both = await given(rights, kubectl, "both", result("somewhere"), result(rights.node))
    async with admin(rights.bed) as other:
        await write(other, both, {"devices": [entry("somewhere")]}, "the driver there")
    async with rights.client() as client:
        await write(client, both, {"devices": [entry(rights.node)]})
        changed = {**entry("somewhere"), "networkData": {"interfaceName": "evil"}}
        with pytest.raises(ApiError, match="may not write what became of devices of pool"):
            await write(client, both, {"devices": [entry(rights.node), changed]})
        with pytest.raises(ApiError, match="may not write what became of devices of pool"):
            await write(client, both, {}, "the driver there")
    found = kubectl.get("resourceclaim/both")["status"]["devices"]
    assert sorted((one["pool"], one["networkData"]["interfaceName"]) for one in found) == sorted(
        [("somewhere", "eth1"), (rights.node, "eth1")]
    )


@pytest.mark.usefixtures("only_the_policy")
async def test_another_drivers_entry_cannot_be_written(rights: Rights, kubectl: Kubectl) -> None:
    gpu = await given(rights, kubectl, "gpu", result(rights.node, "gpu.example.com"))
    async with rights.client() as client:
        with pytest.raises(ApiError, match=f"devices of pool gpu.example.com/{rights.node}"):
            await write(client, gpu, {"devices": [entry(rights.node, "gpu.example.com")]})


@pytest.mark.usefixtures("only_the_policy")
@pytest.mark.parametrize(
    ("name", "status", "answer"),
    [
        (
            "for-whom",
            {"reservedFor": [{"resource": "pods", "name": "evil", "uid": "1"}]},
            "may not change to whom a claim is given",
        ),
        ("what", {"allocation": {"devices": {"results": [result("elsewhere")]}}}, "field is immutable"),
    ],
)
async def test_who_has_a_claim_and_what_cannot_be_changed(
    rights: Rights, kubectl: Kubectl, name: str, status: dict[str, Any], answer: str
) -> None:
    mine = await given(rights, kubectl, name, result(rights.node))
    before = kubectl.get(f"resourceclaim/{name}")["status"]
    async with rights.client() as client:
        with pytest.raises(ApiError, match=answer):
            await write(client, mine, status)
    assert kubectl.get(f"resourceclaim/{name}")["status"] == before


async def allocated(rights: Rights, kubectl: Kubectl) -> ClaimRef:
    """A claim the scheduler has given our device; its pod never starts, for there is no driver to prepare it."""
    async with admin(rights.bed) as client:
        await client.create(DEVICE_CLASSES, CLASS)
        await client.create(RESOURCE_CLAIMS, claim("nic", request("nic", "api-test")), kubectl.namespace)
    kubectl.apply(pod("wants", claims={"nic": "nic"}, node=rights.node))
    kubectl.wait("resourceclaim/nic", "jsonpath={.status.allocation}")
    return ClaimRef(kubectl.namespace, "nic", kubectl.get("resourceclaim/nic")["metadata"]["uid"])


def counted(kubectl: Kubectl) -> bool:
    return [event["count"] for event in kubectl.items("events")] == [2]


async def test_an_event_is_written_and_then_counted(rights: Rights, kubectl: Kubectl) -> None:
    async with rights.client() as client:
        recorder = EventRecorder(client, host=rights.node)
        about = ObjectRef.claim(kubectl.namespace, "nic", "no-such-uid")
        async with running(recorder):
            recorder.warning(about, CLAIM_PREPARE_FAILED, "the NIC is taken")
            await asyncio.to_thread(wait_until, lambda: kubectl.items("events"), "the event")
            recorder.warning(about, CLAIM_PREPARE_FAILED, "the NIC is taken")
            await asyncio.to_thread(wait_until, lambda: counted(kubectl), "the event to be counted twice")
            [event] = kubectl.items("events")
            assert (event["reason"], event["type"]) == ("ClaimPrepareFailed", "Warning")


async def test_the_publisher_survives_an_api_server_that_goes_away(rights: Rights) -> None:
    async with publishing(rights, *devices(2)) as publisher:
        with rights.bed.api_server_away():
            publisher.publish(devices(4))
            await asyncio.sleep(1)
            assert not publisher.in_sync
        await publisher.published()
        assert [count for _, _, count in published(rights.bed.kubectl)] == [4]


async def test_dranet_status_shows_the_cluster(rights: Rights) -> None:
    command = [sys.executable, "-m", "dranet", "status", "--kubeconfig", str(rights.bed.layout.kubeconfig)]
    async with publishing(rights, *devices(1)):
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "nic0" in done.stdout
    assert rights.node in done.stdout


@pytest.mark.parametrize("make", [claim, claim_template])
@pytest.mark.parametrize(
    ("parameters", "field"),
    [
        ({"vf": {"vlan": 666}}, "vf"),
        ({"interface": {"disableEbpfPrograms": True}}, "interface.disableEbpfPrograms"),
        ({"interface": {"name": "net1"}, "perDevice": [{"match": "true"}, {"vf": {"vlan": 666}}]}, "vf"),
        ({"perDevice": [{"interface": {"disableEbpfPrograms": True}}]}, "interface.disableEbpfPrograms"),
    ],
)
def test_claims_cannot_set_the_parameters_of_administrators(
    rights: Rights, kubectl: Kubectl, make: Callable[..., dict[str, Any]], parameters: dict[str, Any], field: str
) -> None:
    wanted = request("nic", "api-test")
    with pytest.raises(KubectlError, match=f"{field}: only a DeviceClass or a profile may set this"):
        kubectl.apply(make("border", wanted, config=[opaque("dra.net", parameters)]))
    kubectl.apply(make("border", wanted, config=[opaque("dra.net", {"interface": {"name": "net1"}})]))
    kubectl.apply(make("foreign", wanted, config=[opaque("other.example", parameters)]))
