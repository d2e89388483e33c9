"""The chart and the image, installed as a platform team would: they start, need only their rights, update smoothly."""

from __future__ import annotations

import re
from typing import Any

import release
from kubebed import Cluster, Kubectl
from kubebed.manifests import claim, pod, request
from kubebed.processes import wait_until


def drivers(bed: Cluster) -> list[dict[str, Any]]:
    return bed.kubectl.in_namespace(release.SYSTEM).items("pods", "-l", f"app={release.RELEASE}")


def test_every_node_publishes_its_cards(driver: Cluster) -> None:
    slices = [item for item in driver.kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    assert sorted(item["spec"]["nodeName"] for item in slices) == sorted(driver.node_names())
    for item in slices:
        names = {device["name"] for device in item["spec"]["devices"]}
        node = driver.node(item["spec"]["nodeName"])
        assert {card.name for card in driver.cards(node)} <= names


def test_an_unprivileged_driver_gives_a_pod_its_card_and_says_so_on_the_claim(
    driver: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(claim("nic", request("nic", release.CLASS, selector='device.attributes["dra.net"].ifName == "nic0"')))
    kubectl.apply(pod("user", claims={"nic": "nic"}, node=driver.node_names()[0]))
    kubectl.wait("pod/user", "condition=Ready")
    assert "192.168.0." in kubectl.exec("user", "ip", "addr", "show", "nic0")
    kubectl.wait("resourceclaim/nic", "jsonpath={.status.devices[0].networkData.ips}", 10)
    [entry] = kubectl.get("resourceclaim/nic")["status"]["devices"]
    assert all(condition["status"] == "True" for condition in entry["conditions"])


def test_the_api_server_denied_the_driver_nothing(driver: Cluster) -> None:
    system = driver.kubectl.in_namespace(release.SYSTEM)
    for found in drivers(driver):
        assert not re.search("403|[Ff]orbidden", system.logs(found["metadata"]["name"]))


def test_an_update_overlaps_and_a_running_pod_keeps_its_card(driver: Cluster, kubectl: Kubectl) -> None:
    node = driver.node_names()[0]
    kubectl.apply(claim("nic", request("nic", release.CLASS, selector='device.attributes["dra.net"].ifName == "nic1"')))
    kubectl.apply(pod("user", claims={"nic": "nic"}, node=node))
    kubectl.wait("pod/user", "condition=Ready")
    before = {found["metadata"]["uid"] for found in drivers(driver)}
    system = driver.kubectl.in_namespace(release.SYSTEM)
    system.run("rollout", "restart", "daemonset/dranet")
    wait_until(lambda: _two_on_one_node(driver), "old and new driver to overlap", 30)
    system.run("rollout", "status", "daemonset/dranet", "--timeout=120s", timeout=130)
    assert not before & {found["metadata"]["uid"] for found in drivers(driver) if _runs(found)}
    assert "192.168.1." in kubectl.exec("user", "ip", "addr", "show", "nic1")
    kubectl.delete("pod/user", grace=1)
    wait_until(lambda: "nic1" in driver.node(node).links(), "the card to come home", 30)


def _two_on_one_node(bed: Cluster) -> bool:
    nodes = [found["spec"]["nodeName"] for found in drivers(bed) if _runs(found)]
    return len(nodes) > len(set(nodes))


def _runs(found: dict[str, Any]) -> bool:
    return found["status"].get("phase") == "Running" and "deletionTimestamp" not in found["metadata"]
