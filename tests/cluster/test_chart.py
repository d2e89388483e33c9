"""The chart and the image, installed as a platform team would: they start, need only their rights."""

from __future__ import annotations

from tests.cluster import release
from tests.cluster.kubebed import Cluster, Kubectl
from tests.cluster.kubebed.manifests import claim, pod, request


def test_every_node_publishes_its_nics(driver: Cluster) -> None:
    slices = [item for item in driver.kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    assert sorted(item["spec"]["nodeName"] for item in slices) == sorted(driver.node_names())
    for item in slices:
        names = {device["name"] for device in item["spec"]["devices"]}
        node = driver.node(item["spec"]["nodeName"])
        assert {nic.name for nic in driver.nics(node)} <= names


def test_an_unprivileged_driver_gives_a_pod_its_nic_and_says_so_on_the_claim(driver: Cluster, kubectl: Kubectl) -> None:
    kubectl.apply(claim("nic", request("nic", release.CLASS, selector='device.attributes["dra.net"].ifName == "nic0"')))
    kubectl.start(pod("user", claims={"nic": "nic"}, node=driver.node_names()[0]))
    assert "192.168.0." in kubectl.exec("user", "ip", "addr", "show", "nic0")
    kubectl.wait("resourceclaim/nic", "jsonpath={.status.devices[0].networkData.ips}")
    [entry] = kubectl.get("resourceclaim/nic")["status"]["devices"]
    assert all(condition["status"] == "True" for condition in entry["conditions"])


def test_the_api_server_denied_the_driver_nothing(driver: Cluster) -> None:
    system = driver.kubectl.in_namespace(release.SYSTEM)
    for found in release.drivers(driver).values():
        # By the word: "403" is also what a clock shows.
        assert "forbidden" not in system.logs(found["metadata"]["name"]).lower()
