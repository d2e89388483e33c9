"""The chart and the image, installed as a platform team would: they start, need only their rights, update smoothly."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubebed import Cluster, Kubectl
from kubebed.manifests import claim, pod, request
from kubebed.processes import wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "chart-test"},
    "spec": {"selectors": [{"cel": {"expression": 'device.driver == "dra.net"'}}]},
}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("image") / "dranet.tar"
    subprocess.run([sys.executable, str(DEPLOY / "image" / "build.py"), "--output", str(output)], check=True)
    return output


@pytest.fixture(scope="module")
def installed(bed: Cluster, image: Path) -> Iterator[Cluster]:
    values = {"image": {"pullPolicy": "Never"}, "args": {"filter": ""}, "minReadySeconds": 2}
    bed.install_driver("dranet", DEPLOY / "helm" / "dranet", image, values)
    bed.kubectl.apply(CLASS)
    yield bed
    bed.kubectl.run("delete", "deviceclass", "chart-test")
    bed.uninstall_driver("dranet")


def drivers(bed: Cluster) -> list[dict[str, Any]]:
    return bed.kubectl.in_namespace("kube-system").items("pods", "-l", "app=dranet")


def test_every_node_publishes_its_cards(installed: Cluster) -> None:
    slices = [item for item in installed.kubectl.items("resourceslices") if item["spec"]["driver"] == "dra.net"]
    assert sorted(item["spec"]["nodeName"] for item in slices) == sorted(installed.node_names())
    for item in slices:
        names = {device["name"] for device in item["spec"]["devices"]}
        node = installed.node(item["spec"]["nodeName"])
        assert {card.name for card in installed.cards(node)} <= names


def test_an_unprivileged_driver_gives_a_pod_its_card_and_says_so_on_the_claim(
    installed: Cluster, kubectl: Kubectl
) -> None:
    kubectl.apply(claim("nic", request("nic", "chart-test", selector='device.attributes["dra.net"].ifName == "nic0"')))
    kubectl.apply(pod("user", claims={"nic": "nic"}, node=installed.node_names()[0]))
    kubectl.wait("pod/user", "condition=Ready")
    assert "192.168.0." in kubectl.exec("user", "ip", "addr", "show", "nic0")
    kubectl.wait("resourceclaim/nic", "jsonpath={.status.devices[0].networkData.ips}", 10)
    [entry] = kubectl.get("resourceclaim/nic")["status"]["devices"]
    assert all(condition["status"] == "True" for condition in entry["conditions"])


def test_the_api_server_denied_the_driver_nothing(installed: Cluster) -> None:
    system = installed.kubectl.in_namespace("kube-system")
    for driver in drivers(installed):
        assert not re.search("403|[Ff]orbidden", system.logs(driver["metadata"]["name"]))


def test_an_update_overlaps_and_a_running_pod_keeps_its_card(installed: Cluster, kubectl: Kubectl) -> None:
    node = installed.node_names()[0]
    kubectl.apply(claim("nic", request("nic", "chart-test", selector='device.attributes["dra.net"].ifName == "nic1"')))
    kubectl.apply(pod("user", claims={"nic": "nic"}, node=node))
    kubectl.wait("pod/user", "condition=Ready")
    before = {driver["metadata"]["uid"] for driver in drivers(installed)}
    system = installed.kubectl.in_namespace("kube-system")
    system.run("rollout", "restart", "daemonset/dranet")
    wait_until(lambda: _two_on_one_node(installed), "old and new driver to overlap", 30)
    system.run("rollout", "status", "daemonset/dranet", "--timeout=120s", timeout=130)
    assert not before & {driver["metadata"]["uid"] for driver in drivers(installed) if _runs(driver)}
    assert "192.168.1." in kubectl.exec("user", "ip", "addr", "show", "nic1")
    kubectl.delete("pod/user", grace=1)
    wait_until(lambda: "nic1" in installed.node(node).links(), "the card to come home", 30)


def _two_on_one_node(bed: Cluster) -> bool:
    nodes = [driver["spec"]["nodeName"] for driver in drivers(bed) if _runs(driver)]
    return len(nodes) > len(set(nodes))


def _runs(driver: dict[str, Any]) -> bool:
    return driver["status"].get("phase") == "Running" and "deletionTimestamp" not in driver["metadata"]
