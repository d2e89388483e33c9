"""Shares of a NIC in a real cluster: what the scheduler counts, what `plan` says of it, what the pods have.

Children are macvlan, for not every kernel below a bed has ipvlan.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from dranet.advise.manifests import Manifests, read_text
from dranet.advise.plan.hardware import hardware_of_slices
from dranet.advise.plan.planning import plan
from dranet.cli.live_cluster import Cluster as Source
from dranet.cli.live_cluster import read_cluster
from dranet.scheduler.allocation.shares import shortest
from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim, opaque, pod, request

NIC0 = 'device.attributes["dra.net"].ifName == "nic0"'
NIC1 = 'device.attributes["dra.net"].ifName == "nic1"'
SHARED = 'attributes["dra.net/ifName"].StringValue == "nic0"'
BANDWIDTH = "dra.net/bandwidth"
QUARTER = "2500M"
EXAMPLE = release.PROJECT / "examples/sharing/extended-resource.yaml"
pytestmark = pytest.mark.timeout(300)  # the first one waits for the bed, the image and the installation


@pytest.fixture(scope="module")
def driver(bed: Cluster) -> Iterator[Cluster]:
    if tuple(map(int, bed.options.version.removeprefix("v").split(".")[:2])) < (1, 36):
        pytest.skip("shares are counted since Kubernetes 1.36")
    for node in bed.nodes:
        bed.replug(node, bed.nics(node))
    release.install(bed, args={"sharedCards": SHARED})
    release.wait_published(bed.kubectl, bed.nodes[0].name, "nic0", "nic1")
    yield bed
    release.remove(bed)


def share(name: str, **interface: Any) -> dict[str, Any]:
    """A claim of a quarter of nic0."""
    asked = request("nic", release.CLASS, selector=NIC0)
    asked["exactly"]["capacity"] = {"requests": {BANDWIDTH: QUARTER}}
    parameters = {"interface": {"type": "Macvlan", "name": "net1", **interface}}
    return claim(name, asked, config=[opaque("dra.net", parameters)])


def whole(name: str) -> dict[str, Any]:
    return claim(name, request("nic", release.CLASS, selector=NIC0))


def user(bed: Cluster, name: str, of: str = "") -> dict[str, Any]:
    """A pod on the first node; it has the claim of its own name, or another."""
    return pod(name, claims={"nic": of or name}, node=bed.node_names()[0])


def runs(kubectl: Kubectl, *names: str) -> None:
    for name in names:
        kubectl.wait(f"pod/{name}", "condition=Ready")


def waits(kubectl: Kubectl, name: str) -> str:
    """The scheduler's words."""
    kubectl.wait(f"pod/{name}", "jsonpath={.status.conditions[?(@.type=='PodScheduled')].reason}=Unschedulable")
    conditions = kubectl.get(f"pod/{name}")["status"]["conditions"]
    return next(str(one["message"]) for one in conditions if one["type"] == "PodScheduled")


def ends(kubectl: Kubectl, name: str) -> None:
    kubectl.delete(f"pod/{name}", f"resourceclaim/{name}")


def waits_as_planned(bed: Cluster, kubectl: Kubectl, asked: dict[str, Any]) -> None:
    """`plan --live` is asked just before the cluster is, and says what the scheduler says then."""
    name = asked["metadata"]["name"]
    expected = predicted(bed, kubectl, asked, user(bed, name))
    kubectl.apply(asked, user(bed, name))
    said = waits(kubectl, name)
    assert expected
    assert said.startswith(expected), f"planned: {expected}"


def predicted(bed: Cluster, kubectl: Kubectl, *applied: dict[str, Any]) -> str:
    cluster = read_cluster(Source(str(bed.layout.kubeconfig)))
    here = [{**one, "metadata": {**one["metadata"], "namespace": kubectl.namespace}} for one in applied]
    asked = [found for one in here for found in read_text(json.dumps(one), "asked.json")[0]]
    manifests = Manifests(asked, [*cluster.surroundings, *cluster.objects])
    refused = plan(manifests, hardware_of_slices(manifests.checked_slices())).unschedulable
    return refused[-1].reason if refused else ""


def consumed(kubectl: Kubectl, name: str) -> str:
    (result,) = kubectl.get(f"resourceclaim/{name}")["status"]["allocation"]["devices"]["results"]
    assert result["shareID"]
    return shortest(result["consumedCapacity"][BANDWIDTH])


def links(kubectl: Kubectl, name: str) -> set[str]:
    return set(kubectl.exec(name, "ls", "/sys/class/net").split())


def mac(kubectl: Kubectl, name: str) -> str:
    return kubectl.exec(name, "cat", "/sys/class/net/net1/address").strip()


def test_of_five_quarters_four_run_and_the_fifth_waits_as_planned(driver: Cluster, kubectl: Kubectl) -> None:
    wanted = {f"quarter-{number}": f"192.168.0.{100 + number}/24" for number in range(4)}
    kubectl.apply(*(share(name, addresses=[address]) for name, address in wanted.items()))
    # One after the other: docs/tasks/sharing.md tells what the scheduler may do with those that come at once.
    for name in wanted:
        kubectl.apply(user(driver, name))
        runs(kubectl, name)
    assert [consumed(kubectl, name) for name in wanted] == [shortest(QUARTER)] * 4
    for name, address in wanted.items():
        assert address in kubectl.exec(name, "ip", "address", "show", "net1")
    assert "nic0" in driver.nodes[0].links(), "the NIC stays on the node"
    waits_as_planned(driver, kubectl, share("fifth", addresses=["192.168.0.110/24"]))
    ends(kubectl, "quarter-2")
    runs(kubectl, "fifth")


def test_a_whole_nic_waits_for_the_last_share_and_shares_wait_for_it(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(share("part", addresses=["192.168.0.100/24"]), user(driver, "part"))
    runs(kubectl, "part")
    waits_as_planned(driver, kubectl, whole("all"))
    ends(kubectl, "part")
    runs(kubectl, "all")
    assert "nic0" in links(kubectl, "all")
    waits_as_planned(driver, kubectl, share("late", addresses=["192.168.0.101/24"]))
    ends(kubectl, "all")
    runs(kubectl, "late")
    assert "net1" in links(kubectl, "late")
    assert "nic0" in driver.nodes[0].links()


def test_pods_that_name_one_claim_have_an_interface_each(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(share("ours", addressing="Unnumbered"), user(driver, "first", "ours"), user(driver, "second", "ours"))
    runs(kubectl, "first", "second")
    kubectl.apply(user(driver, "joins-later", "ours"))
    runs(kubectl, "joins-later")
    macs = {name: mac(kubectl, name) for name in ("first", "second", "joins-later")}
    assert len(set(macs.values())) == len(macs), macs
    kubectl.delete("pod/first")
    stay = ("second", "joins-later")
    assert {name: mac(kubectl, name) for name in stay} == {name: macs[name] for name in stay}


@pytest.fixture
def extended(driver: Cluster) -> Iterator[dict[str, Any]]:
    """The class of the example, narrowed to one NIC of the bed, and a pod with the resources of the example's."""
    documents = {one["kind"]: one for one in yaml.safe_load_all(EXAMPLE.read_text())}
    narrowed = documents["DeviceClass"]
    narrowed["spec"]["selectors"] = [{"cel": {"expression": f'device.driver == "dra.net" && {NIC1}'}}]
    driver.kubectl.apply(narrowed)
    made = pod("plain", node=driver.node_names()[0])
    made["spec"]["containers"][0]["resources"] = documents["Pod"]["spec"]["containers"][0]["resources"]
    yield made
    driver.kubectl.delete(f"deviceclass/{narrowed['metadata']['name']}")


def test_an_extended_resource_is_a_nic_and_no_pod_starts_without_it(
    driver: Cluster, kubectl: Kubectl, extended: dict[str, Any]
) -> None:
    kubectl.apply(extended)
    runs(kubectl, "plain")
    assert "nic1" in links(kubectl, "plain")
    kubectl.apply({**extended, "metadata": {"name": "second"}})
    assert "cannot allocate all claims" in waits(kubectl, "second")
    kubectl.delete("pod/plain")
    runs(kubectl, "second")
    assert "nic1" in links(kubectl, "second")


@pytest.fixture
def impossible(driver: Cluster) -> Iterator[dict[str, Any]]:
    """A class that wants a child without an address, which the driver refuses, and a pod that asks for it by name."""
    made = release.device_class("impossible", f'device.driver == "dra.net" && {NIC1}')
    made["spec"] |= {
        "extendedResourceName": "dra.net/impossible",
        "config": [opaque("dra.net", {"interface": {"type": "Macvlan"}})],
    }
    driver.kubectl.apply(made)
    asks = pod("asks", node=driver.node_names()[0])
    asks["spec"]["containers"][0]["resources"] = {"limits": {"dra.net/impossible": 1}}
    yield asks
    driver.kubectl.delete("deviceclass/impossible")


def test_a_pod_whose_extended_resource_the_driver_refuses_does_not_start(
    driver: Cluster, kubectl: Kubectl, impossible: dict[str, Any]
) -> None:
    kubectl.apply(impossible)
    wait_until(lambda: "interface.addresses" in str(kubectl.items("events")), "the driver's word on it")
    assert kubectl.get("pod/asks")["status"]["phase"] == "Pending"
    assert "nic1" in driver.nodes[0].links()
