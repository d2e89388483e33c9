"""Tenants of one node, with real pods and the chart's default values: nothing of one pod reaches the next."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from dranet.testing.waiting import wait_until
from tests.cluster import release
from tests.cluster.inside import ip, process_of
from tests.cluster.kubebed import Cluster, Kubectl, Nic, parts
from tests.cluster.kubebed.manifests import claim, claim_template, opaque, pod, request
from tests.cluster.test_health import taints, waits

NIC = Nic("tenant0", "02:5c:e0:00:09:01", ("169.254.77.1/32",), rail=60)


@pytest.fixture(scope="module", autouse=True)
def plugged(driver: Cluster) -> Iterator[None]:
    first = driver.nodes[0]
    first.plug(driver.fabric, [NIC])
    release.wait_published(driver.kubectl, first.name, NIC.name)
    yield
    first.unplug(driver.fabric, [NIC])


@pytest.fixture
def accomplice() -> Iterator[int]:
    """A process that keeps a network namespace of its own."""
    process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
    yield process.pid
    process.kill()
    process.wait()


def the_nic() -> dict[str, object]:
    return request("nic", release.CLASS, selector=f'device.attributes["dra.net"].ifName == "{NIC.name}"')


def test_nic_with_a_hidden_link_is_withheld_until_it_is_free(
    driver: Cluster, kubectl: Kubectl, accomplice: int
) -> None:
    if parts.minor(driver.options.version) < 36:
        pytest.skip("taints of devices are switched off before Kubernetes 1.36")
    kubectl.start(claim_template("tenant", the_nic()), pod("first", templates={"nic": "tenant"}))
    inside = ["nsenter", "-t", str(process_of(driver, kubectl, "first")), "-n", "ip", "link"]
    subprocess.run([*inside, "add", "link", NIC.name, "name", "evil", "type", "macvlan"], check=True)
    subprocess.run([*inside, "set", "evil", "netns", str(accomplice)], check=True)
    kubectl.delete("pod/first")
    wait_until(lambda: ["dra.net/foreign-link"] in taints(driver).values(), "the NIC to be tainted")
    kubectl.apply(pod("second", templates={"nic": "tenant"}))
    wait_until(lambda: waits(kubectl, "second"), "the scheduler to refuse the NIC")
    assert {one["ifname"] for one in ip(accomplice, "link")} == {"lo", "evil"}
    subprocess.run(["nsenter", "-t", str(accomplice), "-n", "ip", "link", "delete", "evil"], check=True)
    kubectl.wait("pod/second", "condition=Ready")
    wait_until(lambda: not taints(driver), "no taint to be left")
    kubectl.delete("pod/second")


def test_child_with_an_address_of_the_node_does_not_start(driver: Cluster, kubectl: Kubectl) -> None:
    config = opaque("dra.net", {"interface": {"type": "Macvlan", "addresses": ["169.254.77.1/32"]}})
    kubectl.apply(claim("stolen", the_nic(), config=[config]), pod("thief", claims={"nic": "stolen"}))

    def messages() -> str:
        return " ".join(str(event.get("message")) for event in kubectl.items("events"))

    wait_until(lambda: "169.254.77.1 is an address of this node" in messages(), "the driver to refuse the address")
    kubectl.delete("pod/thief")
